"""`contingency`: what every single failure of a kind costs, one solve per class of failures."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from fabric._errors import ModelError, nearest
from fabric.network import Flows, Network, whole
from fabric.reliability._failures import Components, components
from fabric.reliability._intact import Intact, Objective, Router
from fabric.reliability._progress import long
from fabric.reliability._report import Contingency
from fabric.reliability._rescore import Rescorer
from fabric.reliability._study import Study
from fabric.routing import ROUTINGS
from fabric.solvers import Completion

BY_CHANCE = ("ecmp", "flowlet")
"""Rules that hash whatever their arguments are, so that nothing is symmetric."""


def contingency(
    network: Network,
    flows: Flows,
    routing: str | Router = "spray",
    *,
    kind: str | Sequence[str] = "link",
    objective: str | Completion = "slowest",
    factor: float = 0.0,
    check: int = 2,
    sample: int | str | None = None,
    seed: int = 0,
    limit_s: float = 600.0,
    progress: bool | None = None,
) -> Contingency:
    """Return what every single failure of a kind does to the rates of flows, worst first.

    Failures that a symmetry of network, flows and routes maps on one another cost the same, so
    that one of each class is solved: without the component, flows are routed anew and filled.
    Classes are found by colour refinement, by the distances from endpoint to endpoint over flows,
    and by a colour of its own for each of up to 64 cables, nodes or servers that are unlike most
    of their tier. What is in different classes can be told apart, but what is in one class is not
    proved to cost the same. Therefore every member is solved where all take no longer than a
    tenth of `limit_s`, as on small fabrics. Elsewhere `check` other members of each class are
    solved, and a class that falls apart is solved member by member; so is, where it takes no longer
    than that, every class of a fabric without tiers, and every one in which flows make a detour.
    The notes of the report say which it was.

    Under spray only the flows that crossed the component are routed again, and rates are solved
    as far as the failure reaches.

    Args:
        network: With labels. What has failed in it already stays so.
        flows: (flows,). Sizes count only for a `Completion`.
        routing: Name of a rule, or a function from a network and flows to routes, which is solved
            from scratch and should treat alike what is alike; arguments of a rule go in by
            `functools.partial`.
        kind: What fails, as in `components`; several kinds are ranked together.
        objective: "slowest", the slowest rate; "total", the sum of rates; or a `Completion`.
        factor: What is left of the capacity of a component, less than 1. Default: it fails.
        check: Members of each class, drawn at random, that are solved besides its representative.
        sample: Solve so many components of each kind, drawn at random, or "all" of them, instead
            of classes. Rules that hash, such as ecmp, need it, since they have no symmetry.
        seed: Of the draws.
        limit_s: Seconds that the solves may take by estimate, made from the first ones.
        progress: Whether to report progress on stderr. Default: if it is a terminal, and the work
            takes more than two seconds.

    Returns:
        A row per class: how many components are in it, the flows cut off, the rates of the
        others, and what the objective loses.

    Raises:
        ModelError: If an argument is unknown or out of range, or if the rule hashes and `sample`
            is not given.
        InfeasibleError: If it would take longer than `limit_s`, or if flows have no way already.

    Precision: float64; rates agree with a solve from scratch to 1e-9, relative.
    Derivatives: None; on the host.
    Cost: Routing and solving once, refinement, and per class what the flows on one component
        take: on 65,536 GPUs with a flow each about 0.1 s.

    Examples:
        Two leaves of two hosts, each leaf with a cable to either of two spines; every host sends
        to its like under the other leaf.

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2, capacity="8GB/s")
        >>> flows = fb.Flows(net.hosts, net.hosts[[2, 3, 0, 1]])
        >>> print(contingency(net, flows, kind=["link", "switch"]))
        failure of           like it  cut off  slowest    total  slowest
        leaf0                      2        4        -   0 GB/s   -100 %
        leaf0-host0 - leaf0        4        2   8 GB/s  16 GB/s   -100 %
        leaf0 - spine0             4        0   4 GB/s  16 GB/s    -50 %
        spine0                     2        0   4 GB/s  16 GB/s    -50 %
        (none)                              0   8 GB/s  32 GB/s
        12 components in 4 classes under spray, refined until nothing more is told apart.
        Every member of every class was solved.
    """
    kinds = [kind] if isinstance(kind, str) else list(dict.fromkeys(kind))
    _check(factor, kinds, sample, limit_s)
    check, seed = whole("check", check, 0), whole("seed", seed, 0)
    router = _router(routing)
    parts = {word: components(network, word) for word in kinds}
    intact = Intact(network, flows, router, Objective(objective, flows.n_flows))
    rule = str(intact.routes.rule.get("name", "given"))
    if sample is None and _by_chance(intact.routes.rule):
        _refuse_chance(rule, intact, factor, parts)
    study = Study(intact, factor, parts, limit_s, progress)
    rng = np.random.default_rng(seed)
    notes = study.by_class(check, rng, rule) if sample is None else study.by_sample(sample, rng)
    return study.report(notes)


def _check(factor: float, kinds: Sequence[str], sample: object, limit_s: float) -> None:
    if not kinds:
        message = "`contingency(kind=...)` needs at least one kind, such as 'link' or 'switch'."
        raise ModelError(message)
    if not 0 <= factor < 1:
        message = (
            f"`contingency(factor={factor!r})` needs a number from 0, a failure, to less than 1, "
            f"the part of the capacity that is left."
        )
        raise ModelError(message)
    if not (isinstance(limit_s, int | float) and limit_s > 0):
        message = f"`contingency(limit_s={limit_s!r})` needs more than 0 seconds, such as 600."
        raise ModelError(message)
    if isinstance(sample, str) and sample != "all":
        message = f"`contingency(sample={sample!r})` needs a number of components, or 'all'."
        raise ModelError(message)
    if sample is not None and not isinstance(sample, str):
        whole("sample", sample)


def _router(routing: str | Router) -> Router:
    if callable(routing):
        return routing
    if routing not in ROUTINGS:
        message = (
            f"`contingency(routing={routing!r})` is no rule. "
            f"{nearest(str(routing), list(ROUTINGS))} A function of a network and flows is one too."
        )
        raise ModelError(message)
    return ROUTINGS[routing]


def _by_chance(rule: Mapping[str, object]) -> bool:
    """Return whether equal flows take unequal paths under a rule, by its record."""
    drawn = rule.get("intermediates", "all") != "all" or rule.get("split") == "hash"
    return rule.get("name") in BY_CHANCE or bool(rule.get("hashed")) or drawn


def _refuse_chance(rule: str, intact: Intact, factor: float, parts: dict[str, Components]) -> None:
    rescore, (first, *_) = Rescorer(intact, factor), parts.values()
    begun = time.monotonic()
    rescore(first, 0)
    each, n = time.monotonic() - begun, sum(map(len, parts.values()))
    some = min(100, max(max(map(len, parts.values())) // 2, 1))
    message = (
        f"`contingency(routing={rule!r})`: paths are chosen by hash or chance, so that no two "
        f"of {n:,} components fail alike, and all of them take {long(n * each)} at "
        f"{each:.2g} s each. Give `sample={some}` to draw some, `sample='all'` to solve all, or "
        f"use 'spray'."
    )
    raise ModelError(message)
