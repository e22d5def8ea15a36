"""What `fabric list topologies` and `fabric list routing` show."""

import numpy as np
import pytest

from fabric import routing, topologies
from fabric.cli._list_rules import EXAMPLES


def test_every_builder_has_a_line_and_an_example_that_builds(fabric):
    answer = fabric("list", "topologies", "--format", "json").json
    assert answer["names"] == list(topologies.BUILDERS)
    assert all(row["does"] for row in answer["rows"])
    assert set(EXAMPLES) == set(topologies.BUILDERS)


@pytest.mark.parametrize("name", topologies.BUILDERS)
def test_the_example_of_a_builder_builds_and_names_it(name):
    net = topologies.build(EXAMPLES[name])
    assert EXAMPLES[name].startswith(f"{name}:")
    assert len(net.hosts) > 1
    assert np.asarray(net.capacity).min() > 0


def test_every_routing_rule_has_a_line(fabric):
    answer = fabric("list", "routing", "--format", "json").json
    assert answer["names"] == list(routing.ROUTINGS)
    lines = fabric("list", "routing").lines
    assert max(map(len, lines)) <= 100
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in routing.ROUTINGS)


@pytest.mark.parametrize("kind", ["topology", "topologies", "builders"])
def test_a_builder_shows_its_arguments_and_how_to_call_it(fabric, kind):
    ran = fabric("list", kind, "fat-tree")
    assert "for example: fabric topo fat_tree:k=8" in ran.out
    assert any(line.split() == ["k", "required"] for line in ran.lines)
    assert any(line.split() == ["capacity", "400Gb/s"] for line in ran.lines)
    assert max(map(len, ran.lines)) <= 100


def test_a_rule_shows_its_definition_and_its_options_but_not_its_inputs(fabric):
    answer = fabric("list", "routing", "ecmp", "--format", "json").json
    assert answer["about"].startswith("ECMP: at every node")
    words = [line.split()[0] for line in fabric("list", "routing", "ecmp").lines]
    assert "queue_pairs" in words
    assert not {"network", "flows"} & set(words)


def test_an_unknown_builder_or_rule_is_refused_with_the_nearest(refused):
    assert "Did you mean 'torus'?" in refused("list", "topology", "toruss")
    assert "Did you mean 'spray'?" in refused("list", "routing", "spry")
