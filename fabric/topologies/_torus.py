"""`torus`: rings, tori and meshes of one to three dimensions, plain and twisted."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, nearest, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, is_whole
from fabric.topologies._grid import annotated, parse_shape, shape_text
from fabric.topologies._plan import afford, describe, flag
from fabric.topologies._sizes import Sizes

AXES = "xyz"

Twist = tuple[tuple[int, ...], ...]
"""Per axis: how far the way round it moves along every axis."""


def torus(
    dims: str | Sequence[int],
    *,
    wrap: bool = True,
    twist: str | Mapping[str, Sequence[int]] | None = None,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a torus, or with `wrap=False` a mesh, of chips that send, receive and forward.

    Every chip has a cable to the next one along each axis; the last of an axis is wired to the
    first. An axis of size 2 has one cable per pair, not two, and one of size 1 has none. In a
    twisted torus the way round one axis also moves along another: a cable from the last chip of the
    twisting axis leads to the first one, so many places further along the moved axis. This makes
    the long way of a 4x4x8 shorter with the same cables.

    Chips are ordered with the last axis fastest and called `chip0-1-3`. Kind `chip`; tiers `x`,
    `y` and `z`, one per axis with cables; tags `x`, `y` and `z`. The even link of a cable leads in
    the direction of growing coordinates. `labels.about` has "shape", "wrap" and, where there is
    one, "twist".

    Args:
        dims: Chips along each of 1 to 3 axes: "4x4x8", or a list.
        wrap: Whether there are cables between the last and the first of an axis. Default true.
        twist: None; "tpu": half of each long axis, for shapes A x B x C, in any order, of multiples
            of 4 with 2A = B = C or 2A = 2B = C; or a mapping from a twisting axis to how far its
            way round moves along every axis, such as `{"x": (0, 0, 4), "y": (0, 0, 4)}`, as text
            `xz4+yz4`. An offset divides the size of the axis it moves along, and that axis does not
            twist itself. Default None.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If the shape has no or more than 3 dimensions or a single chip, a twist does not
            fit it, or the network would not fit in memory.

    Examples:
        >>> net = torus("4x4x8")
        >>> net.n_nodes, net.n_links // 2, net.labels.names[9]
        (128, 384, 'chip0-1-1')
        >>> torus("4x4x8", twist="tpu").labels.source
        'torus(dims=4x4x8, twist=tpu, capacity=400Gb/s)'
        >>> torus([3, 3], wrap=False).n_links // 2
        12

    References:
        J. M. Camara et al., Twisted Torus Topologies for Enhanced Interconnection Networks, IEEE
        TPDS 21(12), 2010. N. P. Jouppi et al., TPU v4: An Optically Reconfigurable Supercomputer
        for Machine Learning with Hardware Support for Embeddings, ISCA 2023: which shapes are
        twisted; it gives no table of the wiring.
    """
    wrap = flag("wrap", wrap)
    shape, offsets = _wiring(dims, wrap, twist)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    shown = twist if twist == "tpu" else twist_text(offsets) or None
    what = describe(
        torus, dims=shape_text(shape), wrap=wrap, twist=shown, capacity=capacity, latency=latency
    )
    afford(what, _sizes(shape, wrap, offsets).n_cables)
    plan = Blueprint()
    place = np.indices(shape)
    tags = {axis: place[i] for i, axis in enumerate(AXES[: len(shape)])}
    chip = plan.nodes("chip", "chip" + "-".join(["{}"] * len(shape)), shape, **tags).ravel()
    for axis, a, b in ring_cables(shape, wrap, offsets):
        plan.cables(AXES[axis], chip[a], chip[b], rate, delay)
    facts = {"shape": shape_text(shape), "wrap": "yes" if wrap else "no"}
    if twisted := twist_text(offsets):
        facts["twist"] = twisted
    return annotated(plan.network(what), **facts)


def sizes_of_torus(
    dims: str | Sequence[int],
    *,
    wrap: bool = True,
    twist: str | Mapping[str, Sequence[int]] | None = None,
) -> Sizes:
    """Return what `torus` would have.

    Examples:
        >>> sizes_of_torus("16x20x28").cables
        {'x': 8960, 'y': 8960, 'z': 8960}
    """
    wrap = flag("wrap", wrap)
    shape, offsets = _wiring(dims, wrap, twist)
    return _sizes(shape, wrap, offsets)


def ring_cables(
    shape: tuple[int, ...], wrap: bool, offsets: Twist
) -> Iterator[tuple[int, Int[np.ndarray, " cables"], Int[np.ndarray, " cables"]]]:
    """Yield every axis that has cables, and the flat places at both ends of each cable.

    Cables lead in the direction of growing coordinates.

    Args:
        shape: Places along each axis.
        wrap: Whether the last is wired to the first.
        offsets: As `Twist`; zeros for a plain torus.
    """
    place = np.indices(shape)
    flat = np.arange(math.prod(shape)).reshape(shape)
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        last = place[axis] == size - 1
        # Two in a plain ring would be joined twice.
        kept = np.ones(shape, bool) if _closes(size, wrap, offsets[axis]) else ~last
        ahead = place.copy()
        ahead[axis] += 1
        for moved, offset in enumerate(offsets[axis]):
            ahead[moved] += offset * last
        ends = tuple(ahead[moved] % n for moved, n in enumerate(shape))
        yield axis, flat[kept], flat[ends][kept]


def tpu_twist(shape: tuple[int, ...]) -> Twist | None:
    """Return the twist of a shape that TPU v4 twists, or None where it has none.

    Examples:
        >>> tpu_twist((4, 8, 8)), tpu_twist((8, 8, 8))
        (((0, 4, 4), (0, 0, 0), (0, 0, 0)), None)
    """
    small, middle, large = sorted(shape) if len(shape) == 3 else (0, 0, 1)
    if any(size % 4 for size in shape) or large != 2 * small or middle not in (small, large):
        return None
    return tuple(
        tuple(small * (size == small and other == large) for other in shape) for size in shape
    )


def twist_text(offsets: Twist) -> str:
    """Return a twist as text, "" for a plain torus.

    Examples:
        >>> twist_text(((0, 0, 4), (0, 0, 4), (0, 0, 0)))
        'xz4+yz4'
    """
    return "+".join(
        f"{AXES[axis]}{AXES[moved]}{offset}"
        for axis, row in enumerate(offsets)
        for moved, offset in enumerate(row)
        if offset
    )


def no_tpu_twist(name: str, shape: tuple[int, ...]) -> NoReturn:
    """Raise that a shape is not twisted by TPU v4, with the nearest ones that are."""
    near = [shape_text(one) for one in _nearest_twistable(shape)]
    message = (
        f"`{name}`: a twist needs a shape A x B x C of multiples of 4 with 2A = B = C or "
        f"2A = 2B = C, but this is {shape_text(shape)}. Use {' or '.join(near)}."
    )
    raise ModelError(message)


def _nearest_twistable(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the twistable shape of each form that has most nearly as many chips."""
    chips, found = math.prod(shape), []
    for form in ((1, 1, 2), (1, 2, 2)):
        unit = (chips / math.prod(form)) ** (1 / 3) / 4
        tried = [4 * max(1, side) for side in (math.floor(unit), math.ceil(unit))]
        side = min(tried, key=lambda side: abs(side**3 * math.prod(form) - chips))
        found.append(tuple(side * factor for factor in form))
    return found


def _closes(size: int, wrap: bool, offsets: Sequence[int]) -> bool:
    return size > 1 and (any(offsets) or (wrap and size > 2))


def _sizes(shape: tuple[int, ...], wrap: bool, offsets: Twist) -> Sizes:
    chips = math.prod(shape)
    closed = [_closes(size, wrap, row) for size, row in zip(shape, offsets, strict=True)]
    cables = {
        AXES[axis]: chips if closed[axis] else chips // size * (size - 1)
        for axis, size in enumerate(shape)
        if size > 1
    }
    ports = sum(
        2 if shut or size > 2 else size - 1 for size, shut in zip(shape, closed, strict=True)
    )
    return Sizes({"chip": chips}, cables, {"chip": ports})


def _wiring(
    dims: str | Sequence[int], wrap: bool, twist: str | Mapping[str, Sequence[int]] | None
) -> tuple[tuple[int, ...], Twist]:
    """Return the shape and what the way round each axis adds, or raise what is impossible."""
    shape = parse_shape("dims", dims, len(AXES))
    if math.prod(shape) < 2:
        message = f"`torus(dims={shape_text(shape)})` is a single chip. Ask for 2 or more."
        raise ModelError(message)
    plain = ((0,) * len(shape),) * len(shape)
    if twist is None:
        return shape, plain
    if not wrap:
        message = "`twist` moves the way round an axis, but `wrap=False` has none. Leave one out."
        raise ModelError(message)
    if twist == "tpu":
        offsets = tpu_twist(shape)
        return shape, offsets if offsets is not None else no_tpu_twist("torus(twist='tpu')", shape)
    if not isinstance(twist, str | Mapping):
        message = (
            f"`twist` needs 'tpu', text such as 'xz4', or a mapping from an axis to its offsets, "
            f"but got {twist!r}."
        )
        raise ModelError(message)
    rows = _rows_of(twist, len(shape)) if isinstance(twist, str) else twist
    faults = _twist_faults(shape, rows)
    raise_faults(faults)
    return shape, tuple(
        tuple(int(offset) for offset in rows.get(axis, plain[0])) for axis in AXES[: len(shape)]
    )


def _rows_of(text: str, n_axes: int) -> dict[str, list[int]]:
    """Return a twist written as text as a mapping."""
    rows: dict[str, list[int]] = {}
    for word in text.split("+"):
        axes, offset = word.strip()[:2], word.strip()[2:]
        known = [axis for axis in axes if axis in AXES[:n_axes]]
        if len(known) < 2 or not offset.isdecimal():
            message = (
                f"`twist` needs 'tpu', or terms such as 'xz4' (the way round x moves 4 along z) of "
                f"the axes {', '.join(AXES[:n_axes])}, joined by '+', but got {text!r}."
            )
            raise ModelError(message)
        if not int(offset):
            message = f"`twist`: '{word.strip()}' moves 0 chips, which is no twist. Leave it out."
            raise ModelError(message)
        rows.setdefault(axes[0], [0] * n_axes)[AXES.index(axes[1])] += int(offset)
    return rows


def _twist_faults(shape: tuple[int, ...], rows: Mapping[str, Sequence[int]]) -> list[str]:
    axes, out, faults = AXES[: len(shape)], "Leave it out.", []
    for axis, row in rows.items():
        if axis not in axes:
            faults.append(f"`twist` names the axis '{axis}'. {nearest(axis, list(axes))}")
        elif not isinstance(row, Sequence | np.ndarray) or isinstance(row, str):
            faults.append(f"`twist['{axis}']` needs a list of offsets, but got {row!r}.")
        elif len(row) != len(shape) or not all(is_whole(offset) and offset >= 0 for offset in row):
            faults.append(
                f"`twist['{axis}']` needs {len(shape)} whole numbers of 0 or more, one per axis, "
                f"but got {list(row)!r}."
            )
        elif any(row) and shape[axes.index(axis)] < 2:
            faults.append(f"`twist['{axis}']`: an axis of size 1 has no way round to twist.")
    if faults:
        return faults
    if not any(any(row) for row in rows.values()):
        return [f"`twist` moves nothing along any axis, which is no twist. {out}"]
    for axis, row in rows.items():
        for moved, offset, size in zip(axes, row, shape, strict=True):
            if offset and (moved == axis or any(rows.get(moved, ()))):
                faults.append(
                    f"`twist['{axis}']` moves along '{moved}', which twists itself. Move along an "
                    f"axis that does not."
                )
            elif offset and offset % size == 0:
                faults.append(
                    f"`twist['{axis}']` moves {offset} along '{moved}', once round its {size} "
                    f"chips, which is no twist. {out}"
                )
            elif size % (offset or 1):
                fits = [step for step in range(1, size) if size % step == 0]
                near = sorted(fits, key=lambda step: abs(step - offset))[:2]
                faults.append(
                    f"`twist['{axis}']` moves {offset} along '{moved}', which does not divide its "
                    f"{size} chips. Use {' or '.join(map(str, sorted(near))) or 'no twist'}."
                )
    return faults
