"""The bill of materials of `fabric topo`, and the price list it reads."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fabric._errors import ModelError
from fabric.cli._units import counted
from fabric.topologies import Bill, Economics, Item

Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="YAML with the price of one piece by model (`qm9700: 25000`), a `currency`, and "
        "optionally watts under `power` (`power: {qm9700: 747W}`).",
    ),
]

_ENDS = {"switch": "switches", "server": "servers"}


def read_prices(file: Path) -> dict[str, object]:
    """Return a price list.

    Args:
        file: YAML, a mapping from model to price.

    Raises:
        ModelError: If there is no such file, or it is no such mapping.
    """
    import yaml

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        message = f"`--prices {file}` cannot be read: {said}"
        raise ModelError(message) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        message = (
            f"`--prices {file}` needs a line per model, such as `qm9700: 25000`, and "
            f"`currency: USD`, but holds something else."
        )
        raise ModelError(message)
    return found


def bill_record(bill: Bill) -> dict[str, Any]:
    """Return a bill as plain dicts and lists.

    Args:
        bill: Of a network.
    """
    record: dict[str, Any] = {
        "network": [_row(item) for item in bill.network],
        "inside": [_row(item) for item in bill.inside],
        "assumed": list(bill.assumed),
    }
    if bill.currency:
        record |= {
            "currency": bill.currency,
            "total": bill.total,
            "unpriced": list(bill.unpriced),
            "within": list(bill.within),
            "unused": list(bill.unused),
        }
    return record


def economics_lines(found: Economics) -> list[str]:
    """Return what a fabric costs and draws per endpoint, beside what it carries.

    Args:
        found: Of the network that the bill is of.
    """
    lines = [f"  bisection at most {8 * found.bisection / 1e12:,.4g} Tb/s one way"]
    if not found.bisection:
        why = "two halves of the endpoints are not joined" if found.endpoints > 1 else "1 endpoint"
        lines = [f"  no bisection, and so no cost per Gb/s of it: {why}"]
    if found.cost is not None and found.cost_per_endpoint is not None:
        per = f"{found.cost_per_endpoint:,.0f} {found.currency} per endpoint"
        if found.cost_per_bisection is not None:
            per += f", {found.cost_per_bisection:,.2f} per Gb/s of bisection"
        least = "at least " if found.unpriced else ""
        lines.append(f"  network without servers: {least}{per}")
    if found.power is not None and found.power_per_endpoint is not None:
        least = "at least " if found.unpowered else ""
        lines.append(
            f"  power: {least}{found.power / 1e3:,.4g} kW, {found.power_per_endpoint:,.1f} W per "
            f"endpoint"
        )
        lines += [f"    {model}: {said}" for model, said in found.sources.items()]
    if found.unpowered:
        lines.append(f"    of unknown power: {', '.join(found.unpowered)}")
    return lines


def bought(bill: dict[str, Any]) -> str:
    """Return the switches, electrical and optical, and transceivers of a bill in a few words.

    Args:
        bill: As `bill_record` returns it.
    """
    models: dict[str, int] = {}
    ends: dict[str, int] = {}
    for row in bill["network"]:
        if row["part"] in ("switch", "ocs", "ocs-port"):
            guess = " (assumed by ports and speed)" if row.get("assumed") else ""
            name = f"{row['model']}{guess}"
            models[name] = models.get(name, 0) + row["count"]
        elif row["part"] == "transceiver":
            name = f"{row['model'].removeprefix('transceiver ')} at the {_ENDS[row['where']]}"
            ends[name] = ends.get(name, 0) + row["count"]
    said = ", ".join(f"{count:,} x {model}" for model, count in models.items())
    total = counted(sum(ends.values()), "transceiver")
    parts = ", ".join(f"{count:,} of {name}" for name, count in ends.items())
    modules = f"{total} if all optical" + (f" ({parts})" if parts else "")
    return f"{said}; {modules}" if said else modules


def bill_lines(bill: dict[str, Any]) -> list[str]:
    """Return what `bought` leaves out: parts of servers, assumptions, and the cost with prices.

    Args:
        bill: As `bill_record` returns it.
    """
    lines = []
    if bill["inside"]:
        server, *parts = (f"{row['count']:,} x {row['model']}" for row in bill["inside"])
        lines.append(f"  {server}; in them {', '.join(parts)}")
    lines += [f"  assumed: {said}" for said in bill["assumed"]]
    if "currency" not in bill:
        return lines
    lines.append(f"  cost: {bill['total']:,.0f} {bill['currency']}")
    for key, what in (
        ("unpriced", "without a price"),
        ("within", "priced, but part of a server, so not added"),
        ("unused", "priced, but not in here"),
    ):
        if names := bill[key]:
            lines.append(f"    {what}: {', '.join(names)}")
    return lines


def _row(item: Item) -> dict[str, Any]:
    row: dict[str, Any] = {
        "part": item.part,
        "where": item.where,
        "model": item.model,
        "count": item.count,
    }
    if item.part == "switch":
        row["assumed"] = item.assumed
    return row if item.price is None else row | {"price": item.price}
