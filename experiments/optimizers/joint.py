"""Layout, placement and routing together on what is left of a fabric, beside one after the other.

1,024 GPUs are on servers that others left free, and some cables between leaves and spines have
failed. Traffic between servers is summed by leaf, so that a placement is the leaf of every server
and a routing is how every pair of leaves splits over the spines.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import fabric as fb
from experiments.optimizers.limits import at_most
from experiments.rows import Row
from fabric import hardware
from fabric.collectives import path_latency
from fabric.network import Flows, Network, Routes
from fabric.optimize import _descent
from fabric.optimize._design_loads import KINDS, Loads
from fabric.optimize._jobs import loads_of
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._layout_space import Space
from fabric.optimize._layout_wires import Degrees, Fabric
from fabric.optimize._step_goal import norm_of

GPUS = 8  # of a server
TOGETHER = "layout, then placement, then routing, with as many scores"
_STEPS, _TRIED, _SHARP, _RATE = 80, 32, 300.0, 0.3


class Plan(NamedTuple):
    """Servers on leaves, and splits of leaf pairs over spines."""

    at: Int[np.ndarray, " servers"]  # which free server holds each position
    split: Float[np.ndarray, "leaves leaves spines"]


@dataclass(frozen=True, eq=False)
class Cut:
    """A layout's exchanges: bytes between positions of servers, and seconds on all other links."""

    degrees: Degrees
    rows: Rows
    number: Int[np.ndarray, " rows"]
    sent: Float[np.ndarray, "kinds servers servers"]
    fixed: Float[np.ndarray, " kinds"]
    wait: Float[np.ndarray, " kinds"]


class Site:
    """A fragmented allocation on a leaf-spine fabric with failed cables.

    Args:
        leaves, spines: Of the fabric; every leaf has eight servers.
        servers: That are free.
        failed: Share of the cables between leaves and spines that have failed.
        model, gbs, seq: Of the job.
        seed: Of what is free and what has failed.
    """

    def __init__(
        self, leaves: int, spines: int, servers: int, failed: float, model: str, gbs: int,
        seq: int, seed: int,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        nics = fb.topologies.leaf_spine(leaves, spines, 8 * GPUS, cables_per_pair=2)
        net = fb.topologies.attach_servers(
            nics, hardware.server("dgx-h100"), nics.hosts.reshape(-1, GPUS)
        )
        labels = net.labels
        up = np.flatnonzero(labels.tier_of == labels.tiers.index("leaf-spine"))
        down = rng.choice(np.unique(labels.cable_of[up]), round(failed * len(up) / 2), False)
        self.network = net.with_alive(~np.isin(labels.cable_of, down) & np.asarray(net.alive))
        free = np.sort(rng.choice(len(net.hosts) // GPUS, servers, False))
        # As a scheduler lists them: in the order in which they became free.
        self.gpus = net.hosts.reshape(-1, GPUS)[rng.permutation(free)]
        self.leaf = np.unique(labels.tags["leaf"][self.gpus[:, 0]], return_inverse=True)[1]
        self.n_leaves, self.n_spines = int(self.leaf.max()) + 1, spines
        gpu, profile = hardware.gpu("h100-sxm"), hardware.default_profile("h100-sxm")
        shape = fb.Model.listed(model)
        self.form = ClosedForm(shape, gpu, profile, gbs, seq, "bf16")
        self.space = Space.of(
            shape, profile, capacity=gpu.memory.value, gpus=[self.gpus.size], gbs=gbs, seq=seq,
            limits={"vpp": 1, "cp": 1},
        )  # fmt: skip
        self._fabric = lambda router: Fabric(
            self.network, shape, profile, seq, "bf16", router, named=False
        )
        self._load_cables(up)
        self.cuts = [self._cut(i) for i in range(len(self.space.degrees))]
        self.scores = 0

    def _load_cables(self, up: Int[np.ndarray, " links"]) -> None:
        """Note which live links join each leaf and spine, and what they carry together."""
        labels, self._reached = self.network.labels, self._fabric(fb.routing.ecmp)._network
        tag = labels.tags["leaf"]
        used = np.unique(tag[self.gpus[:, 0]])
        live = up[np.asarray(self.network.alive)[up]]
        capacity = np.asarray(self._reached.capacity)
        spine = {int(n): i for i, n in enumerate(np.flatnonzero(labels.is_kind("spine")))}
        self.links: dict[tuple[int, int, bool], list[int]] = {}
        self.out, self.into = (np.zeros((self.n_leaves, self.n_spines)) for _ in range(2))
        for link in live.tolist():
            src, dst = int(labels.src[link]), int(labels.dst[link])
            rises = dst in spine
            leaf, top = (src, dst) if rises else (dst, src)
            if tag[leaf] not in used:
                continue
            key = int(np.searchsorted(used, tag[leaf])), spine[top], rises
            self.links.setdefault(key, []).append(link)
            (self.out if rises else self.into)[key[:2]] += capacity[link]

    @property
    def by_leaf(self) -> Plan:
        """Servers sorted by leaf, sprayed."""
        return Plan(np.argsort(self.leaf, kind="stable"), self.sprayed.split)

    @property
    def sprayed(self) -> Plan:
        """Servers as listed; every leaf splits over its live cables towards the other."""
        reach = (self.into > 0)[None, :, :] * self.out[:, None, :]
        return Plan(np.arange(len(self.leaf)), reach / reach.sum(axis=2, keepdims=True))

    def _cut(self, i: int) -> Cut:
        degrees = self.space.degrees[i]
        gpus = degrees.ranks(self.gpus.ravel())
        place = np.full(self.network.n_nodes, -1)
        place[self.gpus.ravel()] = np.arange(self.gpus.size) // GPUS
        number = np.flatnonzero(self.space.degrees_of == i)
        rows = Rows(*(np.asarray(c)[self.space.shape_of[number]] for c in self.space.columns))
        n = len(self.leaf)
        sent = np.zeros((len(KINDS), n, n))
        fixed, wait = np.zeros(len(KINDS)), np.zeros(len(KINDS))
        fabric = self._fabric(fb.routing.ecmp)
        labels = self.network.labels
        spine = labels.tier_of == labels.tiers.index("leaf-spine")
        for traffic in fabric._traffic(degrees, gpus, wraps=False):
            k, flows = KINDS.index(traffic.name), traffic.exchange.flows
            src, dst = place[np.asarray(flows.src)], place[np.asarray(flows.dst)]
            np.add.at(sent[k], (src, dst), traffic.size)
            # Group 0: what no placement and no split changes; any paths between leaves will do.
            routes = fb.routing.ecmp(self._reached, flows)
            fixed[k] = loads_of(self._reached, routes, traffic.size, spine * 1, 1)[0]
            wait[k] = traffic.latency + traffic.steps * path_latency(self._reached, routes)
        sent[:, np.arange(n), np.arange(n)] = 0
        return Cut(degrees, rows, number, sent, fixed, wait)

    def between(self, cut: Cut, at: Int[np.ndarray, " servers"]) -> np.ndarray:
        """Return bytes between leaves; (kinds, leaves, leaves)."""
        on = np.zeros((len(self.leaf), self.n_leaves))
        on[np.arange(len(self.leaf)), self.leaf[at]] = 1
        found = np.einsum("ia,kij,jb->kab", on, cut.sent, on, optimize=True)
        found[:, np.arange(self.n_leaves), np.arange(self.n_leaves)] = 0
        return found

    def busy(self, between: np.ndarray, split: np.ndarray) -> np.ndarray:
        """Return seconds by kind, up or down, leaf and spine; (kinds, 2, leaves, spines)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.einsum("kab,abs->kas", between, split) / self.out
            down = np.einsum("kab,abs->kbs", between, split) / self.into
        return np.nan_to_num(np.stack([up, down], axis=1), nan=0.0, posinf=np.inf)

    def best(self, cut: Cut, wire: Float[np.ndarray, " kinds"]) -> tuple[float, int]:
        """Return the seconds of the fastest layout of a cut, and its place."""
        self.scores += 1
        loads = Loads(np.zeros(0), cut.wait[None], np.log2([float(len(self.leaf))]))
        seconds = self.form.seconds(cut.rows, loads.wires(wire[None]))
        return float(seconds.min()), int(seconds.argmin())

    def score(self, cut: Cut, plan: Plan) -> float:
        """Return the seconds of the fastest layout of a cut under a plan."""
        wire = self.busy(self.between(cut, plan.at), plan.split).max(axis=(1, 2, 3))
        return self.best(cut, np.maximum(wire, cut.fixed))[0]

    def ideal(self, cut: Cut) -> float:
        """Return the seconds if leaves and spines were joined by links of any speed."""
        return self.best(cut, cut.fixed)[0]

    def placed(self, cut: Cut, plan: Plan, count: int, rng: np.random.Generator | None) -> Plan:
        """Return a plan with servers swapped while that helps, by so many scores.

        Swaps come in the order of what the prices of busy links promise, and at random where that
        leads no further; with `rng` at random from the start.
        """
        left, value = count, self.score(cut, plan)
        by_chance = np.random.default_rng(0)
        promising = rng is None
        while left > 0:
            pairs = self._swaps(cut, plan, None if promising else rng or by_chance)
            pairs = pairs[: min(_TRIED, left)]
            moved = False
            for i, j in pairs:
                left -= 1
                at = plan.at.copy()
                at[[i, j]] = at[[j, i]]
                if (found := self.score(cut, Plan(at, plan.split))) < value * (1 - 1e-12):
                    value, plan, moved = found, Plan(at, plan.split), True
                    break
            promising = promising and moved
        return plan

    def _swaps(
        self, cut: Cut, plan: Plan, rng: np.random.Generator | None
    ) -> list[tuple[int, int]]:
        leaf = self.leaf[plan.at]
        i, j = np.nonzero(np.triu(leaf[:, None] != leaf[None, :]))
        if rng is not None:
            some = rng.choice(len(i), _TRIED)
            return list(zip(i[some].tolist(), j[some].tolist(), strict=True))
        busy = self.busy(self.between(cut, plan.at), plan.split)
        wire = busy.max(axis=(1, 2, 3))
        slope = self._slopes(cut, np.maximum(wire, cut.fixed)) * (wire >= cut.fixed)
        heat = np.exp(_SHARP * (busy / np.maximum(wire, 1e-300)[:, None, None, None] - 1))
        heat *= slope[:, None, None, None] / heat.sum(axis=(1, 2, 3), keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(self.out > 0, heat[:, 0] / self.out, 0)
            down = np.where(self.into > 0, heat[:, 1] / self.into, 0)
        price = np.einsum("kas,abs->kab", up, plan.split)
        price += np.einsum("kbs,abs->kab", down, plan.split)
        price[:, np.arange(self.n_leaves), np.arange(self.n_leaves)] = 0
        # What each position costs on each leaf, all others where they are.
        cost = np.einsum("kij,kbj->ib", cut.sent, price[:, :, leaf])
        cost += np.einsum("kji,kjb->ib", cut.sent, price[:, leaf, :])
        n = np.arange(len(leaf))
        gain = cost[i, leaf[j]] - cost[n, leaf][i] + cost[j, leaf[i]] - cost[n, leaf][j]
        order = np.argsort(gain, kind="stable")[:_TRIED]
        return list(zip(i[order].tolist(), j[order].tolist(), strict=True))

    def _slopes(self, cut: Cut, wire: np.ndarray) -> np.ndarray:
        here, step = self.best(cut, wire)[0], 1e-4
        rise = [self.best(cut, wire * (1 + step * (np.arange(len(wire)) == k)))[0] for k in
                range(len(wire))]  # fmt: skip
        return (np.array(rise) - here) / step

    def routed(self, cut: Cut, plan: Plan, steps: int = _STEPS) -> Plan:
        """Return a plan with splits by the gradient of the step through the busiest links."""
        between = self.between(cut, plan.at)
        wire = np.maximum(self.busy(between, plan.split).max(axis=(1, 2, 3)), cut.fixed)
        row = Rows(*(column[[self.best(cut, wire)[1]]] for column in cut.rows))
        open_ = (self.out[:, None, :] > 0) & (self.into[None, :, :] > 0)
        z = np.where(open_, np.log(np.maximum(plan.split, 1e-4)), -np.inf)
        given = (z, between, cut.fixed, cut.wait, row, self.out, self.into)
        self.scores += steps
        split = _descend(*jax.tree.map(jnp.asarray, given), len(self.leaf), self.form, steps)
        found = Plan(plan.at, np.asarray(split))
        return min(found, plan, key=partial(self.score, cut))

    def exact(self, cut: Cut, plan: Plan) -> float:
        """Return the seconds of the fastest layout of a cut, with exact max-min rates."""
        slots = self.gpus[plan.at].ravel()
        wires = self._fabric(partial(self._router, plan.split)).exact(cut.degrees, slots, False)
        return float(self.form.seconds(cut.rows, wires).min())

    def _router(self, split: np.ndarray, network: Network, flows: Flows) -> Routes:
        """Return routes whose part between leaves follows the splits."""
        routes = fb.routing.ecmp(network, flows)
        labels = network.labels
        spine = labels.tier_of == labels.tiers.index("leaf-spine")
        crosses = np.zeros(routes.n_bundles, bool)
        crosses[np.asarray(routes.part_bundle)[spine[np.asarray(routes.part_link)]]] = True
        if not routes.n_parts:
            crosses = spine
        hop_flow, hop_bundle = np.asarray(routes.hop_flow), np.asarray(routes.hop_bundle)
        keep = ~crosses[hop_bundle]
        over = np.unique(hop_flow[~keep])
        leaf = np.full(network.n_nodes, -1)
        leaf[self.gpus.ravel()] = np.repeat(self.leaf, GPUS)
        pair = leaf[np.asarray(flows.src)[over]] * self.n_leaves
        pair += leaf[np.asarray(flows.dst)[over]]
        n = routes.n_bundles
        parts = [
            (n + a * self.n_leaves + b, link, split[a, b, s] / len(links))
            for (leaf_, s, rises), links in self.links.items()
            for other in range(self.n_leaves)
            for a, b in [(leaf_, other) if rises else (other, leaf_)]
            if a != b and split[a, b, s] > 0
            for link in links
        ]
        bundle, link, use = (np.array(column) for column in zip(*parts, strict=True))
        if routes.n_parts:
            old = ~crosses[np.asarray(routes.part_bundle)]
            kept = [np.asarray(getattr(routes, f"part_{name}"))[old] for name in
                    ("bundle", "link", "use")]  # fmt: skip
        else:
            kept = [np.arange(n), np.arange(n), np.ones(n)]
        flow = np.concatenate([hop_flow[keep], over])
        order = np.argsort(flow, kind="stable")
        return Routes.from_bundles(
            flow[order], np.concatenate([hop_bundle[keep], n + pair])[order],
            np.concatenate([np.asarray(routes.hop_use)[keep], np.ones(len(over))])[order],
            *(np.concatenate(both) for both in zip(kept, (bundle, link, use), strict=True)),
            n_flows=routes.n_flows, n_bundles=n + self.n_leaves**2, n_links=network.n_links,
        )  # fmt: skip


@partial(jax.jit, static_argnums=(7, 8, 9))
def _descend(
    z: jax.Array, between: jax.Array, fixed: jax.Array, wait: jax.Array, row: Rows,
    out: jax.Array, into: jax.Array, servers: int, form: ClosedForm, steps: int,
) -> jax.Array:  # fmt: skip
    """Return the best splits on the way of Adam."""
    rule, kind = _descent.adam(_RATE, steps), z.dtype
    with jax.numpy_dtype_promotion("standard"):
        adam = rule.init(z)
    loads = Loads(jnp.zeros(0), wait[None], jnp.full(1, np.log2(servers), kind))
    room = [jnp.where(c > 0, c, 1.0) for c in (out, into)]

    def seconds(z: jax.Array, power: jax.Array | None) -> jax.Array:
        split = jax.nn.softmax(z, axis=2)
        up = jnp.einsum("kab,abs->kas", between, split) / room[0]
        down = jnp.einsum("kab,abs->kbs", between, split) / room[1]
        flat = jnp.concatenate([a.reshape(len(KINDS), -1) for a in (up, down)], axis=1)
        terms = jnp.concatenate([flat, fixed[:, None]], axis=1)
        wire = terms.max(axis=1) if power is None else norm_of(terms, power)
        return form.seconds(row, loads.wires(wire[None]), xp=jnp)[0]

    def turn(state: Any, step: jax.Array) -> tuple[Any, None]:
        z, adam, best, value = state
        now = seconds(z, None)
        best, value = jnp.where(now < value, z, best), jnp.minimum(now, value)
        power = _descent.power(step, steps, kind)
        gradient = jax.grad(lambda z: jnp.log(seconds(z, power)))(z)
        gradient = jnp.where(jnp.isfinite(z), gradient, 0.0)
        moved, adam = _descent.moved(rule, gradient, adam, z)
        return (jnp.where(jnp.isfinite(z), moved, z), adam, best, value), None

    state = z, adam, z, jnp.asarray(jnp.inf, kind)
    return jax.nn.softmax(jax.lax.scan(turn, state, jnp.arange(steps))[0][2], axis=2)


def apart(site: Site, plan: Plan, swaps: int) -> tuple[float, Cut, Plan]:
    """Return the best layout under a plan, then its placement, then its routing."""
    cut = min(site.cuts, key=lambda cut: site.score(cut, plan))
    plan = site.placed(cut, plan, swaps, None)
    plan = site.routed(cut, plan, 6 * _STEPS)
    return site.exact(cut, plan), cut, plan


def together(
    site: Site, swaps: int, rounds: Sequence[int] = (16, 6, 2), control: int | None = None
) -> tuple[float, Cut, Plan]:
    """Return the best of several layouts, each with its own placement and routing.

    Layouts with servers as listed and sorted by leaf go on in rounds, each time fewer with more
    swaps.

    Args:
        site: Where.
        swaps: Scores of swaps in all.
        rounds: How many layouts go on.
        control: A seed: swaps at random, and splits as they are.
    """
    rng = None if control is None else np.random.default_rng(control)
    ordered = site.cuts
    found = [(cut, plan) for cut in ordered for plan in (site.sprayed, site.by_leaf)]
    for keep in rounds:
        found = sorted(found, key=lambda one: site.score(*one))[:keep]
        each = swaps // (len(rounds) * keep)
        for i, (cut, plan) in enumerate(found):
            plan = site.placed(cut, plan, each, rng)
            steps = 6 * _STEPS if keep == rounds[-1] else _STEPS
            found[i] = (cut, plan if rng is not None else site.routed(cut, plan, steps))
    scored = [(site.exact(cut, plan), i) for i, (cut, plan) in enumerate(found)]
    value, i = min(scored)
    return value, *found[i]


def rows(smoke: bool) -> list[Row]:
    """Return the rows; with `smoke` 64 GPUs."""
    size = (3, 4, 8, 0.2) if smoke else (20, 4, 128, 0.25)
    asked = ("llama-3.1-8b", 64, 8192) if smoke else ("gpt-3-175b", 1536, 2048)
    found: list[Row] = []
    for seed in range(1 if smoke else 2):
        begun = time.perf_counter()
        site = Site(*size, *asked, seed)
        swaps = 60 if smoke else 1500
        both, cut, _ = together(site, swaps)
        used, site.scores = site.scores, 0
        left = max(used - len(site.cuts) - 6 * _STEPS, swaps)
        one, first, _ = apart(site, site.sprayed, left)
        spent = site.scores
        tidy, _, _ = apart(site, site.by_leaf, left)
        beside, _, _ = together(site, swaps, control=seed)
        listed = min(site.score(cut, site.sprayed) for cut in site.cuts)
        bound = min(site.ideal(cut) for cut in site.cuts)
        called = f"{site.gpus.size:,} GPUs on fragments, seed {seed}"
        note = (
            f"best layout for servers as listed {listed:.5g} s; one after the other from servers "
            f"sorted by leaf {tidy:.5g} s; {first.degrees[:4]} against {cut.degrees[:4]} (tp, cp, "
            f"dp, pp); no layout beats {bound:.5g} s; {used:,} scores against {spent:,}; "
            f"{time.perf_counter() - begun:.0f} s"
        )
        found += [
            at_most(f"layout x placement x routing: {called}", one, both, "s", TOGETHER, note),
            at_most(
                f"layout x placement x routing, servers sorted before: {called}", tidy, both, "s",
                TOGETHER,
            ),
            at_most(
                f"layout x placement x routing without gradients: {called}", beside, both, "s",
                "layouts with random swaps, sprayed",
            ),
        ]  # fmt: skip
    return found
