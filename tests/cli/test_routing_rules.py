"""What `--routing NAME:key=value` promises on the command line."""

import numpy as np
import pytest

import fabric as fb
from tests.cli.conftest import SMALL

MESH = "torus:dims=4x4,capacity=400Gb/s"


def solved(fabric, spec, *more):
    return fabric("solve", spec, "--pattern", "ring", "--format", "json", *more).json


@pytest.mark.parametrize(
    ("rule", "spec", "call"),
    [
        ("flowlet:n=3,hash=path", SMALL,
         lambda net, flows: fb.routing.flowlet(net, flows, n=3, hash="path", seed=5)),
        ("k-shortest:k=2", SMALL,
         lambda net, flows: fb.routing.k_shortest(net, flows, k=2, seed=5)),
        ("dimension_order:halfway=up", MESH,
         lambda net, flows: fb.routing.dimension_order(net, flows, halfway="up")),
        ("ecmp:salt=shared", SMALL,
         lambda net, flows: fb.routing.ecmp(net, flows, salt="shared", seed=5)),
    ],
    ids=["flowlet", "k-shortest", "dimension-order", "ecmp"],
)  # fmt: skip
def test_a_rule_and_its_options_give_the_rates_of_the_same_call(fabric, rule, spec, call):
    answer = solved(fabric, spec, "--routing", rule, "--seed", "5")
    net = fb.topologies.build(spec)
    routes = call(net, fb.Flows(net.hosts, np.roll(net.hosts, -1)))
    rates = np.asarray(fb.max_min_rates(net, routes).rates)
    # Sums in another order: a few ulp.
    assert answer["rate"]["total"] == pytest.approx(float(rates.sum()), rel=1e-12)
    assert answer["routing"]["name"] == rule.partition(":")[0].replace("-", "_")


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("flowlet:n=3", {"n": 3, "hash": "hop", "key": "row"}),
        ("flowlet", {"n": 8, "hash": "hop", "key": "row"}),
        ("k_shortest", {"k": 4, "split": "equal"}),
        ("valiant", {"intermediates": "all", "via": "switch"}),
        ("spray", {}),
        ("spray:max_parts=1000", {"max_parts": 1000}),
    ],
)
def test_all_options_in_effect_are_in_the_answer_and_in_its_text(fabric, rule, options):
    answer = solved(fabric, SMALL, "--routing", rule)
    assert answer["routing"]["options"] == options
    text = fabric("solve", SMALL, "--pattern", "ring", "--routing", rule).out
    seed = ", seed 0" if answer["routing"]["draws"] else ""
    said = "".join(f", {key} {value}" for key, value in options.items())
    assert f"routing: {rule.partition(':')[0]}{seed}{said} (as asked for)" in text


def test_all_wrong_options_are_named_at_once(refused):
    message = refused("solve", SMALL, "--pattern", "ring", "--routing", "flowlet:n=x,m=2,seed=1,k")
    assert "'n' needs a whole number, but got 'x'" in message
    assert "has no option 'm'" in message
    assert "'seed' has a flag, `--seed`" in message
    assert "'k' is not of the form `key=value`" in message


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("flowlets", "Did you mean 'flowlet'?"),
        ("flowlet:n=1,n=2", "'n' is given twice"),
        ("tables:n=2", "takes no options"),
    ],
)
def test_an_unknown_rule_or_option_is_refused_with_the_next_step(refused, rule, said):
    assert said in refused("solve", SMALL, "--pattern", "ring", "--routing", rule)


def test_a_collective_takes_a_rule_but_no_options_of_it(fabric, refused):
    asked = ("coll", SMALL, "all_to_all", "--sizes", "1MiB", "--routing")
    assert "routing: flowlet (user: as asked for)" in fabric(*asked, "flowlet").out
    assert "takes no options" in refused(*asked, "flowlet:n=2")


def test_queue_pairs_are_refused_where_a_rule_has_none(refused, monkeypatch):
    monkeypatch.setitem(fb.routing.ROUTINGS, "single", lambda network, flows: None)
    message = refused(
        "solve", SMALL, "--pattern", "ring", "--routing", "single", "--queue-pairs", "2"
    )
    assert "`--queue-pairs 2` is not for `--routing single`" in message


def test_a_rule_that_needs_more_than_text_says_what(refused, monkeypatch):
    monkeypatch.setitem(fb.routing.ROUTINGS, "needy", lambda network, flows, weights: None)
    message = refused("solve", SMALL, "--pattern", "ring", "--routing", "needy")
    assert "needs 'weights', as in `needy:weights=...`" in message


def test_a_seed_is_no_assumption_of_a_rule_that_draws_nothing(fabric):
    names = lambda rule: {
        entry["name"] for entry in solved(fabric, SMALL, "--routing", rule)["assumptions"]
    }
    assert "seed" in names("valiant")
    assert "seed" not in names("spray")
