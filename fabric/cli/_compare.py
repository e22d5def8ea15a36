"""What missing cables cost, and which to plug first."""

import time
from typing import Any

from fabric._errors import ModelError
from fabric.cli import _answer
from fabric.cli._answer import Case
from fabric.cli._demand import Demand, Rule
from fabric.cli._output import Progress, note
from fabric.cli._units import counted
from fabric.network import Network
from fabric.topologies._uniform import UniformDesign, plug

WORTH = 0.01
"""Gain of the slowest flow from which a cable is ranked by it; below, other links are as slow."""

_STATS = ("slowest", "median", "mean", "max")


def compared(design: UniformDesign, asked: Demand, case: Case, whole: Case) -> dict[str, Any]:
    """Return the uniform design, its rates for the same flows, and what its lack costs.

    Args:
        design: The design.
        asked: The flows.
        case: Rates as cabled.
        whole: Rates on the design.
    """
    now, then = case.stats, whole.stats
    times = asked.endpoints - 1 if asked.all_to_all else 1
    return {
        "cables": design.cables,
        "per_pair": design.per_pair,
        "have": design.have,
        "missing": design.missing,
        "extra": design.extra,
        "missing_pairs": len(design.missing_pairs),
        "unit": "byte/s per endpoint" if asked.all_to_all else "byte/s per flow",
        **{name: then[name] * times for name in _STATS},
        "cost": {name: _loss(now[name], then[name]) for name in _STATS},
        "certificate": whole.certificate,
    }


def plugged(
    network: Network,
    design: UniformDesign,
    pairs: list[tuple[int, int, int]],
    asked: Demand,
    rule: Rule,
    method: str,
    case: Case,
    *,
    limit: float,
) -> dict[str, Any]:
    """Return what plugging buys at every pair that lacks cables: one, and all of them.

    Args:
        network: As cabled, with failures.
        design: What it should be.
        pairs: Those of the design's missing pairs to try: (leaf, spine, how many it lacks).
        asked: The flows.
        rule: How they are routed.
        method: How they are solved.
        case: Rates as cabled.
        limit: Seconds that this may take.

    Raises:
        ModelError: If it would take longer, judged by one such solve.
    """
    tries = [(*pair, count) for pair in pairs for count in sorted({1, pair[2]})]
    names = network.labels.names
    base = case.stats
    times = asked.endpoints - 1 if asked.all_to_all else 1
    rows: list[dict[str, Any]] = []
    with Progress("plugging", len(tries)) as progress:
        for leaf, spine, lack, count in tries:
            start = time.monotonic()
            tried = plug(network, [(leaf, spine, count)], design.capacity)
            stats = _answer.solved(tried, asked, rule, method).stats
            if not rows:
                _afford(time.monotonic() - start, len(tries), limit)
            rows.append(
                {
                    "leaf": names[leaf],
                    "spine": names[spine],
                    "missing": lack,
                    "plugged": count,
                    "slowest": stats["slowest"] * times,
                    "mean": stats["mean"] * times,
                    "gain": {key: _gain(stats[key], base[key]) for key in ("slowest", "mean")},
                }
            )
            progress.step()
    raises = max(row["gain"]["slowest"] for row in rows) >= WORTH
    # Gains that differ by rounding only must not decide over the second criterion.
    first = (lambda row: -round(row["gain"]["slowest"], 9)) if raises else (lambda row: 0.0)
    rows.sort(key=lambda row: (first(row), -round(row["gain"]["mean"], 9), row["plugged"]))
    return {
        "pairs": len(pairs),
        "tried": len(rows),
        "unit": "byte/s per endpoint" if asked.all_to_all else "byte/s per flow",
        "ranked_by": "slowest flow, then mean rate" if raises else "mean rate",
        "raises_slowest": raises,
        "before": {key: base[key] * times for key in ("slowest", "mean")},
        "cables": rows,
    }


def _afford(seconds: float, n: int, limit: float) -> None:
    if n > 1 and seconds * n > 5:
        note(f"plugging {n:,} times, one pair at a time: about {seconds * n:.0f} s")
    if seconds * n > limit:
        message = (
            f"`--plug` would solve {counted(n, 'time')} at {seconds:.1f} s each, about "
            f"{seconds * n:,.0f} s; the limit is {limit:,.0f} s. Raise `--plug-time`, or narrow "
            f"the endpoints with `--hosts`."
        )
        raise ModelError(message)


def _loss(now: float, then: float) -> float:
    """Return the share of `then` that is lost; negative where `now` is more."""
    return 1 - now / then if then > 0 else 0.0


def _gain(now: float, before: float) -> float:
    return now / before - 1 if before > 0 else (float("inf") if now > 0 else 0.0)
