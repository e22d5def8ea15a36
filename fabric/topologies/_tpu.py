"""`tpu_pod`: cubes of 4x4x4 chips that optical circuit switches join into slices."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults, some
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._grid import annotated, parse_shape, shape_text
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes
from fabric.topologies._torus import AXES, Twist, no_tpu_twist, ring_cables, tpu_twist

SIDE = 4
"""Chips along each edge of a cube."""

_MANY = 10_000
_CHIPS = SIDE**3
_FACE = SIDE * SIDE
_COPPER = 3 * _FACE * (SIDE - 1)
_PLAIN: Twist = ((0, 0, 0),) * 3
_SLICE = re.compile(r"([\dx]+)(_twisted)?(?:@(\d+(?:/\d+)*))?")


def tpu_pod(
    cubes: int,
    slices: str | Sequence[str],
    *,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a TPU pod: cubes of 4x4x4 chips, and the optical circuits of the slices asked for.

    Inside a cube neighbours are joined by copper. The chips of a face have one fibre each to an
    optical circuit switch (OCS): that of axis a and position (i, j) takes chip (i, j) of both faces
    of every cube along a, and joins the `+` face of any cube to the `-` face of any cube, its own
    too. So 48 OCSes of two ports per cube make any whole number of cubes a torus, wherever they
    stand, and the twisted ones by the same fibres. An OCS sets circuits and switches no packets: it
    is no node here, and `circuits` reads its settings off the network. Cubes that no slice takes,
    and those of slices smaller than a cube, have no optical cables.

    Chips are ordered by cube and called `cube5-chip0-1-3`. Kind `chip`, which sends, receives and
    forwards; tiers `cube` and `optical`; tags `cube`, `cube_x`, `cube_y` and `cube_z` (the place in
    the cube), `host` (four chips, 2x2x1), and, -1 outside, `slice` with the place `x`, `y` and `z`
    in it. The even link of an optical cable leads from a `+` face to a `-` face. `labels.about`
    has "ocs" and "ocs_ports" (how many, and ports used of each at most), and "reconfiguration",
    the time that changing circuits takes, as reported of TPU v4.

    Args:
        cubes: Cubes of the pod: 64 in TPU v4, 140 in v5p, 144 in Ironwood.
        slices: One per entry, as text joined by `+`: its shape, such as `4x4x8`, of multiples of 4,
            a torus; or, inside one cube, of 1, 2 and 4, a mesh without the way round. `_twisted`
            behind the shape twists it, see `torus`; and `@3/17` names its cubes, x, y, z order with
            z fastest. Default: the lowest-numbered free ones. Slices inside a cube share one where
            they fit.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s, the
            nominal 50 GB/s of TPU v4.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a slice has another shape, cannot be twisted, or needs cubes that are taken
            or not there; all faults at once.

    Examples:
        >>> net = tpu_pod(4, "4x4x8_twisted+2x2x1")
        >>> [int(net.labels.is_tier(tier).sum()) // 2 for tier in net.labels.tiers]
        [576, 96]
        >>> int((net.labels.tags["slice"] == 1).sum())
        4
        >>> circuits(net)["x", 0, 0].tolist()
        [[0, 1], [1, 0]]

    References:
        N. P. Jouppi et al., TPU v4: An Optically Reconfigurable Supercomputer for Machine Learning
        with Hardware Support for Embeddings, ISCA 2023. The wiring of twisted slices is that of
        `torus`, since no table of it is public.
    """
    (cubes,) = wholes(cubes=cubes)
    asked = _parsed(slices)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    text = "+".join(one.text for one in asked)
    what = describe(tpu_pod, cubes=cubes, slices=text, capacity=capacity, latency=latency)
    afford(what, _sizes(cubes, asked).n_cables)
    placed = _placed(cubes, asked)

    plan = Blueprint()
    cube, i, j, k = np.indices((cubes, SIDE, SIDE, SIDE))
    host = cube * _FACE + i // 2 * 8 + j // 2 * SIDE + k
    chip = plan.nodes(
        "chip", "cube{}-chip{}-{}-{}", cube.shape, cube=cube, cube_x=i, cube_y=j, cube_z=k,
        host=host, **_slice_tags(cubes, placed),
    ).reshape(cubes, _CHIPS)  # fmt: skip
    for _, a, b in ring_cables((SIDE,) * 3, False, _PLAIN):
        plan.cables("cube", chip[:, a], chip[:, b], rate, delay)
    for one, chips in placed:
        if one.whole:
            for a, b in _optical(one, chips):
                plan.cables("optical", a, b, rate, delay)
    facts = {
        "ocs": str(3 * _FACE),
        "ocs_ports": str(2 * cubes),
        "reconfiguration": "10s",
        "reconfiguration_source": "TPU v4, as reported: roughly 10 s",
    }
    return annotated(plan.network(what), **facts)


def sizes_of_tpu_pod(cubes: int, slices: str | Sequence[str]) -> Sizes:
    """Return what `tpu_pod` would have.

    Examples:
        >>> sizes_of_tpu_pod(64, "16x16x16").cables
        {'cube': 9216, 'optical': 3072}
    """
    (cubes,) = wholes(cubes=cubes)
    asked = _parsed(slices)
    # Slices fill the lowest cubes, so that more than these need not be looked at.
    named = max((cube + 1 for one in asked for cube in one.cubes), default=0)
    enough = max(_MANY, named + sum(math.prod(one.grid) for one in asked))
    _placed(min(cubes, enough), asked)
    return _sizes(cubes, asked)


def circuits(network: Network) -> dict[tuple[str, int, int], Int[np.ndarray, "circuits 2"]]:
    """Return what every optical circuit switch of a `tpu_pod` joins.

    Args:
        network: From `tpu_pod`. Failed cables count: they are plugged.

    Returns:
        By axis and position (i, j) on the face, in the order of the other two axes: one row per
        circuit, the cube whose `+` face and the cube whose `-` face it joins, by the first.

    Raises:
        ModelError: If the network has no optical cables or does not say where chips are.

    Examples:
        A cube by itself is joined to itself:

        >>> circuits(tpu_pod(3, "4x4x4@1"))["z", 3, 0].tolist()
        [[1, 1]]
    """
    labels = network.labels
    if "optical" not in labels.tiers or "cube_x" not in labels.tags:
        message = f"`{labels.source}` has no optical circuits. Use a `tpu_pod` with whole slices."
        raise ModelError(message)
    optical = np.flatnonzero(labels.is_tier("optical"))[::2]
    ends = labels.src[optical], labels.dst[optical]
    place = np.stack([labels.tags[f"cube_{axis}"] for axis in AXES], 1)
    cube = np.stack([labels.tags["cube"][end] for end in ends], 1)
    axis = np.argmax(place[ends[0]] != place[ends[1]], axis=1)
    found = {}
    for number, name in enumerate(AXES):
        others = [other for other in range(3) if other != number]
        for i, j in itertools.product(range(SIDE), repeat=2):
            mine = (axis == number) & (place[ends[0]][:, others] == (i, j)).all(1)
            found[name, i, j] = cube[mine][np.argsort(cube[mine, 0])]
    return found


@dataclass(frozen=True)
class _Slice:
    """A slice as asked for: its text, shape, twist, and cubes where they are named."""

    text: str
    shape: tuple[int, ...]
    twist: Twist
    cubes: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it takes whole cubes."""
        return all(side % SIDE == 0 for side in self.shape)

    @property
    def grid(self) -> tuple[int, ...]:
        """Cubes along each axis."""
        return tuple(-(-side // SIDE) for side in self.shape)


Placed = list[tuple[_Slice, Int[np.ndarray, "..."]]]
"""Every slice with the node numbers of its chips."""


def _parsed(slices: str | Sequence[str]) -> list[_Slice]:
    if not isinstance(slices, str | Sequence):
        message = f"`slices` needs text such as '4x4x8+2x2x1', or a list, but got {slices!r}."
        raise ModelError(message)
    texts = slices.split("+") if isinstance(slices, str) else list(slices)
    faults: list[str] = []
    found = [one for text in texts if (one := _slice(str(text).strip(), faults)) is not None]
    raise_faults(faults)
    return found


def _slice(text: str, faults: list[str]) -> _Slice | None:
    match = _SLICE.fullmatch(text)
    if match is None:
        faults.append(
            f"`slices` needs shapes such as '4x4x8', '4x4x8_twisted' or '4x4x8@0/3', joined by "
            f"'+', but got {text!r}."
        )
        return None
    try:
        shape = parse_shape("slices", match[1])
        if len(shape) != 3 or not _fits(shape):
            near = " or ".join(shape_text(one) for one in _nearest(shape))
            faults.append(
                f"`slices`: {match[1]} is neither of three multiples of {SIDE}, nor of 1, 2 and "
                f"{SIDE} inside a cube. Use {near}."
            )
            return None
        twist = _PLAIN
        if match[2]:
            twist = tpu_twist(shape) or no_tpu_twist(f"slices={text}", shape)
    except ModelError as error:
        faults.append(str(error))
        return None
    cubes = tuple(int(cube) for cube in match[3].split("/")) if match[3] else ()
    return _Slice(text, shape, twist, cubes)


def _fits(shape: Sequence[int]) -> bool:
    return all(side % SIDE == 0 for side in shape) or all(side in (1, 2, SIDE) for side in shape)


def _nearest(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the next smaller and the next larger shape of whole cubes."""
    three = (*shape, *([1] * 3))[:3]
    down = tuple(max(SIDE, side // SIDE * SIDE) for side in three)
    up = tuple(-(-side // SIDE) * SIDE for side in three)
    return list(dict.fromkeys([down, up]))


def _sizes(cubes: int, asked: list[_Slice]) -> Sizes:
    taken = sum(math.prod(one.grid) for one in asked if one.whole)
    cables = {"cube": _COPPER * cubes}
    if taken:
        cables["optical"] = 3 * _FACE * taken
    return Sizes({"chip": _CHIPS * cubes}, cables, {"chip": 6})


def _placed(cubes: int, asked: list[_Slice]) -> Placed:
    """Return where every slice goes; named cubes are set aside first, then whole ones."""
    free = np.ones((cubes, SIDE, SIDE, SIDE), bool)
    faults: list[str] = []
    found: dict[int, np.ndarray] = {}
    order = sorted(range(len(asked)), key=lambda i: (not asked[i].cubes, not asked[i].whole))
    for number in order:
        one = asked[number]
        chips = _cubes_of(one, free, faults) if one.whole else _block_of(one, free, faults)
        if chips is not None:
            free.reshape(-1)[chips.ravel()] = False
            found[number] = chips
    raise_faults(faults)
    return [(one, found[number]) for number, one in enumerate(asked)]


def _cubes_of(one: _Slice, free: np.ndarray, faults: list[str]) -> Int[np.ndarray, "..."] | None:
    """Return the chips of a slice of whole cubes, or add why there are none."""
    need, cubes = math.prod(one.grid), len(free)
    empty = np.flatnonzero(free.reshape(cubes, -1).all(1))
    bad = [cube for cube in one.cubes if cube not in empty]
    if one.cubes and (len(one.cubes) != need or len(set(one.cubes)) != need):
        faults.append(
            f"`slices`: '{one.text}' needs {need} different cubes, but names {len(set(one.cubes))}."
        )
    elif bad:
        faults.append(
            f"`slices`: '{one.text}' names cubes that are taken or not there: {some(bad)}. Free of "
            f"the {cubes}: {some(empty)}."
        )
    elif need > len(empty):
        faults.append(
            f"`slices`: '{one.text}' needs {need} cubes, but {len(empty)} of {cubes} are free. Use "
            f"a smaller slice, or `cubes={cubes + need - len(empty)}`."
        )
    else:
        taken = np.array(one.cubes or empty[:need]).reshape(one.grid)
        chips = taken[..., None, None, None] * _CHIPS + np.arange(_CHIPS).reshape((SIDE,) * 3)
        return chips.transpose(0, 3, 1, 4, 2, 5).reshape(one.shape)
    return None


def _block_of(one: _Slice, free: np.ndarray, faults: list[str]) -> Int[np.ndarray, "..."] | None:
    """Return the first free chips of a slice inside a cube, or add why there are none."""
    # View the cubes as blocks of the shape: (cube, blocks along x, y, z, place in the block).
    counts = [SIDE // side for side in one.shape]
    split = (len(free), *itertools.chain(*zip(counts, one.shape, strict=True)))
    blocks = free.reshape(split).transpose(0, 1, 3, 5, 2, 4, 6)
    fits = blocks.reshape(len(free), math.prod(counts), -1).all(2)
    if one.cubes:
        fits = fits & (np.arange(len(free)) == one.cubes[0])[:, None]
    if len(one.cubes) > 1 or not fits.any():
        faults.append(
            f"`slices`: '{one.text}' needs a free block of {shape_text(one.shape)} chips in one "
            f"cube, but {'it names several' if len(one.cubes) > 1 else 'there is none'}. Use a "
            f"smaller slice or more `cubes`."
        )
        return None
    number = np.arange(free.size).reshape(split).transpose(0, 1, 3, 5, 2, 4, 6)
    cube, block = np.argwhere(fits)[0]
    return number.reshape(len(free), math.prod(counts), *one.shape)[cube, block]


def _slice_tags(cubes: int, placed: Placed) -> dict[str, np.ndarray]:
    """Return the tags of slices, -1 for chips of none."""
    tags = {name: np.full(cubes * _CHIPS, -1) for name in ("slice", *AXES)}
    for number, (one, chips) in enumerate(placed):
        tags["slice"][chips] = number
        for axis, place in zip(AXES, np.indices(one.shape), strict=True):
            tags[axis][chips] = place
    return {name: tag.reshape(cubes, *(SIDE,) * 3) for name, tag in tags.items()}


def _optical(one: _Slice, chips: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return both ends of the cables of a slice that leave a cube, one pair of arrays per axis."""
    found = []
    for axis, a, b in ring_cables(one.shape, True, one.twist):
        leaves = np.indices(one.shape)[axis].ravel()[a] % SIDE == SIDE - 1
        found.append((chips.ravel()[a[leaves]], chips.ravel()[b[leaves]]))
    return found
