"""`compress` and `Quotient`: a symmetric problem solved on its classes, without any loss."""

import dataclasses
import functools
import numbers
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray, PerFlow
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced
from fabric.network._checks import capacity_faults, float_array, frozen, number_faults
from fabric.solvers._certify import live_capacity
from fabric.solvers._inputs import per_flow, value_faults
from fabric.solvers._levels import Mean
from fabric.solvers._max_min import max_min_rates
from fabric.solvers._quotient_batch import batch, dense_use, is_array, rates_of_many
from fabric.solvers._quotient_lift import lifted
from fabric.solvers._solution import RateSolution
from fabric.solvers._symmetry import LEAST, Partition, Values, find, values_of
from fabric.solvers._symmetry_graph import graph_of


def compress(
    network: Network,
    routes: Routes,
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    sizes: PerFlow | None = None,
    least: float = LEAST,
) -> "Quotient":
    """Return the problem of classes of flows on classes of links that a symmetric problem is.

    Flows that no solve can tell apart get the same rate. Colour refinement finds them: links are
    coloured by capacity, flows by weight, cap and size; then, in turn, flows by the set of colours
    they cross and links by the sum of uses of each colour, until no colour splits any more. That
    the result is exact is checked entry by entry.

    Args:
        network: The links.
        routes: Which flow crosses which link.
        weights: (flows,). Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        sizes: (flows,), bytes. Where given, flows of a class have the same size too, and end
            together. Default: sizes tell no flows apart.
        least: Flows per class below which it gives up. 1 never does so.

    Returns:
        A `Quotient`. It stays with the routes: the same call again costs a comparison of values.

    Raises:
        InfeasibleError: If there is less symmetry than `least` asks for, with the ratio found:
            paths chosen by hash have none. Also if refinement takes more than 4e9 entries.
        ModelError: If a value is out of range or an array has another length.

    Cost: O(hops + parts + links + flows) per round of refinement, and a few rounds; 16 bytes per
        flow. Host only.

    Examples:
        Three flows from one port to three others:

        >>> import fabric as fb
        >>> net = fb.Network([6.0, 5.0, 5.0, 5.0])
        >>> routes = fb.Routes.from_paths([[0, 1], [0, 2], [0, 3]], n_links=4)
        >>> quotient = compress(net, routes)
        >>> quotient.n_flow_classes, quotient.n_link_classes
        (1, 2)
        >>> quotient.lift(quotient.solve()).rates.tolist()
        [2.0, 2.0, 2.0]

    References:
        M. Grohe, K. Kersting, M. Mladenov and E. Selman, Dimension reduction via colour
        refinement, ESA 2014.
    """
    check_link_counts(network, routes, "compress")
    if is_traced(network, routes, weights, caps, sizes):
        message = (
            "`compress` looks at values, but inside this JAX transformation they are traced. "
            "Compress outside of it, and call `quotient.solve(capacity)` inside."
        )
        raise NotImplementedError(message)
    if isinstance(least, bool) or not isinstance(least, numbers.Real) or not least >= 1:
        message = f"`compress(least={least!r})` needs a number of flows per class, 1 or more."
        raise ModelError(message)
    weights = per_flow("weights", weights, routes.weight, routes, "compress")
    caps = per_flow("caps", caps, routes.cap, routes, "compress")
    size = None
    if sizes is not None:
        size = np.asarray(per_flow("sizes", sizes, routes.cap, routes, "compress"))
    kind = canonical(np.dtype(network.capacity.dtype))
    faults = value_faults(network, routes, weights, caps, kind)
    if size is not None:
        faults += number_faults("sizes=...", "size in bytes", size, zero=True, nan=True)
    raise_faults(faults)
    values = values_of(network, routes, weights, caps, size)
    partition = find(routes, values, least)
    class_capacity = values.capacity[partition.first_row].astype(kind)
    return Quotient(
        Network(class_capacity), partition.routes_with(values.weight, values.cap),
        _Origin(network, routes, values, partition, least),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class _Origin:
    """What was compressed."""

    network: Network
    routes: Routes
    values: Values
    partition: Partition
    least: float


class ClassSolution(RateSolution):
    """A solution of classes that knows what capacities it is of, so that `lift` can tell.

    Attributes:
        capacity: (link classes,), byte/s.
        link_capacity: (links,), byte/s, of a network of all links; None where classes say it all.
    """

    capacity: AnyArray
    link_capacity: AnyArray | None

    @classmethod
    def of(
        cls, solution: RateSolution, capacity: AnyArray, link_capacity: AnyArray | None
    ) -> "ClassSolution":
        """Return a solution with the capacities that it is of."""
        held = {f.name: getattr(solution, f.name) for f in dataclasses.fields(solution)}
        return cls(**held, capacity=capacity, link_capacity=link_capacity)

    def is_at(self, capacity: AnyArray) -> bool:
        """Return whether these are the capacities, as far as the type of the rates tells."""
        kind = self.rates.dtype
        return np.array_equal(np.asarray(self.capacity, kind), np.asarray(capacity, kind))


@dataclasses.dataclass(frozen=True, eq=False)
class Quotient:
    """Classes of flows on classes of links: a max-min problem of its own, with the same rates.

    The usage of a link class by a flow class is the use of one link by all flows of the class
    together. So a flow class has the rate of one of its flows, and a link class the capacity of
    one of its links, and everything that takes a network and routes takes those of the classes:
    `max_min_rates`, `one_sided`, `sensitivities`, and any transformation of JAX.

    Attributes:
        network: Of classes; `capacity` (link classes,), byte/s of one link.
        routes: Of classes; `weight` and `cap` (flow classes,) of one flow.

    Made by `compress`.

    Examples:
        Two links alike, with two flows each: the sum of rates per capacity of both links.

        >>> import jax
        >>> import fabric as fb
        >>> routes = fb.Routes.from_paths([[0], [0], [1], [1]], n_links=2)
        >>> quotient = fb.compress(fb.Network([6.0, 6.0]), routes)
        >>> total = lambda c: quotient.to_flows(quotient.solve(c).rates).sum()
        >>> jax.grad(total)(quotient.network.capacity).tolist()
        [2.0]
    """

    network: Network
    routes: Routes
    _of: _Origin = dataclasses.field(repr=False)

    @property
    def n_flow_classes(self) -> int:
        """Number of classes of flows."""
        return self.routes.n_flows

    @property
    def n_link_classes(self) -> int:
        """Number of classes of links; those that carry nothing are one."""
        return self.routes.n_links

    @property
    def flow_class(self) -> Int[np.ndarray, " flows"]:
        """(flows,), the class of every flow."""
        return self._of.partition.flow_class

    @functools.cached_property
    def link_class(self) -> Int[np.ndarray, " links"]:
        """(links,), the class of every link.

        With splits, links that always fill together count as one, as large as its smallest.
        """
        return frozen(graph_of(self._of.routes).to_links(self._of.partition.row_class))

    @functools.cached_property
    def flow_count(self) -> Int[np.ndarray, " flow_classes"]:
        """(flow classes,), how many flows each has."""
        return frozen(np.bincount(self.flow_class, minlength=self.n_flow_classes))

    @functools.cached_property
    def link_count(self) -> Int[np.ndarray, " link_classes"]:
        """(link classes,), how many links each has."""
        return frozen(np.bincount(self.link_class, minlength=self.n_link_classes))

    @property
    def first_flow(self) -> Int[np.ndarray, " flow_classes"]:
        """(flow classes,), a flow of each."""
        return self._of.partition.first_flow

    @functools.cached_property
    def first_link(self) -> Int[np.ndarray, " link_classes"]:
        """(link classes,), a link of each: what happens to it happens to any other alike."""
        return frozen(np.unique(self.link_class, return_index=True)[1])

    def solve(
        self,
        capacity: Network | AnyArray | Sequence[float] | None = None,
        *,
        derivative: str | Mean = "select",
        throw: bool = True,
    ) -> RateSolution:
        """Return the solution of the classes; its rates are per flow of a class.

        Args:
            capacity: (link classes,), byte/s of one link of each class, traced; or a `Network` of
                all links, if its capacities are equal within classes. Default: as compressed.
            derivative: Static; as in `max_min_rates`.
            throw: Static. Raise unless the solve converged.

        Raises:
            ModelError: If there is not one capacity per class, a value is out of range, or the
                network has different capacities within a class; then use `refine`.

        Derivatives: As of `max_min_rates`; that to the capacity of a class is along equal changes
            of all its links. Ties within a class are gone, ties between classes stay.
        Cost: That of a problem with as many flows and links as there are classes.
        """
        of_links = None
        if isinstance(capacity, Network):
            other, capacity = capacity, self.capacity_of(capacity)
            of_links = live_capacity(other) if self._merges else None
        network = self.network if capacity is None else self._with_capacity(capacity)
        method = "auto" if is_traced(network) else "compiled"
        solution = max_min_rates(
            network, self.routes, method=method, derivative=derivative, throw=throw
        )
        return ClassSolution.of(solution, network.capacity, of_links)

    def solve_many(
        self, capacity: AnyArray | Sequence[Any]
    ) -> Float[AnyArray, "batch flow_classes"]:
        """Return the rates of many problems that differ in the capacities of the classes.

        Args:
            capacity: (batch, link classes), byte/s.

        Returns:
            (batch, flow classes), byte/s per flow of a class; infinite where nothing stops it. NaN
            for a problem with a traced capacity that is negative or NaN.

        Raises:
            ModelError: If there is not one capacity per class, or a concrete one is out of range.
            InfeasibleError: If there are too many classes to write out their usage.

        Derivatives: Forward mode is not exact at ties and there is no reverse mode: use `solve`
            under `jax.vmap`.
        Precision: Of the type of `capacity`.
        Cost: Two products of (batch, classes) with (classes, classes) for every level of the
            problem that has most of them; small quotients are solved hundreds of thousands a
            second on a CPU.

        Examples:
            >>> import fabric as fb
            >>> routes = fb.Routes.from_paths([[0], [0]], n_links=1)
            >>> quotient = fb.compress(fb.Network([6.0]), routes)
            >>> quotient.solve_many([[6.0], [8.0], [0.0]]).tolist()
            [[3.0], [4.0], [0.0]]
        """
        capacity = batch("solve_many(capacity)", capacity)
        self._check_classes("solve_many(capacity)", np.shape(capacity), 2)
        n = self.n_link_classes
        if not is_traced(capacity):
            name = lambda i: f"class {i % n} of problem {i // n}"
            flat = np.asarray(capacity).reshape(-1)
            raise_faults(capacity_faults("solve_many(capacity)", flat, name))
        return rates_of_many(self.routes, self._use, capacity)

    def capacity_of(self, network: Network) -> Float[np.ndarray, " link_classes"]:
        """Return the capacities of the classes in another network of the same links.

        Raises:
            ModelError: If links of one class have different capacities there.
        """
        of = self._of
        if is_traced(network):
            message = (
                "`Quotient.solve(network)` looks at capacities, but inside this JAX transformation "
                "they are traced. Give one capacity per link class: `quotient.solve(capacity)`."
            )
            raise NotImplementedError(message)
        check_link_counts(network, of.routes, "Quotient.capacity_of")
        values = of.values._replace(capacity=graph_of(of.routes).least(live_capacity(network)))
        _, split = of.partition.split(values)
        if len(split):
            members = [int(np.flatnonzero(self.link_class == c)[0]) for c in split]
            message = (
                f"This network has different capacities within {len(split):,} of "
                f"{self.n_link_classes:,} link classes, those of "
                f"{some(members, name=network.link_name)}. Use `quotient.refine(network)`."
            )
            raise ModelError(message)
        return values.capacity[of.partition.first_row]

    def refine(self, network: Network) -> "Quotient":
        """Return the quotient of the same flows on a network of other capacities.

        It is what `compress` returns there: the classes are those that these capacities ask for,
        finer or coarser than here. Where the same links are told apart, they are the same classes.

        Raises:
            InfeasibleError: As of `compress`.
        """
        of = self._of
        return compress(
            network, of.routes, weights=of.values.weight, caps=of.values.cap,
            sizes=of.values.size, least=of.least,
        )  # fmt: skip

    def lift(self, solution: RateSolution, network: Network | None = None) -> RateSolution:
        """Return the solution of every flow from that of the classes.

        Args:
            solution: Of `solve`, concrete.
            network: The network that was solved. With splits it says which of the links that
                always fill together is full. Default: the one that `solve` was given, or the one
                that was compressed.

        Returns:
            What `max_min_rates` returns for all flows, bottlenecks and tie margin included.

        Raises:
            ModelError: If the solution has another number of classes, or is of other capacities
                than the network; also if, with splits, `solve` was given capacities of classes
                that are not those compressed, and no network is given here.

        Cost: O(hops); host only. For rates alone, differentiable, use `to_flows(solution.rates)`.
        """
        if is_traced(solution):
            message = (
                "`Quotient.lift` works on the host, but inside this JAX transformation the "
                "solution is traced. Use `quotient.to_flows(solution.rates)`."
            )
            raise NotImplementedError(message)
        self._check_classes("lift(solution)", np.shape(solution.saturated), 1)
        of = self._of
        capacity = self._solved_for(solution, network)
        return lifted(of.partition, graph_of(of.routes), self.routes, solution, capacity)

    def to_flows(self, values: AnyArray | Sequence[Any]) -> AnyArray:
        """Return (..., flows), of every flow the value of its class; differentiable.

        Args:
            values: (..., flow classes), as of `solve(...).rates` or `solve_many`.

        Raises:
            ModelError: If the last axis has not one value for each class of flows.
        """
        values = values if isinstance(values, np.ndarray) else jnp.asarray(values)
        if values.ndim == 0 or values.shape[-1] != self.n_flow_classes:
            message = (
                f"`to_flows(values)` needs one value for each of {self.n_flow_classes:,} flow "
                f"classes on its last axis, but has shape {values.shape}."
            )
            raise ModelError(message)
        return values[..., self.flow_class]

    def link_gradient(self, gradient: AnyArray | Sequence[float]) -> Float[np.ndarray, " links"]:
        """Return a gradient per link from one per class: every link gets an equal share.

        Along any direction that is equal within classes both say the same. Of links that always
        fill together only the smallest have a share.

        Args:
            gradient: (link classes,), to the capacity of a class.
        """
        of, graph = self._of, graph_of(self._of.routes)
        gradient = float_array("link_gradient(gradient)", gradient)
        self._check_classes("link_gradient(gradient)", gradient.shape, 1)
        rows = np.bincount(of.partition.row_class, minlength=self.n_link_classes)
        share = graph.to_links((gradient / rows)[of.partition.row_class])
        if graph.row_of is None:
            return share
        capacity = live_capacity(of.network)
        least = capacity <= graph.to_links(graph.least(capacity))
        return np.where(least, share / graph.to_links(np.bincount(graph.row_of, least)), 0.0)

    @functools.cached_property
    def _use(self) -> Float[np.ndarray, "link_classes flow_classes"]:
        return dense_use(self.routes)

    @property
    def _merges(self) -> bool:
        """Whether links may share a row, so that classes do not say which of them is full."""
        return graph_of(self._of.routes).row_of is not None

    def _solved_for(
        self, solution: RateSolution, network: Network | None
    ) -> Float[np.ndarray, " links"]:
        """Return the capacities of all links that a solution is of.

        Raises:
            ModelError: If they are not those of the network, or nothing says which they are.
        """
        solved = solution if isinstance(solution, ClassSolution) else None
        if network is not None:
            check_link_counts(network, self._of.routes, "Quotient.lift")
            if solved is not None and not solved.is_at(self.capacity_of(network)):
                message = (
                    "`lift(solution, network)` got a solution of other capacities than those of "
                    "the network. Give the network that was solved."
                )
                raise ModelError(message)
            return live_capacity(network)
        if solved is not None and solved.link_capacity is not None:
            return np.asarray(solved.link_capacity, np.float64)
        if solved is not None and self._merges and not solved.is_at(self.network.capacity):
            message = (
                "`lift(solution)` got a solution of other capacities than were compressed, and "
                "they do not say which of the links that always fill together is full. Give the "
                "network: `lift(solution, network)`, or solve it: `solve(network)`."
            )
            raise ModelError(message)
        return live_capacity(self._of.network)

    def _with_capacity(self, capacity: AnyArray | Sequence[float]) -> Network:
        if not is_array(capacity):
            capacity = float_array("Quotient.solve(capacity)", capacity)
        self._check_classes("Quotient.solve(capacity)", np.shape(capacity), 1)
        if not is_traced(capacity) and jnp.issubdtype(capacity.dtype, jnp.number):
            name = lambda i: f"class {i}"
            raise_faults(capacity_faults("Quotient.solve(capacity)", np.asarray(capacity), name))
        return self.network.with_capacity(capacity)

    def _check_classes(self, name: str, shape: tuple[int, ...], ndim: int) -> None:
        if len(shape) == ndim and shape[-1] == self.n_link_classes:
            return
        message = (
            f"`{name}` needs one value for each of {self.n_link_classes:,} link classes"
            f"{' of every problem' * (ndim - 1)}, but has shape {shape}."
        )
        raise ModelError(message)
