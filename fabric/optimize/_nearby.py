"""One solved exchange, and all that is near it: slopes backwards, tangents forwards, re-solves."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError
from fabric.network import Routes
from fabric.solvers import Completion, RateSolution, _compiled
from fabric.solvers._beyond import Beyond
from fabric.solvers._plan import compiled_plan
from fabric.training._insights import StepTime

FlowFloats = Float[np.ndarray, " flows"]
LinkFloats = Float[np.ndarray, " links"]
Links = Int[np.ndarray, " some"]
Rates = Sequence[np.ndarray]
"""(flows,) of each exchange."""

_AT_ONCE = 8_000_000
"""Numbers of all scenarios of a batch together."""


class Slopes(NamedTuple):
    """What one more unit of each parameter does to the objective, to first order."""

    capacity: LinkFloats
    weight: FlowFloats
    cap: FlowFloats


class Way(NamedTuple):
    """A direction: the tangent of the rates, None where none moves, and how far it holds."""

    tangent: FlowFloats | None
    reach: float


class Exchange:
    """Flows on links, solved.

    Args:
        routes: Which flow crosses which link.
        solution: Of them.
        capacity: (links,), byte/s, 0 where failed.
        weight: (flows,).
        cap: (flows,), byte/s.
    """

    def __init__(
        self, routes: Routes, solution: RateSolution, capacity: LinkFloats, weight: FlowFloats,
        cap: FlowFloats,
    ):  # fmt: skip
        self.routes, self.solution = routes, solution
        self.capacity, self.weight, self.cap = capacity, weight, cap
        self.beyond = Beyond(routes, capacity, weight, cap)
        self.rate = weight * self.beyond.level
        self.spare = np.ones(len(capacity))
        some = capacity > 0
        self.spare[some] = np.maximum(1 - self.beyond.load[some] / capacity[some], 0)

    def slopes(self, seed: FlowFloats) -> Slopes:
        """Return the derivatives of an objective, in one pass backwards through the bottlenecks.

        Args:
            seed: (flows,), the derivative of the objective in the rate of each row.

        At a tie those of one side, as `max_min_rates` selects it.
        """
        routes, level, weight = self.routes, self.beyond.level, self.weight
        stopper = np.asarray(self.solution.bottleneck)
        s = _compiled.structure(routes, level, stopper, self.capacity, weight, self.cap)
        n = routes.n_links
        stopped = ~s.capped & (s.bottleneck < n)
        right = np.bincount(s.bottleneck[stopped], (seed * weight)[stopped], n)
        price = _compiled.solve(routes, s, right, weight, transpose=True)
        price = np.where(s.active, price, 0.0)
        paid = self._along(price)
        own = seed - paid  # what a rate is worth beyond what its links cost
        return Slopes(price, np.where(stopped, own * level, 0.0), np.where(s.capped, own, 0.0))

    def _along(self, price: LinkFloats) -> FlowFloats:
        """Return (flows,), the prices of the links of each flow, summed by use."""
        routes = self.routes
        of = lambda values: np.asarray(values)
        if routes.n_parts:
            bundle, link, use = (
                of(routes.part_bundle), of(routes.part_link), of(routes.part_use)
            )  # fmt: skip
            real = use > 0
            price = np.bincount(bundle[real], use[real] * price[link[real]], routes.n_bundles)
        flow, at, use = of(routes.hop_flow), of(routes.hop_bundle), of(routes.hop_use)
        real = use > 0
        return np.bincount(flow[real], use[real] * price[at[real]], routes.n_flows)

    def way(self, links: Links, sign: float) -> Way:
        """Return what happens as all of some links get more or less capacity, in proportion."""
        if not self.beyond.full[links].any():
            return Way(None, float(self.spare[links].min(initial=1.0)) if sign < 0 else np.inf)
        direction = np.zeros(len(self.capacity))
        direction[links] = sign * self.capacity[links]
        tangent = self.beyond.tangents(direction)
        return Way(self.weight * tangent, self.beyond.reach(direction, tangent))

    def solved(
        self,
        capacity: Float[np.ndarray, "scenarios links"],
        weight: Float[np.ndarray, "some flows"],
        cap: Float[np.ndarray, "several flows"],
    ) -> Float[np.ndarray, "scenarios flows"]:
        """Return the rates of some scenarios, solved on all cores."""
        levels, _, _ = _compiled.solve_many(compiled_plan(self.routes), capacity, weight, cap)
        return levels * weight

    @property
    def at_once(self) -> int:
        """How many scenarios to solve together."""
        return max(_AT_ONCE // (len(self.capacity) + 3 * len(self.weight) + 1), 1)


def with_links_for_caps(one: Exchange) -> Exchange:
    """Return the same flows with a link of its own, behind all others, in place of every cap.

    A cap is a link that only its flow crosses, so that along caps too rates follow lines.
    """
    routes, flows = one.routes, np.flatnonzero(np.isfinite(one.cap))
    n, ones = len(flows), np.ones(len(flows))
    of = lambda values, at, ends: np.asarray(values)[np.asarray(at) < ends]  # without padding
    hops = lambda values: of(values, routes.hop_flow, routes.n_flows)
    links = routes.n_links + np.arange(n)
    at, parts = links, ((), (), ())
    if routes.n_parts:
        part = lambda values: of(values, routes.part_bundle, routes.n_bundles)
        at = routes.n_bundles + np.arange(n)
        parts = (
            np.r_[part(routes.part_bundle), at], np.r_[part(routes.part_link), links],
            np.r_[part(routes.part_use), ones],
        )  # fmt: skip
    wider = Routes.from_bundles(
        np.r_[hops(routes.hop_flow), flows], np.r_[hops(routes.hop_bundle), at],
        np.r_[hops(routes.hop_use), ones], *parts, n_flows=routes.n_flows,
        n_bundles=routes.n_bundles + n, n_links=routes.n_links + n, flow_of=routes.flow_of,
    )  # fmt: skip
    capacity = np.r_[one.capacity, one.cap[flows]]
    return Exchange(wider, one.solution, capacity, one.weight, np.full(routes.n_flows, np.inf))


class _OnlyRates:
    """What an objective gets to see of a solution: all else is not known off the solution."""

    def __init__(self, rates: Any):
        self.rates = rates

    def __getattr__(self, name: str) -> Any:
        message = (
            f"The objective of `linearize` reads `{name}` of a solution. It jumps where the "
            f"bottleneck changes; use `rates`, the only field that moves smoothly."
        )
        raise NotImplementedError(message)


class Aim:
    """An objective of the rates of one exchange.

    Args:
        objective: A name, a `Completion`, or a function of a solution.
        exchange: With its rates.

    Attributes:
        name: Of the objective.
        slowest: Whether it is the one of that name, and no function called so.
    """

    def __init__(
        self, objective: str | Completion | Callable[[RateSolution], Any], exchange: Exchange
    ):
        self._routes, self._kind = exchange.routes, exchange.solution.rates.dtype
        self._per_flow = exchange.routes.per_flow  # looked up once: that takes longer than the sum
        self._function = self._size = None
        self.slowest = isinstance(objective, str) and objective == "slowest"
        if isinstance(objective, Completion):
            self.name, self._size = "completion", np.asarray(objective.size, np.float64)
        elif isinstance(objective, str):
            self.name = objective
        else:
            self.name = getattr(objective, "__name__", "objective").replace("<lambda>", "objective")
            self._function = jax.jit(lambda rates: objective(cast(RateSolution, _OnlyRates(rates))))

    def _device(self, rates: FlowFloats) -> jax.Array:
        return jnp.asarray(rates, self._kind)

    def value(self, rates: Rates) -> float:
        """Return the objective at some rates."""
        if self._function is not None:
            try:
                found = np.asarray(self._function(self._device(rates[0])))
            except jax.errors.JAXTypeError as error:
                message = (
                    f"The objective of `linearize` is not one that JAX can differentiate: use "
                    f"`jax.numpy` in it, and no branches on rates. JAX says: "
                    f"{str(error).splitlines()[0]}"
                )
                raise ModelError(message) from None
            if found.shape != () or not np.issubdtype(found.dtype, np.floating):
                message = (
                    f"The objective of `linearize` returned {found.dtype} of shape {found.shape}, "
                    f"but one floating-point number is needed."
                )
                raise ModelError(message)
            return float(found)
        pairs = np.asarray(self._per_flow(rates[0]))
        if self._size is not None:
            return float(self._taken(pairs).max(initial=0.0))
        if not len(pairs):
            return 0.0
        return float({"slowest": np.min, "mean": np.mean, "total": np.sum}[self.name](pairs))

    def _taken(self, pairs: FlowFloats) -> FlowFloats:
        assert self._size is not None
        zero, busy = np.zeros(len(pairs)), self._size > 0
        with np.errstate(divide="ignore"):
            return np.divide(self._size, pairs, out=zero, where=busy)

    def seeds(self, rates: Rates) -> list[np.ndarray]:
        """Return the derivative in the rate of every row; of one of those that share an extreme."""
        if self._function is not None:
            return [np.asarray(jax.grad(self._function)(self._device(rates[0])), np.float64)]
        pairs = np.asarray(self._per_flow(rates[0]))
        seed = np.zeros(len(pairs))
        if self._size is not None:
            taken = self._taken(pairs)
            last = int(taken.argmax())
            if pairs[last] > 0:
                seed[last] = -taken[last] / pairs[last]
        elif self.name == "slowest":
            seed[int(pairs.argmin())] = 1.0
        else:
            seed[:] = 1 / len(pairs) if self.name == "mean" else 1.0
        return [seed if self._routes.row_is_flow else seed[np.asarray(self._routes.flow_of)]]


class StepAim:
    """The time of a step, of the rates of all its exchanges.

    Args:
        total: Seconds of a step from seconds on the wire.
        parts: The completion of each exchange.
    """

    name, slowest = "step time", False

    def __init__(self, total: StepTime, parts: list[Aim]):
        self._total, self._parts = total, parts

    def _transfers(self, rates: Rates) -> Float[np.ndarray, " phases"]:
        found = [part.value([own]) for part, own in zip(self._parts, rates, strict=True)]
        return np.array(found, np.float64)

    def value(self, rates: Rates) -> float:
        """Return the seconds of a step: without end if an exchange has none."""
        transfers = self._transfers(rates)
        return float(self._total.seconds(transfers)) if np.isfinite(transfers).all() else np.inf

    def seeds(self, rates: Rates) -> list[np.ndarray]:
        """Return the derivative in the rate of every row of every exchange."""
        at = self._total.seconds
        slope = np.asarray(jax.grad(at)(jnp.asarray(self._transfers(rates))), np.float64)
        each = zip(slope, self._parts, rates, strict=True)
        return [s * part.seeds([own])[0] for s, part, own in each]
