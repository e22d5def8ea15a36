"""`Search`: the step of layouts by placement and splits, and how both are improved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric.collectives import path_latency
from fabric.network import Flows
from fabric.optimize._design_loads import KINDS, Loads
from fabric.optimize._jobs import loads_of
from fabric.optimize._joint_descent import Form, Pace, Tables, descend, widened
from fabric.optimize._joint_site import Docks, Mix, Sent, Site
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_score import Rows, rounding
from fabric.optimize._layout_space import Space
from fabric.optimize._layout_wires import Degrees, Fabric, inside_servers
from fabric.training._phases import Traffic, solved

_TRIED, _SHARP, _STEP = 32, 300.0, 1e-4
_K = len(KINDS)


class Plan(NamedTuple):
    """Where the servers of the job are, and how traffic splits.

    Attributes:
        at: (servers,), which server of the allocation is at each position; the job fills the first.
        splits: Share of every path.
    """

    at: Int[np.ndarray, " servers"]
    splits: Float[np.ndarray, "pairs width"]


@dataclass(frozen=True, eq=False)
class Case:
    """The layouts of one set of degrees, with or without chunks that go around.

    Attributes:
        key: Twice the number of the degrees, and one more if chunks go around.
        degrees: Their sizes.
        number, rows: The layouts.
        sent: What goes between servers.
        fixed: (kinds,), seconds inside servers. `wait`: (kinds,), latency.
    """

    key: int
    degrees: Degrees
    number: Int[np.ndarray, " rows"]
    rows: Rows
    sent: Sent
    fixed: Float[np.ndarray, " kinds"]
    wait: Float[np.ndarray, " kinds"]


class Cases:
    """All sets of degrees of a space on the servers of an allocation.

    Args:
        space: The layouts.
        form: The step in closed form.
        fabric: What is exchanged.
        docks: Of the servers.

    Attributes:
        keys: Those that have layouts.
        combos: (keys, gpus, gpus), between which GPUs of two servers something is sent.
        ideal: (keys,), seconds that no placement and no splits beat; infinite where a key has no
            layout.
    """

    def __init__(self, space: Space, form: Form, fabric: Fabric, docks: Docks):
        self.space, self.form, self.fabric, self.docks = space, form, fabric, docks
        self.n_gpus = space.gpus[0]
        wraps = (space.columns.vpp > 1)[space.shape_of]
        keys = 2 * space.degrees_of + wraps
        self._order = np.argsort(keys, kind="stable")
        self._begun = np.searchsorted(keys[self._order], np.arange(2 * len(space.degrees) + 1))
        n, g = 2 * len(space.degrees), docks.gpus.shape[1]
        self.combos = np.zeros((n, g, g), bool)
        self.ideal = np.full(n, np.inf)
        self.keys = np.unique(keys).tolist()
        self._place = np.full(fabric.network.n_nodes, -1)
        self._place[docks.gpus.ravel()] = np.arange(docks.gpus.size)

    def bound(self, key: int) -> None:
        """Find what a key sends, and the seconds that it takes at least."""
        traffic = self.traffic(key, np.arange(self.docks.n_servers))
        across, inside = self._split(traffic)
        g = len(self.docks.local)
        self.combos[key, across.src % g, across.dst % g] = True
        wire, wait = self._least(across, inside), np.zeros(_K)
        for one in traffic:
            wait[KINDS.index(one.name)] = one.latency
        slack = self.fabric.slack + rounding(np.float64)
        seconds = self.form.seconds(self._rows(key), self.wires(wire, wait), lower=True)
        self.ideal[key] = float(seconds.min()) * (1 - slack)

    def leave_out(self, site: Site) -> int:
        """Leave out keys that send between GPUs whose docks have no path, and return how many."""
        of, g = self.docks.of, len(self.docks.local)
        lost = np.zeros((g, g), bool)
        for a, b in np.argwhere(self.combos.any(axis=0)).tolist():
            ends = np.ix_(np.unique(of[:, a]), np.unique(of[:, b]))
            lost[a, b] = site.lost[ends].any()
        gone = (self.combos & lost).any(axis=(1, 2))
        self.ideal[gone] = np.inf
        return int(gone.sum())

    def traffic(self, key: int, at: Int[np.ndarray, " servers"]) -> list[Traffic]:
        """Return the exchanges with the servers at these positions."""
        slots = self.docks.gpus[at].ravel()[: self.n_gpus]
        degrees = self.space.degrees[key // 2]
        return self.fabric.traffic(degrees, degrees.ranks(slots), bool(key % 2))

    def wires(self, wire: Float[np.ndarray, " kinds"], wait: Float[np.ndarray, " kinds"]) -> Any:
        """Return the columns of the step model."""
        servers = self.n_gpus / len(self.docks.local)
        return Loads(np.zeros(0), wait[None], np.log2([servers])).wires(wire[None])

    def open(self, key: int, site: Site, splits: Float[np.ndarray, "pairs width"]) -> Case:
        """Return a key with what it sends; the latency is that of servers as listed."""
        traffic = self.traffic(key, np.arange(self.docks.n_servers))
        sent, _ = self._split(traffic)
        fixed, wait = np.zeros(_K), np.zeros(_K)
        network = self.fabric.network
        outside = 1 - inside_servers(network).astype(np.int64)
        far = bool(np.asarray(network.latency).any())
        # All kinds at once: ways inside servers are looked for once.
        flows = [one.exchange.flows for one in traffic]
        join = lambda columns: np.concatenate([np.zeros(0, np.int32), *columns])
        both = Flows(join(f.src for f in flows), join(f.dst for f in flows))
        together = site.routes(splits, network, both)
        size = join(one.size for one in traffic)
        of = np.repeat(np.arange(len(traffic)), [len(one.size) for one in traffic])
        for i, one in enumerate(traffic):
            k = KINDS.index(one.name)
            fixed[k] = loads_of(network, together, np.where(of == i, size, 0.0), outside, 1)[0]
            wait[k] = one.latency
            if far:
                routes = site.routes(splits, network, one.exchange.flows)
                wait[k] += one.steps * path_latency(network, routes)
        degrees, number = self.space.degrees[key // 2], self._number(key)
        return Case(key, degrees, number, self._rows(key), sent, fixed, wait)

    def _number(self, key: int) -> Int[np.ndarray, " rows"]:
        return self._order[self._begun[key] : self._begun[key + 1]]

    def _rows(self, key: int) -> Rows:
        shape = self.space.shape_of[self._number(key)]
        return Rows(*(np.asarray(column)[shape] for column in self.space.columns))

    def _split(self, traffic: Sequence[Traffic]) -> tuple[Sent, Sent]:
        """Return what goes between servers and what stays in them, by position."""
        g = len(self.docks.local)
        kind = [np.full(len(t.size), KINDS.index(t.name)) for t in traffic]
        ends = [
            [self._place[np.asarray(getattr(t.exchange.flows, name))] for t in traffic]
            for name in ("src", "dst")
        ]
        none = np.zeros(0, np.int64)
        every = Sent(*(np.concatenate([none, *parts]) for parts in (
            kind, *ends, [t.size for t in traffic]
        )))  # fmt: skip
        crosses = every.src // g != every.dst // g
        return Sent(*(c[crosses] for c in every)), Sent(*(c[~crosses] for c in every))

    def _least(self, across: Sent, inside: Sent) -> Float[np.ndarray, " kinds"]:
        """Return the seconds of the busiest GPU and adapter, were all as fast as the best."""
        docks, g = self.docks, len(self.docks.local)
        within = self.fabric.cuts[0]
        of = within.of[docks.gpus]
        whole = [docks.out.sum(axis=1), docks.into.sum(axis=1)]
        most = np.zeros(_K)
        for sent, ends, rooms, local in (
            (inside, (inside.src, inside.dst), (within.out[of], within.into[of]), np.arange(g)),
            (across, (across.src, across.dst), [room[docks.nic] for room in whole], docks.local),
        ):  # fmt: skip
            n = int(local.max()) + 1
            for end, room in zip(ends, rooms, strict=True):
                best = np.zeros(n)
                np.maximum.at(best, local, room.max(axis=0))
                key = ((end // g) * n + local[end % g]) * _K + sent.kind
                load = np.bincount(key, sent.size, docks.n_servers * n * _K).reshape(-1, n, _K)
                took = np.divide(
                    load, best[:, None], out=np.zeros(load.shape), where=best[:, None] > 0
                )
                most = np.maximum(most, took.max(axis=(0, 1)))
        return most * (1 - 1e-12)


class Search:
    """Scores of plans, and better plans.

    Args:
        cases: The layouts.
        site: Docks and paths.
        seed: Of exchanges at random.
        most_steps: Of the gradient, that are taken in one go.

    Attributes:
        scores: Plans that were scored in closed form. `steps`: of the gradient. `solves`: exact.
    """

    def __init__(self, cases: Cases, site: Site, seed: int, most_steps: int):
        self.cases, self.site, self.seed, self.most_steps = cases, site, seed, most_steps
        self.sprayed = site.sprayed()
        self.scores = self.steps = self.solves = 0
        docks = cases.docks
        listed = np.arange(docks.n_servers)
        size = np.bincount(docks.kind)[docks.kind]
        spare = docks.n_servers * len(docks.local) > cases.n_gpus
        # With servers to spare, those that are together with most others come first.
        sorted_ = np.lexsort((listed, docks.kind, -size * spare))
        alike = np.array_equal(docks.kind[listed], docks.kind[sorted_])
        self.starts = [Plan(at, self.sprayed) for at in (listed, sorted_)][: 1 if alike else 2]

    @cached_property
    def _even(self) -> Mix:
        return self.site.mixed(self.sprayed)

    def mixed(self, plan: Plan) -> Mix:
        """Return what the splits of a plan put on links."""
        return self._even if plan.splits is self.sprayed else self.site.mixed(plan.splits)

    def open(self, key: int) -> Case:
        """Return the layouts of a key."""
        return self.cases.open(key, self.site, self.sprayed)

    def best(self, case: Case, wire: Float[np.ndarray, " kinds"]) -> tuple[float, int]:
        """Return the seconds of the fastest layout of a case, and its place."""
        self.scores += 1
        seconds = self.cases.form.seconds(case.rows, self.cases.wires(wire, case.wait))
        return float(seconds.min()), int(seconds.argmin())

    def score(self, case: Case, plan: Plan, mix: Mix | None = None) -> float:
        """Return the seconds of the fastest layout of a case, links shared as well as can be."""
        return self.best(case, self._wire(case, plan, self.mixed(plan) if mix is None else mix))[0]

    def _wire(self, case: Case, plan: Plan, mix: Mix) -> Float[np.ndarray, " kinds"]:
        bytes_ = self.site.between(case.sent, plan.at, _K)
        busy = self.site.busy(bytes_, mix).max(axis=0, initial=0.0)
        return np.maximum(busy, self._ends(case, plan, mix))

    def _ends(self, case: Case, plan: Plan, mix: Mix) -> Float[np.ndarray, " kinds"]:
        return np.maximum(self.site.ports(case.sent, plan.at, mix, _K), case.fixed)

    def placed(self, case: Case, plan: Plan, count: int, lot: Sequence[int], guided: bool) -> Plan:
        """Return a plan with servers exchanged while that helps, by so many scores.

        Exchanges come in the order of what the prices of busy links promise, and at random where
        that leads no further; not guided, at random from the start.

        Args:
            case: The layouts.
            plan: To begin with.
            count: Scores.
            lot: Numbers that seed the exchanges at random.
            guided: Whether prices say what to try.
        """
        mix, draw = self.mixed(plan), np.random.default_rng([self.seed, *lot])
        left, value = count, self.score(case, plan, mix)
        moves = self._moves(plan.at)
        while left > 0 and len(moves):
            if guided:
                pairs = self._promising(case, plan, mix)
            else:
                pairs = moves[draw.integers(len(moves), size=_TRIED)]
            moved = False
            for i, j in pairs[: min(_TRIED, left)].tolist():
                left -= 1
                at = plan.at.copy()
                at[[i, j]] = at[[j, i]]
                trial = Plan(at, plan.splits)
                if (found := self.score(case, trial, mix)) < value * (1 - 1e-12):
                    value, plan, moved = found, trial, True
                    break
            guided = guided and moved
            if moved:
                moves = self._moves(plan.at)
        return plan

    def _moves(self, at: Int[np.ndarray, " servers"]) -> Int[np.ndarray, "moves 2"]:
        """Return pairs of positions on unlike docks, one of them of the job."""
        kind = self.cases.docks.kind[at]
        i, j = np.nonzero(np.triu(kind[:, None] != kind))
        used = i < self.cases.n_gpus // len(self.cases.docks.local)
        return np.stack([i[used], j[used]], axis=1)

    def _promising(self, case: Case, plan: Plan, mix: Mix) -> Int[np.ndarray, "moves 2"]:
        """Return the exchanges that prices favour most, all other servers where they are."""
        price = self._prices(case, plan, mix)
        docks, site, sent = self.cases.docks, self.site, case.sent
        g, n_kinds = len(docks.local), len(docks.first)
        dock, of_kind = docks.of[plan.at].ravel(), docks.of[docks.first]
        cost = np.zeros(docks.n_servers * n_kinds)
        for one, other, turned in ((sent.src, sent.dst, False), (sent.dst, sent.src, True)):
            here, there = of_kind[:, one % g].T, dock[other][:, None]
            pair = site.table[there, here] if turned else site.table[here, there]
            paid = price[pair, sent.kind[:, None]] * sent.size[:, None]
            key = (one // g)[:, None] * n_kinds + np.arange(n_kinds)
            cost += np.bincount(key.ravel(), paid.ravel(), len(cost))
        cost = cost.reshape(-1, n_kinds)
        i, j = self._moves(plan.at).T
        kind = docks.kind[plan.at]
        now = cost[np.arange(len(kind)), kind]
        gain = cost[i, kind[j]] - now[i] + cost[j, kind[i]] - now[j]
        order = np.argsort(gain, kind="stable")[:_TRIED]
        return np.stack([i, j], axis=1)[order]

    def _prices(self, case: Case, plan: Plan, mix: Mix) -> Float[np.ndarray, "pairs_own kinds"]:
        """Return the seconds of a step that a byte of each kind costs between two docks."""
        busy = self.site.busy(self.site.between(case.sent, plan.at, _K), mix)
        if not busy.size:
            return np.zeros((self.site.n_pairs + 1, _K))
        top, ends = busy.max(axis=0), self._ends(case, plan, mix)
        slope = self._slopes(case, np.maximum(top, ends)) * (top >= ends)
        heat = np.exp(_SHARP * (busy / np.maximum(top, 1e-300) - 1))
        heat *= slope / heat.sum(axis=0) / self.site.capacity[: len(busy), None]
        return np.concatenate([mix.middle.T @ heat, np.zeros((1, _K))])

    def _slopes(self, case: Case, wire: Float[np.ndarray, " kinds"]) -> Float[np.ndarray, " kinds"]:
        """Return what a share more of every exchange adds to the step."""
        here = self.best(case, wire)[0]
        more = [self.best(case, wire * (1 + _STEP * (np.arange(_K) == k)))[0] for k in range(_K)]
        return (np.array(more) - here) / _STEP

    def routed(self, case: Case, plan: Plan, steps: int) -> Plan:
        """Return a plan with splits that follow the gradient of the step, if they are better."""
        site, mix = self.site, self.mixed(plan)
        if not site.n_pairs:
            return plan
        row = Rows(*(column[[self.best(case, self._wire(case, plan, mix))[1]]] for column in
                     case.rows))  # fmt: skip
        bytes_ = site.between(case.sent, plan.at, _K)[:-1]
        ends = case.fixed
        if max(site.docks.out.shape[1], site.docks.into.shape[1]) == 1:
            ends = self._ends(case, plan, mix)
        doublings = self.cases.wires(ends, case.wait).doublings
        tables, kind = self._tables, jnp.zeros(()).dtype
        device = lambda value: jnp.asarray(np.asarray(value), kind)
        pairs, width = plan.splits.shape
        logits = widened(np.log(np.maximum(plan.splits, 1e-4)), tables.valid.shape)
        bytes_ = widened(bytes_, (len(logits), _K))
        found = descend(
            device(logits), device(bytes_), device(ends), device(case.wait),
            jax.tree.map(device, row), device(doublings), tables,
            Pace.of(steps, self.most_steps, kind), self.cases.form,
        )  # fmt: skip
        self.steps += steps
        new = Plan(plan.at, site.whole(np.asarray(found)[:pairs, :width]))
        return min(new, plan, key=partial(self.score, case))

    @cached_property
    def _tables(self) -> Tables:
        site = self.site
        return Tables.of(site.hops, site.paths.valid, site.capacity, jnp.zeros(()).dtype)

    def exact(self, case: Case, plan: Plan) -> Choice:
        """Return the fastest layout of a case under a plan, by exact max-min rates."""
        cases, fabric, space = self.cases, self.cases.fabric, self.cases.space
        router = partial(self.site.routes, plan.splits)
        wire, wait = np.zeros(_K), np.zeros(_K)
        for one in cases.traffic(case.key, plan.at):
            phase = solved(fabric.network, one, router)
            k = KINDS.index(one.name)
            wire[k], wait[k] = phase.transfer, phase.latency
            self.solves += 1
        seconds = cases.form.seconds(case.rows, cases.wires(wire, wait))
        row = int(case.number[int(seconds.argmin())])
        slots = cases.docks.gpus[plan.at].ravel()[: cases.n_gpus]
        return space.choice(row, slots, float(seconds.min()))
