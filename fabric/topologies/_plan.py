"""What builders share: the rules of tiers and spines, names of ragged blocks, the memory guard."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError
from fabric._units import format_rate, format_size, parse_rate
from fabric.network import Blueprint, Network

# Peak while `Blueprint.network` joins the blocks, measured on `full_mesh(2000)`.
BYTES_PER_CABLE = 150
MEMORY_LIMIT = 16e9


@dataclass(frozen=True)
class Ports:
    """Ports of a switch that face down and up, and the ratio that they were split by."""

    down: int
    up: int
    ratio: float = 1.0


@dataclass(frozen=True)
class Level:
    """Switches above blocks of the tier below, in blocks of their own.

    Switch j of every block below has `cables` to each of the `group` switches of group j.

    Attributes:
        blocks: Blocks of this tier. `size`: blocks of the tier below in a full one.
        group: Switches that a switch below meets. `width`: switches of a block.
        cables: Parallel cables to each.
        down: Ports down that are in use in a full block. `up`: uplinks.
    """

    blocks: int
    size: int
    group: int
    width: int
    cables: int
    down: int
    up: int


def climb(
    blocks: int, uplinks: int, ports: Ports, *, size: int | None = None, width: int = 1
) -> Level | None:
    """Return the tier of switches above some blocks, or None where its switches are too small.

    Args:
        blocks: Blocks of the tier below.
        uplinks: Of each topmost switch of such a block.
        ports: Of a switch of this tier; without ports up it is the topmost.
        size: Blocks below in a full block of this tier. Default: all of them.
        width: Topmost switches of a block below.

    Examples:
        Four pods of 32 spines with 32 uplinks each, below cores of 64 ports:

        >>> climb(4, 32, Ports(64, 0), width=32)
        Level(blocks=1, size=4, group=2, width=64, cables=16, down=64, up=0)
    """
    size = blocks if size is None else size
    group = even_spines(size, uplinks, ports.down)
    if group is None:
        return None
    down = size * uplinks // group
    up = min(ports.up, math.ceil(down / ports.ratio - 1e-9))
    return Level(-(-blocks // size), size, group, width * group, uplinks // group, down, up)


def split(radix: int, down_up: float) -> Ports:
    """Return the ports of a switch split at a ratio down:up.

    Examples:
        >>> split(64, 3)
        Ports(down=48, up=16, ratio=3)
    """
    # 1e-9 keeps a ratio such as 1/3 of a whole number from falling one port short.
    up = math.floor(radix / (1 + down_up) + 1e-9)
    return Ports(math.floor(up * down_up + 1e-9), up, down_up)


def ratio(name: str, value: float) -> float:
    """Return an oversubscription down:up, a finite number more than 0, or raise.

    Examples:
        >>> ratio("oversubscription", 4)
        4.0
    """
    if isinstance(value, str) or not (math.isfinite(value) and value > 0):
        message = (
            f"`{name}` needs a finite number more than 0, such as 4 for 4:1, but got {value!r}."
        )
        raise ModelError(message)
    return float(value)


def flag(name: str, value: object) -> bool:
    """Return a value that is true or false, or raise; nothing else is taken for one.

    Examples:
        >>> flag("wrap", True)
        True
    """
    if not isinstance(value, bool | np.bool_):
        message = f"`{name}` needs True or False, but got {value!r}."
        raise ModelError(message)
    return bool(value)


def even_spines(leaves: int, uplinks: int, radix: int) -> int | None:
    """Return how many spines give every leaf the same number of cables to each of them.

    The smallest S of at least `leaves * uplinks / radix` that divides `uplinks`. Dividing ports
    alone gives 12 spines for three scalable units of a DGX H100 SuperPOD; the published table
    and this rule say 16.

    Args:
        leaves: Leaves below the spines.
        uplinks: Uplinks of each leaf.
        radix: Ports of a spine that face the leaves.

    Returns:
        The number of spines, or None when one cable to each of `uplinks` spines is not enough.

    Examples:
        >>> even_spines(leaves=24, uplinks=32, radix=64)
        16

    References:
        NVIDIA DGX SuperPOD reference architectures H100 and B200 (Table 4) and B300.
    """
    fewest = max(1, -(-leaves * uplinks // radix))
    return next((s for s in range(fewest, uplinks + 1) if uplinks % s == 0), None)


def numbered(
    plan: Blueprint,
    kind: str,
    template: str,
    total: int,
    inner: tuple[int, ...] = (),
    **tags: Int[np.ndarray, " nodes"],
) -> Int[np.ndarray, " nodes"]:
    """Add `total` nodes that count like an odometer, the last group left incomplete.

    Args:
        plan: Where the nodes go.
        kind: Their kind.
        template: Name with one `{}` for the outermost count and one per entry of `inner`.
        total: Number of nodes.
        inner: Size of each inner group, outermost first.
        **tags: (nodes,), whole numbers.

    Returns:
        (nodes,), their numbers.

    Examples:
        >>> plan = Blueprint()
        >>> numbered(plan, "host", "leaf{}-host{}", 5, (2,)).tolist()
        [0, 1, 2, 3, 4]
    """
    group = math.prod(inner)
    full, rest = divmod(total, group)
    blocks = []
    if full:
        shape = (full, *inner)
        cut = {name: tag[: full * group].reshape(shape) for name, tag in tags.items()}
        blocks.append(plan.nodes(kind, template, shape, **cut).ravel())
    if rest:
        cut = {name: tag[full * group :] for name, tag in tags.items()}
        named = template.replace("{}", str(full), 1)
        blocks.append(numbered(plan, kind, named, rest, inner[1:], **cut))
    return np.concatenate(blocks)


def afford(what: str, cables: int) -> None:
    """Raise when so many cables would not fit in memory.

    Args:
        what: What is to be built, as the caller wrote it.
        cables: Number of cables.

    Raises:
        ModelError: With the number of cables and the memory they would take.
    """
    need = cables * BYTES_PER_CABLE
    if need > MEMORY_LIMIT:
        message = (
            f"`{what}` has {cables:,} cables and would take about {format_size(need)} to build; "
            f"the limit is {format_size(MEMORY_LIMIT)}. Ask for a smaller network, or for one "
            f"plane or pod of it."
        )
        raise ModelError(message)


def describe(builder: Callable[..., Network], **values: object) -> str:
    """Return a call of a builder as text, without the arguments that have their default.

    Capacity is always shown. `build` reads the values back.
    """
    defaults = {name: p.default for name, p in inspect.signature(builder).parameters.items()}
    shown = [
        f"{name}={_text(name, value)}"
        for name, value in values.items()
        if name == "capacity" or (value is not None and not _same(value, defaults[name]))
    ]
    return f"{builder.__name__}({', '.join(shown)})"


def _same(value: object, default: object) -> bool:
    return isinstance(value, int | float | str) and value == default


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Sequence | np.ndarray):
        one = lambda item: _text(name, item)
        return "+".join(map(one, value)) if len(value) <= 8 else f"{len(value)} values"
    if "capacity" in name:
        return f"{float(value) / 1e9:.15g}GB/s"  # pyright: ignore[reportArgumentType]
    if name == "latency":
        return f"{float(value):.15g}s"  # pyright: ignore[reportArgumentType]
    return f"{value}"


def hosts_per_port(capacity: str | float, uplink_capacity: str | float | None) -> int:
    """Return how many cables to hosts share a port of a leaf, or raise.

    Examples:
        >>> hosts_per_port("200Gb/s", "400Gb/s"), hosts_per_port("400Gb/s", None)
        (2, 1)
    """
    down = parse_rate(capacity, "capacity")
    if uplink_capacity is None:
        return 1
    up = parse_rate(uplink_capacity, "uplink_capacity")
    shared = round(up / down) if down else 0
    if shared < 1 or not math.isclose(shared * down, up):
        times = max(shared, 1)
        bits = isinstance(capacity, str) and capacity.strip().endswith("b/s")
        fits = f"{times * down * 8 / 1e9:g}Gb/s" if bits else format_rate(times * down)
        much = "the same" if times == 1 else f"{times} times as much"
        message = (
            f"`uplink_capacity={uplink_capacity}` is no whole multiple of `capacity={capacity}`, "
            f"so a port of a leaf cannot be split among hosts. Use {fits}, {much}, for example."
        )
        raise ModelError(message)
    return shared
