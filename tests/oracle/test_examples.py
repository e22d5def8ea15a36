"""Worked examples of textbooks, drafts and other solvers, with answers as fractions.

The reference file gives, by name: `capacities` of links; `routes`, the links of each flow;
`weights` and `rate_caps` of flows, where they differ from 1 and none; `consumption`, the load on a
link per unit rate of a flow, where it is not 1; and `rates`. All are in one unit, as text that
`Fraction` reads. A bottleneck `cap:NAME` is the flow's own cap.
"""

import json
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import fabric as fb
from fabric.reference import CAP, Problem, bottlenecks_exact, max_min_rates_exact, violation


@dataclass(frozen=True)
class Example:
    name: str
    capacity: list[Fraction]
    paths: list[list[int]]
    usage: list[list[Fraction]]
    weights: list[Fraction]
    caps: list[Fraction | float]
    rates: list[Fraction]
    bottlenecks: list[set[int]]

    @classmethod
    def read(cls, row: dict) -> "Example":
        number = {link: i for i, link in enumerate(row["capacities"])}
        routes, consumption = row["routes"], row.get("consumption", {})
        caps = row.get("rate_caps", {})
        return cls(
            name=row["name"],
            capacity=[Fraction(c) for c in row["capacities"].values()],
            paths=[[number[link] for link in path] for path in routes.values()],
            usage=[
                [Fraction(consumption.get(flow, {}).get(link, 1)) for link in path]
                for flow, path in routes.items()
            ],
            weights=[Fraction(row.get("weights", {}).get(flow, 1)) for flow in routes],
            caps=[Fraction(caps[flow]) if flow in caps else math.inf for flow in routes],
            rates=[Fraction(row["rates"][flow]) for flow in routes],
            bottlenecks=[
                {
                    CAP if item == f"cap:{flow}" else number[item]
                    for item in row["bottlenecks"][flow]
                }
                for flow in routes
            ],
        )

    @property
    def problem(self) -> Problem:
        return Problem.from_paths(self.capacity, self.paths, self.usage, self.weights, self.caps)


@pytest.fixture(scope="module")
def examples(shared) -> list[Example]:
    read = json.loads((shared / "validation" / "maxmin_examples.json").read_text())
    return [Example.read(row) for row in read["examples"]]


def test_the_file_holds_weights_caps_uses_and_a_dead_link(examples):
    assert len(examples) >= 20
    assert any(set(e.weights) != {1} for e in examples)
    assert any(min(e.caps) < math.inf for e in examples)
    assert any(use > 1 for e in examples for row in e.usage for use in row)
    assert any(0 in e.capacity for e in examples)


def test_the_exact_oracle_gives_the_fractions_of_every_example(examples):
    found = {e.name: max_min_rates_exact(e.problem) for e in examples}
    assert found == {e.name: e.rates for e in examples}


def test_the_exact_oracle_names_the_bottlenecks_of_every_example(examples):
    found = {e.name: bottlenecks_exact(e.problem, e.rates) for e in examples}
    assert found == {e.name: e.bottlenecks for e in examples}


def test_the_reference_certificate_is_zero_on_every_example(examples):
    assert {e.name: violation(e.problem, e.rates) for e in examples} == {
        e.name: 0 for e in examples
    }


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_every_method_gives_the_rates_of_every_example(examples, method):
    for e in examples:
        network = fb.Network([float(c) for c in e.capacity])
        routes = fb.Routes.from_paths(
            e.paths,
            n_links=len(e.capacity),
            usage=[[float(use) for use in row] for row in e.usage],
            weights=[float(w) for w in e.weights],
            caps=[float(cap) for cap in e.caps],
            pad_to=20,
        )
        solution = fb.max_min_rates(network, routes, method=method)
        np.testing.assert_allclose(
            solution.rates, [float(r) for r in e.rates], rtol=1e-12, err_msg=e.name
        )
        assert fb.certify(network, routes, solution) <= 1e-9, e.name
