"""Where gradients pay beside layouts: capacities, and what several choices gain together."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fabric as fb
from experiments.optimizers import joint, swaps
from experiments.optimizers.limits import at_least, at_most
from experiments.rows import Row
from fabric import optimize
from fabric.network import Network
from fabric.optimize._design_case import Case, prepared
from fabric.optimize._design_descent import Fastest
from fabric.optimize._jobs import JobStep
from fabric.optimize._money import Purse, factors, logits
from fabric.optimize._step_goal import Goal
from fabric.optimize._tier_prices import Priced

TARGET = "the target of this project"
PARTS = 20
PRICES = {
    "nvlink": "1 per Gb/s", "pcie": "0.5 per Gb/s", "host": "3 per Gb/s",
    "leaf-spine": "6 per Gb/s",
}  # fmt: skip
_BATCH = 8

CASES = [
    ("llama-3.1-8b", 16, 128, 8192, 0.7), ("llama-3.1-8b", 16, 128, 8192, 1.5),
    ("llama-3.1-8b", 64, 512, 8192, 1.0), ("llama-3.1-70b", 16, 256, 8192, 0.7),
    ("llama-3.1-70b", 16, 256, 8192, 1.5), ("llama-3.1-70b", 64, 512, 8192, 0.7),
    ("llama-3.1-70b", 64, 1024, 8192, 1.0), ("gpt-3-175b", 32, 256, 2048, 0.7),
    ("gpt-3-175b", 32, 256, 2048, 1.5), ("gpt-3-175b", 64, 1536, 2048, 1.0),
]  # fmt: skip
"""Model, servers, global batch, tokens of a sequence, and budget over the fabric as built."""


def rows(smoke: bool) -> list[Row]:
    """Return every row; with `smoke` small cases."""
    with jax.enable_x64():
        return [
            *_swapped(smoke), *_designs(smoke), *_several(smoke), *joint.rows(smoke),
        ]  # fmt: skip


def _swapped(smoke: bool) -> Iterator[Row]:
    spaces, seeds = (4, 2) if smoke else (50, 4)
    found = swaps.compare(spaces, range(seeds))
    unit = f"of {spaces} spaces within 1 %, median of {seeds} seeds"
    beside = "random + swaps with as many scores"
    first = "gradient-ranked swaps at 10 % of the scores"
    # A few spaces tell that it runs, and no share of them.
    share = 0.5 if smoke else 0.8
    yield at_least(first, share * spaces, found.ranked, unit, TARGET)
    yield at_least(f"{first}, beside the control", found.control, found.ranked, unit, beside)
    lost = found.weighted < found.control
    note = "a gradient counted as seven scores: of a closed form it costs more than it saves"
    yield Row(
        f"{first}, cost-weighted", found.control, found.weighted, unit, float(not lost), beside,
        note if lost else "a gradient counted as seven scores", refuted=lost,
    )  # fmt: skip


def grid(parts: int, groups: int) -> np.ndarray:
    """Return all divisions of parts among groups, at least one each; (divisions, groups)."""
    cuts = np.stack(np.meshgrid(*[np.arange(1, parts)] * (groups - 1), indexing="ij"))
    cuts = cuts.reshape(groups - 1, -1).T
    cuts = cuts[(np.diff(cuts, axis=1) > 0).all(axis=1)]
    ends = np.full((len(cuts), 1), parts)
    return np.diff(np.concatenate([np.zeros_like(ends), cuts, ends], axis=1), axis=1)


def _fastest(case: Case, factors: np.ndarray) -> float:
    """Return the seconds of the fastest layout over some capacities."""
    design = case.design
    return float(_least(design.fastest, jnp.asarray(factors), design.tables()))


@partial(jax.jit, static_argnums=0)
def _least(fastest: Fastest, factors: jax.Array, tables: Any) -> jax.Array:
    return jax.lax.map(lambda x: fastest(x, *tables), factors, batch_size=_BATCH).min()


def _designs(smoke: bool) -> Iterator[Row]:
    for name, nodes, gbs, seq, money in CASES[:1] if smoke else CASES:
        net = fb.topologies.cluster("dgx-h100", nodes=2 if smoke else nodes)
        model = fb.Model.listed(name)
        budget = money * Priced.of(net, PRICES).cost.sum()
        asked = {"budget": budget, "gbs": gbs, "seq": seq}
        called = f"{name}, {len(net.hosts):,} GPUs, budget x{money:g}"
        one, two = (
            optimize.codesign(net, model, PRICES, seed=seed, steps=300, **asked) for seed in (0, 1)
        )
        case = prepared(net, model, PRICES, **asked)
        shares = grid(6 if smoke else PARTS, len(PRICES))
        best = _fastest(case, shares / shares[0].sum() * budget / case.priced.cost)
        note = (
            f"gap {one.gap:.1e}; all tiers alike {one.before:.5g}; random + moves "
            f"{one.control:.6g}; {one.kept:,} of {one.rows:,} layouts; the grid takes "
            f"{len(shares) * one.kept:,} scores"
        )
        yield at_most(f"layout x four capacities: {called}", best, one.objective, "s",
                      f"a grid of {PARTS} parts", note)  # fmt: skip
        yield at_most(f"two starts: {called}", 1e-3, abs(two.objective / one.objective - 1),
                      "relative", TARGET)  # fmt: skip
        yield at_most(f"descent after compilation: {called}", 2.0, one.descent_seconds, "s",
                      TARGET)  # fmt: skip


def _several(smoke: bool) -> Iterator[Row]:
    """Yield 25 capacities of five jobs, beside a simplex method on the same logits."""
    from scipy.optimize import minimize

    nodes, passes = (8, 200) if smoke else (64, 6000)
    net = fb.topologies.cluster("dgx-h100", nodes=nodes)
    jobs = five_jobs(len(net.hosts))
    groups = cut_up(net)
    prices = {name: PRICES[name.split()[0]] for name in groups}
    priced = Priced.of(net, prices, groups)
    budget = float(priced.cost.sum())
    found = optimize.capacities(net, jobs, prices, budget=budget, groups=groups, steps=600)
    goal = Goal([JobStep(net, job, priced.group_of, priced.n_groups) for job in jobs], None)
    purse = Purse(*(jnp.asarray(a) for a in (
        priced.cost, np.zeros(priced.n_groups), np.full(priced.n_groups, 1e9)
    )))  # fmt: skip
    score = jax.jit(lambda z: goal.shared(factors(z, budget, purse)))
    start = np.asarray(logits(jnp.ones(priced.n_groups), purse))
    begun = time.perf_counter()
    simplex = minimize(
        lambda z: float(score(jnp.asarray(z))), start, method="Nelder-Mead",
        options={"maxiter": passes, "maxfev": 10**7, "adaptive": True},
    )  # fmt: skip
    took = time.perf_counter() - begun
    exact = float(goal.exact(factors(jnp.asarray(simplex.x), budget, purse)))
    note = (
        f"gap {found.gap:.1e}; all groups alike {found.before:.6g}; {found.evaluations:,} scores "
        f"in {found.seconds:.1f} s; random + moves {found.control:.6g}; simplex {simplex.nit:,} "
        f"passes, {simplex.nfev:,} scores in {took:.1f} s"
    )
    yield at_most(f"{priced.n_groups} capacities of five jobs", exact * 1.001, found.objective, "s",
                  "a simplex method (Nelder-Mead) and 0.1 %", note)  # fmt: skip


def five_jobs(gpus: int) -> list[optimize.Job]:
    """Return five jobs of different needs, each on all GPUs."""
    words = [
        ("llama-3.1-8b", "tp2 sp pp1 zero1", "first"),
        ("llama-3.1-8b", "tp8 sp pp1 zero1", "first"),
        ("llama-3.1-70b", "tp8 sp pp4 zero1", "spread"),
        ("llama-3.1-70b", "tp4 sp pp8 zero1", "first"),
        ("llama-3.1-8b", "tp2 sp cp4 zero1", "spread"),
    ]
    return [
        optimize.Job(
            model=fb.Model.listed(name), placement=placement, name=f"job {i}",
            layout=fb.Layout.parse(f"{said} dp=auto mb1 gbs1024 seq8192 recompute=full", gpus=gpus),
        )
        for i, (name, said, placement) in enumerate(words)
    ]  # fmt: skip


def cut_up(net: Network) -> dict[str, Sequence[int]]:
    """Return NVLink as one group, adapters by rail, and the uplinks of every leaf."""
    labels = net.labels
    tier = lambda name: np.flatnonzero(labels.tier_of == labels.tiers.index(name))
    found: dict[str, Sequence[int]] = {"nvlink": tier("nvlink").tolist()}
    leaf = labels.is_kind("leaf")
    for name, key in (("host", labels.tags["rail"]), ("leaf-spine", np.arange(labels.n_nodes))):
        links = tier(name)
        end = np.where(leaf[labels.src[links]], labels.src[links], labels.dst[links])
        for value in np.unique(key[end]):
            found[f"{name} {value}"] = links[key[end] == value].tolist()
    return found
