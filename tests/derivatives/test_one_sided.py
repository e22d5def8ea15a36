"""What `one_sided` promises about the derivative of the rates, one test per promise."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from tests.derivatives.drawn import PARAMETERS, STEP, exact_derivative, tied_problems

N_PROBLEMS = 1_000
SIZE = 7

rates = lambda solution: solution.rates


@cache
def problems():
    return list(tied_problems(N_PROBLEMS))


def routes_of(paths, n_links, **kwargs):
    return fb.Routes.from_paths(paths, n_links=n_links, **kwargs)


def along(links, paths, function=rates, **direction):
    """Return the derivative for links of these capacities, at one padded shape for all tests."""
    more = SIZE - len(links)
    net = fb.Network(np.r_[np.array(links, np.float64), np.ones(more)])
    caps = np.r_[np.full(len(paths), np.inf), np.ones(SIZE - len(paths))]
    paths = [*paths, *[[]] * (SIZE - len(paths))]
    routes = routes_of(paths, SIZE, caps=caps, pad_to=2 * SIZE)
    moves = {
        name: np.r_[np.array(move, np.float64), np.zeros(more)] for name, move in direction.items()
    }
    return np.asarray(fb.one_sided(function, net, routes, moves)[1])


def test_it_equals_the_exact_one_sided_difference_on_problems_full_of_ties():
    for i, (drawn, direction) in enumerate(problems()):
        value, got = fb.one_sided(rates, drawn.network, drawn.routes, direction)
        want = [float(x) for x in exact_derivative(drawn, direction)]
        # Ten rounds of a few roundings; 2e-13 was measured, 1e-5 is what users need.
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10, err_msg=f"problem {i}")
        exact = [float(rate) for rate in drawn.exact] if i % 10 == 0 else value
        np.testing.assert_allclose(value, exact, rtol=1e-12, err_msg=f"problem {i}")


def test_ties_survive_the_rounding_of_their_values():
    # Rates are homogeneous: with capacities and caps 0.7 times as large, now rounded so that ties
    # are off by some ulps, the derivative along the same direction is the same.
    for i, (drawn, direction) in enumerate(problems()[:200]):
        move = {name: direction[name] for name in ("capacity", "caps")}
        small = replace(drawn, capacity=0.7 * drawn.capacity, caps=0.7 * drawn.caps)
        want, got = (fb.one_sided(rates, d.network, d.routes, move)[1] for d in (drawn, small))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10, err_msg=f"problem {i}")


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_alone_equals_the_exact_one_sided_difference(name):
    moved = [(drawn, direction) for drawn, direction in problems()[:80] if direction[name].any()]
    assert len(moved) > 25
    for drawn, direction in moved:
        only = {name: direction[name]}
        got = fb.one_sided(rates, drawn.network, drawn.routes, only)[1]
        want = [float(x) for x in exact_derivative(drawn, only)]
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_the_exact_differences_lie_before_the_next_change_of_bottlenecks():
    for drawn, direction in problems()[:50]:
        whole, half = (exact_derivative(drawn, direction, h) for h in (STEP, STEP / 2))
        # A moving weight or use bends the rates, but over the step by less than this.
        assert all(abs(a - b) <= Fraction(1, 10**15) for a, b in zip(whole, half, strict=True))


def test_most_drawn_problems_have_a_kink_along_their_direction():
    kinked = 0
    for drawn, direction in problems()[:100]:
        move = np.where(drawn.capacity == 0, 0, direction["capacity"])
        forth, back = (exact_derivative(drawn, {"capacity": s * move}) for s in (1, -1))
        kinked += forth != [-x for x in back]
    assert kinked > 30


def test_float32_equals_the_exact_one_sided_difference():
    for drawn, direction in problems()[:60]:
        net = fb.Network(drawn.capacity.astype(np.float32))
        got = fb.one_sided(rates, net, drawn.routes, direction)[1]
        assert got.dtype == jnp.float32
        want = np.array([float(x) for x in exact_derivative(drawn, direction)])
        # A few ulp of 1.2e-7 per round, magnified where a small remainder is shared.
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


FABRICS = {
    "leaf-spine-1:1": lambda: fb.topologies.leaf_spine(leaves=4, spines=4, hosts_per_leaf=4),
    "leaf-spine-2:1": lambda: fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4),
    "fat-tree-8": lambda: fb.topologies.fat_tree(k=8),
}
TRAFFIC = {
    "permutation": lambda net: fb.traffic.permutation(net.hosts, seed=0),
    "all-to-all": lambda net: fb.traffic.all_to_all(net.hosts),
}
ROUTINGS = {"ecmp": lambda *x: fb.routing.ecmp(*x, seed=0), "spray": fb.routing.spray}


@pytest.mark.parametrize(
    ("fabric", "traffic", "routing"),
    [
        ("leaf-spine-1:1", "permutation", "ecmp"),
        ("leaf-spine-1:1", "all-to-all", "spray"),
        ("leaf-spine-2:1", "permutation", "spray"),
        ("leaf-spine-2:1", "all-to-all", "ecmp"),
        ("fat-tree-8", "permutation", "ecmp"),
        ("fat-tree-8", "permutation", "spray"),
        ("fat-tree-8", "all-to-all", "ecmp"),
        ("fat-tree-8", "all-to-all", "spray"),
    ],
)
def test_it_equals_a_one_sided_difference_on_clos_fabrics(fabric, traffic, routing):
    net = FABRICS[fabric]()
    routes = ROUTINGS[routing](net, TRAFFIC[traffic](net))
    capacity, unit = np.asarray(net.capacity), float(net.capacity[0])
    used = np.unique(routes.part_link if routes.n_parts else routes.hop_bundle)
    one = np.zeros(net.n_links)
    one[used[len(used) // 2]] = unit
    tier = unit * net.labels.is_tier(net.labels.tiers[-1])
    some = unit * np.random.default_rng(0).normal(size=net.n_links)
    solve = lambda c: np.asarray(fb.max_min_rates(net.with_capacity(c), routes).rates)
    h, base = 1e-7, solve(capacity)
    ways = np.stack([one, -one, tier, -tier, some])
    both = lambda s: (s.rates, s.rates.min())
    _, (got, slowest) = fb.one_sided(both, net, routes, {"capacity": ways})
    for way, tangent, least in zip(ways, got, slowest, strict=True):
        ahead = solve(capacity + h * way)
        # Rates are right to 1e-14 of the unit or so; divided by h, 1e-7 of it.
        np.testing.assert_allclose(tangent, (ahead - base) / h, rtol=1e-5, atol=2e-7 * unit)
        want = (ahead.min() - base.min()) / h
        np.testing.assert_allclose(least, want, rtol=1e-5, atol=2e-7 * unit)


@pytest.mark.parametrize(
    ("capacity", "paths", "move", "gain"),
    [
        pytest.param([6, 6], [[0, 1]] * 3, [1, 0], [0, 0, 0], id="one-of-two-tied-raised"),
        pytest.param([6, 6], [[0, 1]] * 3, [-1, 0], [-1 / 3] * 3, id="one-of-two-tied-lowered"),
        pytest.param([6, 6], [[0, 1]] * 3, [1, 2], [1 / 3] * 3, id="both-raised"),
        pytest.param([6, 8], [[0, 1]] * 2, [1, 9], [0.5, 0.5], id="no-tie"),
        # Flow 2 fills what flow 0 leaves on link 1; link 0 stops flow 0 first or at once.
        pytest.param([2, 2], [[0, 1], [0], [1]], [1, 0], [0, 1, 0], id="tied-links-side-by-side"),
        pytest.param([2, 2], [[0, 1], [0], [1]], [-1, 0], [-0.5, -0.5, 0.5], id="lowered"),
        pytest.param([0, 4], [[0, 1], [1]], [1, 0], [1, -1], id="capacity-0-begins-to-grow"),
        pytest.param([0, 0], [[0, 1], [1]], [1, 4], [1, 3], id="both-capacities-0"),
    ],
)
def test_hand_solved_ties(capacity, paths, move, gain):
    got = along(capacity, paths, capacity=move)
    np.testing.assert_allclose(got[: len(paths)], gain, rtol=1e-12, atol=1e-14)


def test_a_cap_that_ties_with_a_link_stops_the_flow_on_one_side_only():
    # Both flows reach 5 at the link as flow 0 reaches its cap.
    net, routes = fb.Network([10.0]), routes_of([[0], [0]], 1, caps=[5.0, np.inf])
    raised, lowered = (
        fb.one_sided(rates, net, routes, {"capacity": np.array([d])})[1] for d in (1.0, -1.0)
    )
    np.testing.assert_allclose(raised, [0.0, 1.0], atol=1e-14)
    np.testing.assert_allclose(lowered, [-0.5, -0.5], rtol=1e-12)


def test_the_published_example_has_its_published_gradient():
    paths = [[0], [1], [0, 1], [1, 2], [2, 3], [0, 2]]
    got = along([25.0, 50.0, 100.0, 75.0], paths, capacity=[1, 0, 0, 0])
    np.testing.assert_allclose(got[:6], np.array([2, -1, 2, -1, -1, 2]) / 6, rtol=1e-12)


def test_a_failed_link_stays_at_rate_0_whatever_its_capacity_does():
    net = fb.Network([5.0, 5.0]).with_alive(np.array([True, False]))
    routes = routes_of([[0], [0, 1]], 2)
    got = fb.one_sided(rates, net, routes, {"capacity": np.array([1.0, -1.0])})[1]
    np.testing.assert_allclose(got, [1.0, 0.0], atol=1e-14)


def test_twice_the_direction_gives_twice_the_derivative():
    for drawn, direction in problems()[:50]:
        twice = {name: 2 * move for name, move in direction.items()}
        one, two = (
            fb.one_sided(rates, drawn.network, drawn.routes, d)[1] for d in (direction, twice)
        )
        # Every operation is exactly doubled, but the tie slack sees other roundings.
        np.testing.assert_allclose(two, 2 * one, rtol=1e-10, atol=1e-10)


def test_forth_and_back_cancel_away_from_ties_and_only_there():
    chain = [[0, 1], [0], [1, 2], [2]]
    move = np.array([1.0, -0.5, 2.0])
    forth, back = (along([10.0, 4.0, 9.0], chain, capacity=s * move) for s in (1, -1))
    np.testing.assert_allclose(forth, -back, rtol=1e-12)
    tied = [along([6.0, 6.0], [[0, 1]], capacity=[s, 0.0])[0] for s in (1, -1)]
    np.testing.assert_allclose(tied, [0.0, -1.0], atol=1e-14)


def test_it_equals_the_central_difference_away_from_ties():
    routes = routes_of([[0, 1], [0], [1, 2], [2]], 3)
    capacity, move = np.array([10.0, 4.0, 9.0]), np.array([1.0, -0.5, 2.0])
    solve = lambda c: np.asarray(fb.max_min_rates(fb.Network(c), routes).rates)
    got = fb.one_sided(rates, fb.Network(capacity), routes, {"capacity": move})[1]
    h = 1e-6  # far from every tie of this instance, so the derivative is constant here
    want = (solve(capacity + h * move) - solve(capacity - h * move)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-8)


def test_shares_an_ulp_apart_are_a_tie():
    # 0.1 + 0.2 is one ulp more than 0.3: raising the smaller alone must gain nothing.
    got = along([0.3, 0.1 + 0.2], [[0, 1]], capacity=[1, 0])
    np.testing.assert_allclose(got[0], 0.0, atol=1e-14)
    far = along([0.3, 0.3 + 1e-9], [[0, 1]], capacity=[1, 0])
    np.testing.assert_allclose(far[0], 1.0, rtol=1e-12)


def test_a_cap_an_ulp_above_a_share_is_a_tie():
    net, routes = fb.Network([0.6]), routes_of([[0], [0]], 1, caps=[0.1 + 0.2, np.inf])
    got = fb.one_sided(rates, net, routes, {"capacity": np.array([2.0])})[1]
    np.testing.assert_allclose(got, [0.0, 2.0], atol=1e-14)


def test_near_ties_in_a_circle_do_not_stall():
    # Each share is near the next, but the first and the last are not near each other, and every
    # link meets a flow that would rather stop elsewhere: a round that freezes nothing.
    links = 2 * (1 + 1.5e-12 * np.arange(3))
    got = along(links, [[0, 1], [1, 2], [0, 2]], capacity=[3, 2, 1])
    # Bitwise, link 0 is first and stops flows 0 and 2; flow 1 then takes what is left.
    np.testing.assert_allclose(got[:3], [1.5, -0.5, 1.5], rtol=1e-12)


def test_several_directions_equal_a_loop():
    for drawn, _ in problems()[:5]:
        rng = np.random.default_rng(1)
        ways = {
            "capacity": np.abs(rng.integers(-2, 3, (4, len(drawn.capacity)))).astype(np.float64),
            "weights": rng.integers(-1, 2, (4, len(drawn.weights))).astype(np.float64),
        }
        value, got = fb.one_sided(rates, drawn.network, drawn.routes, ways)
        assert value.shape == (len(drawn.weights),)
        for i in range(4):
            each = {name: way[i] for name, way in ways.items()}
            want = fb.one_sided(rates, drawn.network, drawn.routes, each)[1]
            np.testing.assert_allclose(got[i], want, rtol=1e-12, atol=1e-12)


NET, ROUTES = fb.place(fb.Network([6.0, 6.0, 9.0]), routes_of([[0, 1], [0, 2], [1, 2], [2]], 3))
WAY = jnp.array([1.0, -1.0, 0.5])


def slowest(net, routes, way):
    return fb.one_sided(lambda s: s.rates.min(), net, routes, {"capacity": way}, throw=False)


def test_jit_equals_the_plain_call():
    for inside, outside in zip(
        jax.jit(slowest)(NET, ROUTES, WAY), slowest(NET, ROUTES, WAY), strict=True
    ):
        np.testing.assert_allclose(inside, outside, rtol=1e-12)


@pytest.mark.parametrize("traced", ["direction", "nothing"])
def test_a_constant_problem_inside_jit_equals_the_plain_call(traced):
    net, routes = fb.Network(np.asarray(NET.capacity)), ROUTES
    gain = lambda way: fb.one_sided(rates, net, routes, {"capacity": way})[1]
    got = jax.jit(gain)(WAY) if traced == "direction" else jax.jit(lambda: gain(np.array(WAY)))()
    np.testing.assert_allclose(got, gain(WAY), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(gain)(jnp.stack([WAY, WAY])), [got, got], rtol=1e-12)


def test_vmap_over_capacity_and_direction_equals_a_loop():
    capacities = jnp.stack([NET.capacity, NET.capacity[::-1], NET.capacity.at[2].set(4.0)])
    ways = jnp.stack([WAY, -WAY, WAY[::-1]])
    each = lambda c, way: slowest(NET.with_capacity(c), ROUTES, way)
    loop = [each(c, way) for c, way in zip(capacities, ways, strict=True)]
    value, tangent = jax.jit(jax.vmap(each))(capacities, ways)
    np.testing.assert_allclose(value, [v for v, _ in loop], rtol=1e-12)
    np.testing.assert_allclose(tangent, [t for _, t in loop], rtol=1e-12)


def test_new_values_and_directions_reuse_the_program():
    once = eqx.filter_jit(eqx.debug.assert_max_traces(slowest, max_traces=1))
    first = once(NET, ROUTES, WAY)
    second = once(NET.with_capacity(2 * NET.capacity), ROUTES, -2 * WAY)
    assert not np.array_equal(first[1], second[1])


COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: COMPILED.append(event) if "backend_compile" in event else None
)


def test_a_plain_call_with_new_values_compiles_nothing():
    # A shape of which no other test has a program.
    net, routes = fb.place(fb.Network(np.arange(1.0, 8.0)), routes_of([[i] for i in range(7)], 7))
    other, way = net.with_capacity(2 * net.capacity), jnp.arange(7.0)
    back = jnp.flip(way)
    before = len(COMPILED)
    slowest(net, routes, way)
    first = len(COMPILED)
    assert first > before
    slowest(other, routes, back)
    assert len(COMPILED) == first


def test_without_throw_the_program_holds_no_host_callback():
    text = jax.jit(slowest).trace(NET, ROUTES, WAY).lower(lowering_platforms=("cuda",)).as_text()
    assert "while" in text
    assert "callback" not in text


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("by", ["network", "routes", "direction"])
def test_differentiation_is_refused_by_name(transform, by):
    def gain(x):
        net = NET.with_capacity(x) if by == "network" else NET
        routes = eqx.tree_at(lambda r: r.weight, ROUTES, x) if by == "routes" else ROUTES
        return slowest(net, routes, x if by == "direction" else WAY)[1]

    at = {"network": NET.capacity, "routes": ROUTES.weight, "direction": WAY}[by]
    for function in (gain, jax.jit(gain)):
        with pytest.raises(NotImplementedError, match=r"`one_sided` .*derivative=\"select\"") as e:
            transform(function)(at)
        assert "not linear in its direction" in str(e.value)


def test_too_few_rounds_are_an_error_or_unknown_derivatives():
    net, routes = fb.Network([1.0, 5.0, 9.0]), routes_of([[0, 1], [1, 2], [2]], 3)
    way = {"capacity": np.ones(3)}
    with pytest.raises(fb.UnsolvedError, match="stopped at `max_rounds`"):
        fb.one_sided(rates, net, routes, way, max_rounds=1)
    got = fb.one_sided(rates, net, routes, way, max_rounds=1, throw=False)[1]
    np.testing.assert_allclose(got, [1.0, np.nan, np.nan])
    with pytest.raises(eqx.EquinoxRuntimeError, match="stopped at `max_rounds`"):
        eqx.filter_jit(fb.one_sided)(rates, *fb.place(net, routes), way, max_rounds=1)


def test_an_unbounded_flow_is_an_error():
    with pytest.raises(fb.UnsolvedError, match="crosses no link"):
        along([1.0], [[0], []], capacity=[1.0])


def test_no_flow_is_a_legal_problem():
    net, routes = fb.Network([1.0, 2.0]), routes_of([], 2)
    got = fb.one_sided(rates, net, routes, {"capacity": np.ones(2)})[1]
    assert got.shape == (0,)


@pytest.mark.parametrize(
    ("direction", "text"),
    [
        ({"capacities": np.ones(2)}, "no key 'capacities'. Did you mean 'capacity'"),
        ({}, "`direction` is empty"),
        ({"capacity": np.ones(3)}, r"\['capacity'\]` has shape \(3,\), but needs \(2,\)"),
        ({"capacity": np.ones((3, 2)), "caps": np.ones(2)}, "'capacity' 3, 'caps' one, no axis"),
        ({"capacity": np.ones((0, 2))}, "0 directions"),
        ({"capacity": np.array([-1.0, 1.0])}, "lowers 1 links that have capacity 0: 'link 0'"),
        ({"caps": np.array([-1.0, 0.0])}, "lowers 1 caps that are 0, at flows '0'"),
        ({"hop_use": np.array([0.0, 0.5, 0.0])}, "changes 1 entries of use 0, at entries '1'"),
        ({"weights": np.array([np.nan, 0.0])}, "needs finite numbers, but 1 of 2 are not"),
    ],
)
def test_a_wrong_direction_is_refused_by_name(direction, text):
    net = fb.Network([0.0, 4.0])
    routes = routes_of([[0, 1], [1]], 2, usage=[[1.0, 0.0], [1.0]], caps=[0.0, np.inf])
    with pytest.raises(fb.ModelError, match=text):
        fb.one_sided(rates, net, routes, direction)


def test_all_faults_of_a_direction_are_said_at_once():
    net, routes = fb.Network([0.0]), routes_of([[0]], 1, caps=[0.0])
    way = {"capacity": np.array([-1.0]), "caps": np.array([-1.0])}
    with pytest.raises(fb.ModelError) as caught:
        fb.one_sided(rates, net, routes, way)
    assert "capacity 0" in str(caught.value)
    assert "caps that are 0" in str(caught.value)


def test_padding_has_no_tangent():
    net, routes = fb.Network([6.0]), routes_of([[0], [0]], 1, pad_to=5)
    way = {"hop_use": np.array([1.0, 0.0, 7.0, 7.0, 7.0])}
    # r (1 + h) + r = 6, so both rates fall by 3/2.
    np.testing.assert_allclose(fb.one_sided(rates, net, routes, way)[1], [-1.5, -1.5])
