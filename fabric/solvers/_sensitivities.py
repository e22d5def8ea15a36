"""`sensitivities`: what one percent more or less of some links does to an objective."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError, nearest
from fabric._typing import PerFlow
from fabric.network import Network, Routes, is_traced
from fabric.solvers._beyond import NEAR, Beyond, Lines
from fabric.solvers._certify import live_capacity
from fabric.solvers._dual_trace import propagate
from fabric.solvers._max_min import max_min_rates
from fabric.solvers._one_sided import tangents_of
from fabric.solvers._sensitivity_table import Sensitivities, Sensitivity, within
from fabric.solvers._solution import RateSolution

BY = ("tier", "class", "node", "link", "cable")
"""What links are taken together by."""

OBJECTIVES = ("slowest", "mean", "total")
"""Objectives that go by a name."""


@dataclass(frozen=True)
class Completion:
    """An objective: seconds until the last flow is done if rates stay, the most of size / rate.

    Attributes:
        size: (pairs,), bytes of every flow, queue pairs summed. Flows of size 0 do not count.

    Examples:
        Two flows share a link of 2 byte/s; one has more to carry.

        >>> import fabric as fb
        >>> routes = fb.Routes.from_paths([[0], [0]], n_links=1)
        >>> table = sensitivities(
        ...     fb.Network([2.0]), routes, Completion(np.array([3.0, 5.0])), by="link"
        ... )
        >>> table.value, table[0].gain_per_plus_1pct
        (5.0, -1.0)
    """

    size: Float[np.ndarray, " pairs"]


MOST_ENTRIES = 4_000_000_000
"""Flows, hops and parts that are read in all directions together; a minute or two."""

Links = Int[np.ndarray, " some"]


def sensitivities(
    network: Network,
    routes: Routes,
    objective: str | Completion | Callable[[RateSolution], Any] = "slowest",
    by: str = "tier",
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    top: int | None = None,
) -> Sensitivities:
    """Return what one percent more or less capacity of each group of links does to an objective.

    Routes stay as they are. At a tie more and less differ, and the table shows both: in a Clos
    without oversubscription one percent more of a tier that shares its place as bottleneck buys
    nothing, one percent less costs one percent.

    Args:
        network: The links, with labels unless `by` is "link".
        routes: Which flow crosses which link.
        objective: A name, a `Completion` or a function. "slowest", "mean" and "total" are of the
            rates of flows, queue pairs summed. A function takes a `RateSolution` and returns one
            number from its `rates`, as `one_sided` wants it.
        by: "tier"; "class", links of one tier and one nominal capacity; "node", all links at a
            switch; "cable", both directions; "link", one direction.
        weights: (flows,), as given to the solve. Default: those that `routes` carries.
        caps: (flows,), byte/s, as given to the solve. Default: those that `routes` carries.
        top: Keep this many rows. Default: all.

    Returns:
        A table. Gains and losses are in percent of the objective per percent of the capacity of
        every link of the group; both are exact, one for each direction, ties included. They stay
        so within a reach, in percent of that capacity: up to the next change of bottleneck
        structure anywhere, for a function; of the objective itself where that is "slowest", and
        never less than both for the other names. A function of one's own may also bend by itself.
        By node, cable and link only groups with a full link are listed, by `left_out` with what
        the others have to spare.

    Raises:
        ModelError: If `by` or the name of the objective is unknown, if the objective is no number
            or 0, so that percent of it mean nothing, or if labels are missing.
        NotImplementedError: Inside a JAX transformation, or if a function has a kink without a
            rule.

    Precision: float64, whatever the type of the capacities. Levels nearer than 1e-12, relative,
        and than the rounding of their sums, compare as equal; tangents nearer than 1e-9 of the
        largest count as the same when the reach is worked out.
    Derivatives: None; on the host. Inside a transformation use `one_sided`.
    Cost: Two solves, and about one more per group and direction. Groups beyond a total of 4e9
        flows, hops and parts are left out, and `left_out` says how many: of full links those that
        fill first are kept. "slowest" of flows of one weight needs no further solve.

    Examples:
        Two leaves with as much speed up as down: hosts and spines hold the flows together.

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2, capacity="1GB/s")
        >>> routes = fb.routing.spray(net, fb.traffic.ring(net.hosts[[0, 2, 1, 3]]))
        >>> print(sensitivities(net, routes))
        tier        links  +1 %: slowest  -1 %: slowest  exact within
        host            8            0 %           -1 %         100 %
        leaf-spine      8            0 %           -1 %         100 %
    """
    if is_traced(network, routes, weights, caps):
        message = (
            "`sensitivities` works on the host and makes a table; inside a JAX transformation use "
            "`one_sided`, or `jax.grad` through `max_min_rates`."
        )
        raise NotImplementedError(message)
    if by not in BY:
        message = f"`sensitivities(by='{by}')` is no grouping. {nearest(by, BY)}"
        raise ModelError(message)
    if isinstance(objective, str) and objective not in OBJECTIVES:
        message = (
            f"`sensitivities(objective='{objective}')` is no objective. "
            f"{nearest(objective, OBJECTIVES)} A function of a solution is one too."
        )
        raise ModelError(message)
    if top is not None and top < 0:
        message = f"`sensitivities(top={top})` needs a number of rows of 0 or more."
        raise ModelError(message)
    solution = max_min_rates(network, routes, weights=weights, caps=caps)
    weight = np.asarray(routes.weight if weights is None else weights, np.float64)
    cap = np.asarray(routes.cap if caps is None else caps, np.float64)
    beyond = Beyond(routes, live_capacity(network), weight, cap)
    goal = _Goal(objective, routes, solution, beyond)
    alike = routes.row_is_flow and bool(np.all(weight == weight[:1]))
    simple = objective == "slowest" and alike
    find = Slowest(beyond.lines, goal.value) if simple else _Along(beyond, goal)

    groups, left_out = _candidates(link_groups(network, by), find, by)
    rows = [_row(group, find, goal.value) for group in groups]
    # Equal numbers differ by roundings, which must not settle their order.
    rounded = lambda x: float(f"{x:.9e}")
    by_worth = lambda row: (-rounded(row.gain_per_plus_1pct), -rounded(row.loss_per_minus_1pct))
    rows.sort(key=by_worth)
    if top is not None and len(rows) > top:
        left_out.append(f"{len(rows) - top:,} more rows, of less gain and loss, are not shown.")
        rows = rows[:top]
    return Sensitivities(by, goal.name, goal.value, tuple(rows), tuple(left_out))


class _Group:
    """Links that change together; names are made when asked for."""

    def __init__(self, name: Callable[[], str], links: Links):
        self._name, self.links = name, links

    @property
    def key(self) -> str:
        return self._name()


def link_groups(network: Network, by: str) -> list[_Group]:
    """Return the live links of every group; groups without one are dropped."""
    live = np.flatnonzero(live_capacity(network) > 0)
    if by == "link":
        return [_Group(lambda l=l: network.link_name(int(l)), np.array([l])) for l in live]
    labels = network.labels
    if by == "node":
        ends = [np.asarray(end)[live] for end in (labels.src, labels.dst)]
        code, of = np.concatenate(ends), np.concatenate([live, live])
        code, of = code[labels.forwards[code]], of[labels.forwards[code]]
        name = lambda first, node: labels.node_name(int(node))
    elif by == "cable":
        code, of = labels.cable_of[live], live
        name = lambda first, cable: " - ".join(network.link_name(int(first)).split("->"))
    else:
        code, of = labels.tier_of[live], live
        name = lambda first, tier: labels.tiers[int(tier)]
    if by == "class":
        speed = np.asarray(network.capacity, np.float64)
        code = np.unique(np.stack([code, speed[live]]), axis=1, return_inverse=True)[1].reshape(-1)
        name = lambda first, _: (
            f"{labels.tiers[labels.tier_of[first]]} {_port(float(speed[first]))}"
        )
    order = np.lexsort((of, code))
    code, of = code[order], of[order]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    pieces = np.split(of, starts[1:]) if len(starts) else []
    return [
        _Group(lambda f=piece[0], c=value: name(f, c), piece)
        for piece, value in zip(pieces, code[starts], strict=True)
    ]


def _port(capacity: float) -> str:
    """Return byte/s as the speed of a port.

    Examples:
        >>> _port(50e9), _port(1.25e6)
        ('400 Gb/s', '0.01 Gb/s')
    """
    return f"{capacity * 8 / 1e9:g} Gb/s"


class _Goal:
    """The objective at the solution, and along a tangent of the levels."""

    def __init__(
        self,
        objective: str | Completion | Callable[[RateSolution], Any],
        routes: Routes,
        solution: RateSolution,
        beyond: Beyond,
    ):
        self._routes, self._weight = routes, beyond.weight
        self._rate = np.asarray(routes.per_flow(beyond.weight * beyond.level))
        self._named = not callable(objective)
        if isinstance(objective, Completion):
            self.name, self._along, self._size = "completion", self._completion, objective.size
            found = self._along(np.zeros_like(self._rate))[0]
        elif isinstance(objective, str):
            self.name, self._along = objective, getattr(self, f"_{objective}")
            found = self._along(np.zeros_like(self._rate))[0] if len(self._rate) else 0.0
        else:
            self.name = getattr(objective, "__name__", "objective").replace("<lambda>", "objective")
            found = np.asarray(objective(solution))
            if found.shape != () or not np.issubdtype(found.dtype, np.floating):
                message = (
                    f"The objective of `sensitivities` returned {found.dtype} of shape "
                    f"{found.shape}, but one floating-point number is needed."
                )
                raise ModelError(message)
            along = lambda s, t: propagate(objective, (s,), tangents_of(s, t))[1]
            slope, kind = jax.jit(along), solution.rates.dtype
            self._function = lambda rates: float(slope(solution, jnp.asarray(rates, kind)))
        self.value = float(found)
        if self.value == 0 or not math.isfinite(self.value):
            message = (
                f"The objective '{self.name}' of `sensitivities` is {self.value:g}, so percent of "
                f"it mean nothing. Use another, such as 'mean', or `one_sided` for the derivative."
            )
            raise ModelError(message)

    def along(self, tangent: Float[np.ndarray, " flows"]) -> tuple[float, float]:
        """Return the derivative, and the step at which the objective itself bends.

        Args:
            tangent: (flows,), of the levels.
        """
        moved = self._weight * tangent
        if not self._named:
            return self._function(moved), math.inf
        return self._along(np.asarray(self._routes.per_flow(moved)))[1:]

    def _total(self, moved: Float[np.ndarray, " pairs"]) -> tuple[float, float, float]:
        return float(self._rate.sum()), float(moved.sum()), math.inf

    def _mean(self, moved: Float[np.ndarray, " pairs"]) -> tuple[float, float, float]:
        return float(self._rate.mean()), float(moved.mean()), math.inf

    def _slowest(self, moved: Float[np.ndarray, " pairs"]) -> tuple[float, float, float]:
        least = self._rate.min()
        tied = self._rate <= least * (1 + NEAR)
        slope = moved[tied].min()
        # Another flow becomes the slowest where it draws level.
        below = ~tied & (moved < slope)
        meets = (self._rate[below] - least) / (slope - moved[below])
        return float(least), float(slope), float(meets.min(initial=math.inf))

    def _completion(self, moved: Float[np.ndarray, " pairs"]) -> tuple[float, float, float]:
        """Return value, slope and reach; the quotient bends by itself, whatever the links do."""
        sent = self._size > 0
        if not sent.any():
            return 0.0, 0.0, math.inf
        with np.errstate(divide="ignore"):
            taken = self._size[sent] / self._rate[sent]
        last = taken.max()
        tied = taken >= last * (1 - NEAR)
        slope = (
            -(taken * moved[sent] / self._rate[sent])[tied] if np.isfinite(last) else np.zeros(1)
        )
        return float(last), float(slope.max()), math.inf


@dataclass(frozen=True)
class _Change:
    """Along a direction: the derivative of the objective, and the step up to which it holds."""

    slope: float
    reach: float


class _Along:
    """Changes of any objective, by the tangents of all levels."""

    def __init__(self, beyond: Beyond, goal: _Goal):
        self._beyond, self._goal = beyond, goal
        self.touched = beyond.full
        self.work = 2 * beyond.work

    def __call__(self, links: Links, sign: float) -> _Change:
        if not self.touched[links].any():
            return _Change(0.0, self.spare(links) if sign < 0 else math.inf)
        direction = np.zeros(len(self._beyond.capacity))
        direction[links] = sign * self._beyond.capacity[links]
        tangent = self._beyond.tangents(direction)
        slope, bend = self._goal.along(tangent)
        return _Change(slope, min(bend, self._beyond.reach(direction, tangent)))

    def spare(self, links: Links) -> float:
        """Return what all of some links can lose, as a share of their capacity, unnoticed."""
        return float((1 - self._beyond.load[links] / self._beyond.capacity[links]).min())

    def first(self, links: Links) -> float:
        """Return what groups are taken in order of: the level at which their first link fills."""
        return float(self._beyond.top[links[self.touched[links]]].min(initial=math.inf))


class Slowest:
    """Changes of the slowest of flows of one weight: the least share of a link, or a cap.

    All flows grow alike until the first link fills or the first cap is reached, so that the
    lowest level is the least of the shares: a minimum of lines along every direction.
    """

    work = 0

    def __init__(self, lines: Lines, value: float):
        self._lines, self._value = lines, value
        self._least = min(float(lines.share.min(initial=math.inf)), lines.cap)
        self.touched: Bool[np.ndarray, " links"] = lines.share <= self._least * (1 + lines.blur)
        self._many = int(self.touched.sum()) + int(lines.cap <= self._least * (1 + NEAR))

    def __call__(self, links: Links, sign: float) -> _Change:
        inside = int(self.touched[links].sum())
        if sign < 0:
            return _Change(-self._value, 1.0) if inside else _Change(0.0, self.spare(links))
        if inside < self._many:
            return _Change(0.0, math.inf)
        others = self._lines.share.copy()
        others[links] = math.inf
        rival = min(float(others.min(initial=math.inf)), self._lines.cap)
        return _Change(self._value, rival / self._least - 1)

    def spare(self, links: Links) -> float:
        """Return what all of some links can lose, as a share of their capacity, unnoticed."""
        return 1 - self._least / float(self._lines.share[links].min())

    def first(self, links: Links) -> float:
        """Return what groups are taken in order of: all alike here."""
        return 0.0


def _candidates(
    groups: list[_Group], find: _Along | Slowest, by: str
) -> tuple[list[_Group], list[str]]:
    """Return the groups to work out, and what is left out and why."""
    left_out: list[str] = []
    if by in ("tier", "class"):
        return groups, left_out
    idle = [group for group in groups if not find.touched[group.links].any()]
    if idle:
        what = "hold no slowest flow" if isinstance(find, Slowest) else "have no full link"
        spare = find.spare(np.concatenate([group.links for group in idle]))
        left_out.append(
            f"{len(idle):,} of {len(groups):,} {by}s {what}: more buys nothing, less costs nothing "
            f"within {within(100 * spare)}."
        )
    kept = [group for group in groups if find.touched[group.links].any()]
    most = max(MOST_ENTRIES // find.work, 1) if find.work else len(kept)
    if len(kept) > most:
        kept = sorted(kept, key=lambda group: find.first(group.links))
        left_out.append(
            f"{len(kept) - most:,} of {len(kept):,} {by}s with a full link are left out, "
            f"since each takes a solve: those that fill last. Group them by tier or class."
        )
        kept = kept[:most]
    return kept, left_out


def _row(group: _Group, find: _Along | Slowest, value: float) -> Sensitivity:
    more, less = find(group.links, 1.0), find(group.links, -1.0)
    # Both as a share: of the objective per share of the capacity.
    relative = lambda slope: slope / abs(value) if slope else 0.0
    return Sensitivity(
        key=group.key,
        links=len(group.links),
        gain_per_plus_1pct=relative(more.slope),
        loss_per_minus_1pct=relative(-less.slope),
        exact_within_plus_pct=100 * more.reach,
        exact_within_minus_pct=100 * min(less.reach, 1.0),
    )
