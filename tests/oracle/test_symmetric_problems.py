"""Quotients have the rates of the problem they come from, and colliding hashes never pass."""

import numpy as np
import pytest

import fabric as fb
from fabric.solvers import _symmetry
from tests.golden.instances import LARGE, MEDIUM, SMALL, instance
from tests.oracle.planted import lift
from tests.oracle.problems import N_FLOWS, drawn_problems

COPIES = 3


def same(net, routes, lifted):
    """Compare a lifted solution with the compiled one, evidence included."""
    plain = fb.max_min_rates(net, routes, method="compiled")
    np.testing.assert_allclose(lifted.rates, plain.rates, rtol=1e-12)
    np.testing.assert_array_equal(lifted.bottleneck, plain.bottleneck)
    np.testing.assert_array_equal(lifted.saturated, plain.saturated)
    # The margin is the difference of two levels, each off by a few roundings.
    np.testing.assert_allclose(lifted.tie_margin, plain.tie_margin, atol=1e-12)
    assert fb.certify(net, routes, lifted) <= 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_symmetry_is_found_and_has_the_exact_rates(seed):
    rng = np.random.default_rng(seed)
    for drawn in drawn_problems(250, seed=seed):
        net, routes = lift(drawn, COPIES, rng)
        quotient = fb.compress(net, routes)
        assert quotient.n_flow_classes <= N_FLOWS
        lifted = quotient.lift(quotient.solve())
        exact = np.repeat([float(rate) for rate in drawn.exact], COPIES)
        np.testing.assert_allclose(lifted.rates, exact, rtol=1e-12)
        same(net, routes, lifted)


@pytest.mark.parametrize("seed", range(4))
def test_a_problem_without_symmetry_is_its_own_quotient(seed):
    for i, drawn in enumerate(drawn_problems(250, seed=10 + seed)):
        net, routes = drawn.network, drawn.routes
        quotient = fb.compress(net, routes, least=1)
        lifted = quotient.lift(quotient.solve())
        np.testing.assert_allclose(lifted.rates, [float(r) for r in drawn.exact], rtol=1e-12)
        same(net, routes, lifted)
        if i % 5 == 0:
            rounds = fb.max_min_rates(*fb.place(net, routes), method="rounds")
            np.testing.assert_allclose(lifted.rates, rounds.rates, rtol=1e-12)


@pytest.mark.parametrize("mask", [0b10, 0b1110], ids=["two-hashes", "eight-hashes"])
def test_colliding_hashes_are_found_out(mask, monkeypatch):
    monkeypatch.setattr(_symmetry, "MASK", mask)
    rng = np.random.default_rng(5)
    refused = []
    for drawn in drawn_problems(100, seed=20):
        net, routes = lift(drawn, COPIES, rng)
        try:
            lifted = fb.max_min_rates(net, routes, method="quotient")
        except fb.InfeasibleError as error:
            refused.append(str(error))
            continue
        exact = np.repeat([float(rate) for rate in drawn.exact], COPIES)
        np.testing.assert_allclose(lifted.rates, exact, rtol=1e-12)
    assert refused
    assert all("colliding hashes" in text for text in refused)


def routed(name):
    made = instance(name)
    net = fb.Network(made["capacity"])
    return net, fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=net.n_links)


@pytest.mark.parametrize("name", [*SMALL, *MEDIUM, *LARGE])
def test_golden_instances_are_solved_alike_or_given_up(name):
    net, routes = routed(name)
    if name == "ls-1k":  # one permutation and one capacity: half of the flows have an equal
        lifted = fb.max_min_rates(net, routes, method="quotient")
        assert lifted.method.startswith("quotient")
        same(net, routes, lifted)
    else:
        with pytest.raises(fb.InfeasibleError, match="flows per class"):
            fb.max_min_rates(net, routes, method="quotient")


@pytest.mark.parametrize("name", [*SMALL, *MEDIUM])
def test_pressed_for_it_golden_instances_have_a_quotient_of_the_same_rates(name):
    net, routes = routed(name)
    quotient = fb.compress(net, routes, least=1)
    same(net, routes, quotient.lift(quotient.solve()))
