"""The bill of materials of `fabric topo`, and the price list it reads."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fabric._errors import ModelError
from fabric.cli._units import counted, listed
from fabric.topologies import Bill, Item

Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="YAML with the price of one piece by model (`qm9700: 25000`) and a `currency`.",
    ),
]


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
            "unused": list(bill.unused),
        }
    return record


def bought(bill: dict[str, Any]) -> str:
    """Return the switches and transceivers of a bill in a few words.

    Args:
        bill: As `bill_record` returns it.
    """
    models: dict[str, int] = {}
    for row in bill["network"]:
        if row["part"] == "switch":
            models[row["model"]] = models.get(row["model"], 0) + row["count"]
    ends = sum(row["count"] for row in bill["network"] if row["part"] == "transceiver")
    chips = [f"{count:,} x {model}" for model, count in models.items()]
    return f"{listed(chips, 3)}; {counted(ends, 'transceiver')} if all optical"


def bill_lines(bill: dict[str, Any]) -> list[str]:
    """Return what `bought` leaves out: parts of servers, and the cost where prices are given.

    Args:
        bill: As `bill_record` returns it.
    """
    lines = []
    if bill["inside"]:
        server, *parts = (f"{row['count']:,} x {row['model']}" for row in bill["inside"])
        lines.append(f"  {server}; in them {listed(parts, 6)}")
    if "currency" not in bill:
        return lines
    lines += [f"  assumed: {said}" for said in bill["assumed"]]
    lines.append(f"  cost: {bill['total']:,.0f} {bill['currency']}")
    for key, what in (("unpriced", "without a price"), ("unused", "priced, but not in here")):
        if names := bill[key]:
            lines.append(f"    {what}: {listed(names, 5)}")
    return lines


def _row(item: Item) -> dict[str, Any]:
    row = {"part": item.part, "where": item.where, "model": item.model, "count": item.count}
    return row if item.price is None else row | {"price": item.price}
