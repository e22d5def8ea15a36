"""`slices`: the shape and the twist of a torus slice that serve a job best."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabric._errors import InfeasibleError, raise_faults
from fabric._units import parse_rate, parse_size
from fabric.network import Flows, Network, whole_or_fault
from fabric.optimize._faults import or_fault
from fabric.routing import spray
from fabric.runs import gap as gap_of
from fabric.solvers import max_min_rates
from fabric.topologies import all_to_all_rate, torus

SIDE = 4
"""Chips along each edge of a cube: whole cubes close to tori, parts of one do not."""

_CUBE = SIDE**3


@dataclass(frozen=True)
class Slice:
    """One shape, plain or twisted, and how long the job's exchanges take on it.

    Attributes:
        dims: As `torus` takes them. `twist`: "tpu", or None.
        wrap: Whether axes close; false inside a cube.
        seconds: All exchanges one after another. `bound`: the same, the all-to-all at what no
            routing exceeds.
        all_to_all: Seconds of it. `rings`: seconds per ring size. `axes`: the axis of each.
        refused: Why the shape does not serve, or "".
    """

    dims: str
    twist: str | None
    wrap: bool
    seconds: float
    bound: float
    all_to_all: float
    rings: Mapping[int, float]
    axes: Mapping[int, str]
    refused: str = ""

    def network(self, capacity: str | float = "400Gb/s") -> Network:
        """Return the slice as a network."""
        return torus(self.dims, wrap=self.wrap, twist=self.twist, capacity=capacity)

    def __str__(self) -> str:
        return f"{self.dims}{'_twisted' if self.twist else ''}"


@dataclass(frozen=True)
class Slices:
    """All shapes of some chips, the quickest first.

    Attributes:
        objective: Seconds of the best. `bound`: what no shape goes below, whatever routes the
            all-to-all.
        gap: objective / bound - 1. `certified`: whether it is at most 1e-6.
        best: The quickest. `choices`: all that serve, the quickest first. `refused`: the others.
        gain: Seconds of the quickest plain shape over those of the best.
        evaluations: Shapes scored. `seconds`: wall time.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    best: Slice
    choices: tuple[Slice, ...]
    refused: tuple[Slice, ...]
    gain: float
    evaluations: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "schema": "fabric.optimize.slices/1", "objective": self.objective,
            "bound": self.bound, "gap": self.gap, "certified": self.certified,
            "best": str(self.best), "gain": self.gain,
            "choices": [
                {"slice": str(one), "seconds": one.seconds, "all_to_all_s": one.all_to_all,
                 "rings_s": {str(k): v for k, v in one.rings.items()}, "axes": dict(one.axes)}
                for one in self.choices
            ],
            "refused": {str(one): one.refused for one in self.refused},
            "evaluations": self.evaluations, "seconds": self.seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.best} in {self.objective:.6g} s, the best plain shape takes {self.gain:.4f} "
            f"times as long; gap {self.gap:.2e}, {self.evaluations} shapes"
        )


def slices(
    chips: int,
    *,
    all_to_all: str | float = 0.0,
    rings: Mapping[int, str | float] | None = None,
    capacity: str | float = "400Gb/s",
) -> Slices:
    """Return every torus of so many chips, plain and twisted, by what a job's exchanges take.

    Shapes are those of optical slices: three multiples of 4, joined from cubes of 4x4x4, and those
    of 1, 2 and 4 inside one cube, which do not close. Every shape is built and scored exactly.

    Args:
        chips: How many.
        all_to_all: What every chip sends in all, evenly to all others: text, or bytes.
        rings: By ring size, what every chip of it holds when all reduce: text, or bytes. Rings of
            one size lie along one axis of so many chips, each size along another, all rings of a
            size at once and both ways round.
        capacity: Of a cable, per direction: text with a unit, or byte/s.

    Raises:
        ModelError: If a value is not as above, or there is nothing to exchange.
        InfeasibleError: If no shape has so many chips, or none has axes of the sizes of the rings.

    Cost: An all-to-all and a max-min solve per shape: 0.1 s for 256 chips, 10 s for 4,096.

    Examples:
        >>> found = slices(128, all_to_all="64MB")
        >>> str(found.best), round(found.gain, 4)
        ('4x4x8_twisted', 1.7455)
        >>> found = slices(128, rings={8: "1GB"})
        >>> str(found.best), dict(found.best.axes)
        ('4x4x8', {8: 'z'})

    References:
        J. M. Camara et al., Twisted Torus Topologies for Enhanced Interconnection Networks, IEEE
        TPDS 21(12), 2010. N. P. Jouppi et al., TPU v4, ISCA 2023.
    """
    begun = time.monotonic()
    faults: list[str] = []
    chips = whole_or_fault("chips", chips, faults, least=2)
    sent = or_fault(faults, 1.0, parse_size, all_to_all, "all_to_all")
    rate = or_fault(faults, 1.0, parse_rate, capacity, "capacity")
    held: dict[int, float] = {}
    if not isinstance(rings, Mapping | None):
        faults.append("`rings` needs a mapping from ring sizes to bytes, such as {8: '1GB'}.")
        rings = None
    for size, amount in (rings or {}).items():
        chips_of_ring = whole_or_fault("rings", size, faults, least=2)
        held[chips_of_ring] = or_fault(faults, 1.0, parse_size, amount, f"rings[{size}]")
    if not sent and not any(held.values()):
        faults.append("`all_to_all` and `rings` are 0. Say what is exchanged.")
    if rate <= 0:
        faults.append("`capacity` needs more than 0 byte/s.")
    raise_faults(faults)
    shapes = _shapes(chips)
    if not shapes:
        message = (
            f"`slices(chips={chips:,})` has no shape: above {_CUBE} chips it takes three multiples "
            f"of {SIDE}, within a cube powers of two. Use {_near(chips)}."
        )
        raise InfeasibleError(message)
    scored = [_scored(shape, twist, sent, held, rate) for shape, twist in _kinds(shapes)]
    good = sorted((one for one in scored if not one.refused), key=lambda one: one.seconds)
    bad = tuple(one for one in scored if one.refused)
    if not good:
        sizes = sorted({side for shape in shapes for side in shape if side > 1})
        message = (
            f"No shape of {chips:,} chips has axes of {sorted(held)} chips for the `rings`; "
            f"{bad[0]} and others have {sizes}. Use rings of these sizes, each along its own axis."
        )
        raise InfeasibleError(message)
    # What is proved may round to more than what is reached.
    best, bound = good[0], min(good[0].seconds, *(one.bound for one in good))
    plain = min((one.seconds for one in good if one.twist is None), default=best.seconds)
    gap = gap_of(best.seconds, bound)
    return Slices(
        best.seconds, bound, gap, gap <= 1e-6, best, tuple(good), bad, plain / best.seconds,
        len(good), time.monotonic() - begun,
    )  # fmt: skip


def _shapes(chips: int) -> list[tuple[int, int, int]]:
    """Return sorted shapes of so many chips."""
    if chips < _CUBE:
        inside = itertools.combinations_with_replacement((1, 2, SIDE), 3)
        return [shape for shape in inside if math.prod(shape) == chips]
    return [
        (a, b, chips // (a * b))
        for a in range(SIDE, math.isqrt(chips // SIDE) + 1, SIDE)
        if chips % a == 0
        for b in range(a, math.isqrt(chips // a) + 1, SIDE)
        if chips % (a * b * SIDE) == 0
    ]


def _near(chips: int) -> str:
    below = max(chips // _CUBE, 1) * _CUBE
    fits = [*(2**i for i in range(1, 6)), below, below + _CUBE]
    near = sorted(fits, key=lambda n: abs(n - chips))[:2]
    return " or ".join(f"{n:,}" for n in sorted(near))


def _kinds(shapes: list[tuple[int, int, int]]) -> Iterator[tuple[tuple[int, ...], str | None]]:
    """Yield every shape plain and, where that is wired, twisted."""
    for shape in shapes:
        yield shape, None
        small, middle, large = shape
        if small >= SIDE and large == 2 * small and middle in (small, large):
            yield shape, "tpu"


def _scored(
    shape: tuple[int, ...], twist: str | None, sent: float, held: Mapping[int, float], rate: float
) -> Slice:
    wrap = min(shape) >= SIDE
    dims = "x".join(map(str, shape))
    if set(held) - set(shape):
        refused = f"no axes of {sorted(held)} chips, one for each ring"
        return Slice(dims, twist, wrap, np.inf, np.inf, np.inf, {}, {}, refused)
    net = torus(dims, wrap=wrap, twist=twist, capacity=rate)
    each, least = 0.0, 0.0
    if sent:
        found = all_to_all_rate(net)
        each, least = sent / found.rate, sent / found.bound
    axes, times = _placed(net, shape, held)
    total = sum(times.values())
    return Slice(dims, twist, wrap, each + total, least + total, each, times, axes)


def _placed(
    net: Network, shape: tuple[int, ...], held: Mapping[int, float]
) -> tuple[dict[int, str], dict[int, float]]:
    """Return the axis of every ring size, that where it is quickest, and its seconds."""
    axes, times = {}, {}
    for size, amount in held.items():
        fits = [axis for axis, side in enumerate(shape) if side == size]
        rates = [_ring_rate(net, shape, axis) for axis in fits]
        axes[size] = "xyz"[fits[int(np.argmax(rates))]]
        times[size] = (size - 1) / size * amount / max(rates)
    return axes, times


def _ring_rate(net: Network, shape: tuple[int, ...], axis: int) -> float:
    """Return byte/s each way round of the slowest chip, when all rings along an axis are at work.

    An all-reduce of S passes 2 (n - 1) / n S on, half of it each way.
    """
    place = np.arange(net.n_nodes).reshape(shape)
    after = np.roll(place, -1, axis).ravel()
    src, dst = np.concatenate([place.ravel(), after]), np.concatenate([after, place.ravel()])
    rates = max_min_rates(net, spray(net, Flows(src, dst))).rates
    return float(np.asarray(rates).min())
