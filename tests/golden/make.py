"""Write `facts.json`: what is known of the rates of each golden instance, in a few numbers.

Run `python -m tests.golden.make`; it takes about a minute and always writes the same file. The
rates come from the exact rational oracle, so every number is the correctly rounded one.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fabric.reference import (
    Problem,
    Rate,
    bottlenecks_exact,
    max_min_rates_by_rounds,
    max_min_rates_exact,
)
from tests.golden.instances import LARGE, MEDIUM, SMALL, digest, instance

FACTS = Path(__file__).with_name("facts.json")
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def facts(rates: Sequence[Rate]) -> dict[str, object]:
    """Return a summary of exact rates, GB/s.

    `sum` and `min` are rounded once. A quantile q is the rate at place floor(q (n - 1)) of n in
    ascending order. `distinct` counts different rationals. `sha256_12` is over the rates in flow
    order with 12 significant digits, each followed by a line feed.
    """
    rounded = [float(rate) for rate in rates]
    ordered = sorted(rounded)
    text = "".join(f"{rate:.11e}\n" for rate in rounded)
    return {
        "sum": float(sum(rates)),
        "min": ordered[0],
        "quantiles": {str(q): ordered[math.floor(q * (len(ordered) - 1))] for q in QUANTILES},
        "distinct": len(set(rates)),
        "sha256_12": hashlib.sha256(text.encode()).hexdigest(),
    }


def described(name: str) -> dict[str, object]:
    """Return all facts of one instance, after proving the rates by their bottlenecks."""
    made = instance(name)
    problem = Problem.from_csr(**made)
    rates = max_min_rates_exact(problem)
    if not all(bottlenecks_exact(problem, rates)):
        message = f"{name}: a flow has no bottleneck."
        raise RuntimeError(message)
    filled, rounds = max_min_rates_by_rounds(problem)
    np.testing.assert_allclose(filled, [float(rate) for rate in rates], rtol=1e-13)
    sizes = {
        key: len(made[column]) for key, column in (("links", "capacity"), ("hops", "flow_links"))
    }
    return {"digest": digest(made), "flows": len(rates), **sizes, "rounds": rounds, **facts(rates)}


def main() -> None:
    """Describe every instance that the tests solve."""
    table = {name: described(name) for name in (*SMALL, *MEDIUM, *LARGE)}
    FACTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
