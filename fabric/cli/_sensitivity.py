"""What one percent of some links buys and costs, in numbers and in sentences."""

import textwrap
import time
from typing import Any

from fabric._errors import ModelError
from fabric.cli._answer import Case
from fabric.cli._output import known, note
from fabric.cli._units import cut_link
from fabric.network import Network

_MOST_ROWS = 8
_LARGE = 5_000_000
"""Hops from which stderr says what goes on before it is done."""
_TELL_FROM = 1.0
"""Seconds of work from which stderr says how long it took."""
_WIDTH = 98
_SAID = {"slowest": "the slowest flow", "mean": "the mean", "total": "the total"}


def check(by: str | None, objective: str | None) -> None:
    """Raise before any work if an option is wrong."""
    from fabric.solvers import BY, OBJECTIVES

    if by is not None:
        known("--sensitivity", by, BY)
    if objective is not None:
        known("--objective", objective, OBJECTIVES)
        if by is None:
            message = (
                f"`--objective {objective}` needs a table to be for: add `--sensitivity tier`."
            )
            raise ModelError(message)


def sensitivity(
    network: Network, case: Case, by: str, objective: str | None, top: int
) -> dict[str, Any]:
    """Return the fields of the answer that say what capacity is worth.

    Args:
        network: As solved.
        case: The solution.
        by: What links are taken together by.
        objective: "slowest", "mean" or "total". Default: "slowest".
        top: Rows at most.
    """
    from fabric.solvers import sensitivities

    objective = objective or "slowest"
    if case.routes.n_hops > _LARGE:
        note(f"sensitivity by {by}: up to two solves for each")
    if not case.rate.min(initial=1.0) and objective == "slowest":
        message = (
            "The slowest flow has rate 0, and percent of it mean nothing. Ask for "
            "`--objective mean`, or find its dead link among the bottlenecks."
        )
        raise ModelError(message)
    start = time.monotonic()
    table = sensitivities(network, case.routes, objective, by, top=top)
    seconds = time.monotonic() - start
    if seconds > _TELL_FROM:
        note(f"sensitivity by {by} in {seconds:.1f} s")
    return {
        "sensitivities": table.to_dicts(),
        "sensitivities_left_out": list(table.left_out),
    }


def lines(answer: dict[str, Any]) -> list[str]:
    """Return a sentence per row, eight at most."""
    rows = answer["sensitivities"]
    said = [_sentence(row) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        said.append(f"and {len(rows) - _MOST_ROWS:,} more")
    for sentence in answer.get("sensitivities_left_out", []):
        said += textwrap.wrap(sentence, _WIDTH)
    return said


def _sentence(row: dict[str, Any]) -> str:
    """Return what more and less of a group does.

    Examples:
        >>> row = {"by": "tier", "key": "host", "objective": "slowest", "exact_within_pct": 4.24,
        ...        "gain_per_plus_1pct": 0.3, "loss_per_minus_1pct": 0.9}
        >>> _sentence(row)
        '+1 % of host buys 0.3 % of the slowest flow, -1 % costs 0.9 %; exact within 4.2 %'
        >>> _sentence(row | {"gain_per_plus_1pct": 0.0, "exact_within_pct": None})
        '+1 % of host buys nothing of the slowest flow, -1 % costs 0.9 %; exact everywhere'
    """
    key, of = row["key"], _SAID[row["objective"]]
    if row["by"] in ("link", "cable"):
        key = cut_link(key, 44)
    more = _verb(row["gain_per_plus_1pct"], "buys", "costs")
    less = _verb(row["loss_per_minus_1pct"], "costs", "buys")
    reach = row["exact_within_pct"]
    exact = "everywhere" if reach is None else f"within {reach:.2g} %"
    if reach is not None and reach >= 99.5:
        exact = "within 100 %"
    return f"+1 % of {key} {more} of {of}, -1 % {less}; exact {exact}"


def _verb(percent: float, rises: str, falls: str) -> str:
    if abs(percent) < 5e-7:
        return f"{rises} nothing"
    return f"{rises if percent > 0 else falls} {abs(percent):.3g} %"
