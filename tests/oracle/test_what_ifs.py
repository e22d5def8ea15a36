"""Rows of `optimize.linearize` and their reaches, against max-min rates in exact rationals."""

import numpy as np
import pytest

import fabric as fb
from fabric.optimize import Change, linearize
from fabric.reference import Problem, max_min_rates_exact


class Drawn:
    """Six flows of unlike weight on five links, half of them capped; every other one with ties."""

    def __init__(self, seed, unit):
        rng = np.random.default_rng(seed)
        self.objective = ("slowest", "mean")[seed // 2 % 2]
        self.paths = [rng.choice(5, rng.integers(1, 4), replace=False).tolist() for _ in range(6)]
        size = rng.integers(1, 3, 5) if seed % 2 else rng.uniform(1, 2, 5)
        caps = np.where(rng.random(6) < 0.5, unit * rng.choice([0.05, 0.3, 0.8], 6), np.inf)
        self.given = {"link": unit * size, "weight": rng.choice([0.1, 0.5, 3.0], 6), "cap": caps}

    def table(self):
        net, given = fb.Network(self.given["link"]), self.given
        capped = np.flatnonzero(np.isfinite(given["cap"])).tolist()
        asked = [Change("link", link, by) for link in range(5) for by in (-1.0, -0.1, 0.1, 2.0)]
        asked += [Change("cap", flow, by) for flow in capped for by in (-0.2, 0.4)]
        asked += [Change("weight", flow, by) for flow in range(6) for by in (-0.5, 1.0)]
        return linearize(
            net, fb.Routes.from_paths(self.paths, n_links=5), asked, self.objective,
            weights=given["weight"], caps=given["cap"],
        )  # fmt: skip

    def after(self, row, by):
        """The objective in fractions, by another solver."""
        new = {name: values.copy() for name, values in self.given.items()}
        new[row.what][row.key] *= 1 + by
        problem = Problem.from_paths(
            new["link"], self.paths, weights=new["weight"], caps=new["cap"]
        )  # fmt: skip
        rates = [float(rate) for rate in max_min_rates_exact(problem)]
        return min(rates) if self.objective == "slowest" else sum(rates) / 6


@pytest.mark.parametrize("unit", [1e-9, 1e15])
def test_rows_and_reaches_are_those_of_exact_rationals(unit):
    bent = tried = 0
    for seed in range(12):
        case = Drawn(seed, unit)
        table = case.table()
        for row in table:
            want = case.after(row, row.by)
            assert row.value == pytest.approx(want, rel=1e-9, abs=1e-12 * unit), row
            way, reach = np.sign(row.by), row.exact_within
            if row.what == "weight" or not 1e-6 < reach < 1e3:
                continue
            line = (case.after(row, way * reach / 2) - table.value) / (reach / 2)
            end = case.after(row, way * reach * (1 - 1e-9))
            assert end == pytest.approx(table.value + line * reach, rel=1e-8, abs=1e-9 * unit), row
            if way * reach * 1.01 > -1:
                past = case.after(row, way * reach * 1.01)
                bent += abs(past - table.value - line * reach * 1.01) > 1e-6 * table.value
                tried += 1
    # A reach is a lower bound, and often the place itself.
    assert bent > tried / 3
