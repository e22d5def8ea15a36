"""What `Routes` and `place` promise."""

import copy
import dataclasses
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric.cli import _answer
from fabric.network import Blueprint


def test_routes_refuse_numbers_out_of_range():
    with pytest.raises(fb.ModelError, match=r"needs link numbers from 0 to 1, but 1 of 2 .*'2'"):
        fb.Routes.from_paths([[0, 2]], n_links=2)
    with pytest.raises(fb.ModelError, match="`hop_use` needs a finite use of 0 or more"):
        fb.Routes.from_paths([[0]], n_links=1, usage=[[-1.0]])
    with pytest.raises(fb.ModelError, match=r"differs in length at flows '1'"):
        fb.Routes.from_paths([[0], [0]], n_links=1, usage=[[1.0], []])
    with pytest.raises(fb.ModelError, match="needs to rise from 0"):
        fb.Routes.from_csr([0, 2, 1], [0], n_links=1)
    with pytest.raises(fb.ModelError, match=r"`weights` has 3 values for 1 flows"):
        fb.Routes.from_paths([[0]], n_links=1, weights=[1.0, 1.0, 1.0])
    with pytest.raises(
        fb.ModelError, match=r"`pad_hops=1` is too small: there are 3 .*`pad_hops=4`"
    ):
        fb.Routes.from_paths([[0, 1, 2]], n_links=3, pad_to=1)


def test_hops_are_sorted_by_flow():
    routes = fb.Routes.from_bundles(
        [1, 0, 1], [0, 1, 2], 1.0, (), (), (), n_flows=2, n_bundles=3, n_links=3
    )
    assert routes.hop_flow.tolist() == [0, 1, 1]
    assert routes.hop_bundle.tolist() == [1, 0, 2]


def test_per_flow_sums_queue_pairs():
    routes = fb.Routes.from_csr(
        [0, 1, 2, 3], [0, 0, 1], n_links=2, flow_of=np.array([0, 0, 1]), weights=[0.5, 0.5, 1.0]
    )
    np.testing.assert_allclose(routes.per_flow(np.array([1.0, 2.0, 4.0])), [3.0, 4.0])
    np.testing.assert_allclose(routes.per_flow(jnp.array([1.0, 2.0, 4.0])), [3.0, 4.0])


def test_place_pads_casts_and_keeps_the_answer():
    net, routes = fb.Network([10.0, 4.0]), fb.Routes.from_paths([[0, 1], [0]], n_links=2)
    placed_net, placed = fb.place(net, routes, pad_hops="auto", dtype="float32")
    assert placed.n_hops == 4
    assert placed_net.capacity.dtype == jnp.float32
    for method in ("rounds", "compiled"):
        np.testing.assert_allclose(
            fb.max_min_rates(placed_net, placed, method=method).rates, [4.0, 6.0], rtol=1e-6
        )
    with pytest.raises(fb.ModelError, match="no floating-point type"):
        fb.place(net, routes, dtype="int32")
    with pytest.raises(fb.ModelError, match="a pad is a number of entries"):
        fb.place(net, routes, pad_hops="big")


ONE = {"n_flows": 1, "n_links": 3}


def test_without_parts_there_are_as_many_bundles_as_links():
    with pytest.raises(fb.ModelError, match=r"`n_bundles=5` without parts: .* `n_links=3`"):
        fb.Routes.from_bundles([0], [4], 1.0, (), (), (), n_bundles=5, **ONE)
    padded = fb.Routes.from_bundles([0], [2], 1.0, (), (), (), n_bundles=3, pad_parts=8, **ONE)
    assert padded.n_parts == 0


def test_numbers_of_links_and_flows_are_never_rounded_or_wrapped():
    with pytest.raises(fb.ModelError, match=r"`flow_links` needs whole numbers .* '0.9'"):
        fb.Routes.from_csr([0, 1], np.array([0.9]), 1)
    with pytest.raises(fb.ModelError, match=r"`flow_ptr` needs whole numbers of 64 bits"):
        fb.Routes.from_csr(np.array([0.0, 1.5]), [0], 1)
    with pytest.raises(fb.ModelError, match=r"`paths` needs whole numbers .* '4294967296'"):
        fb.Routes.from_paths([[2**32]], 1)
    with pytest.raises(fb.ModelError, match=r"`flow_links` needs whole numbers .* '1e\+300'"):
        fb.Routes.from_csr([0, 1], np.array([1e300]), 1)


def test_one_value_per_flow_is_a_list():
    with pytest.raises(fb.ModelError, match=r"`weights` needs a list .* shape \(1, 1\)"):
        fb.Routes.from_paths([[0]], 1, weights=np.array([[1]]))
    with pytest.raises(fb.ModelError, match=r"`caps` needs numbers, but got <U1"):
        fb.Routes.from_paths([[0]], 1, caps=np.array(["1"]))


@pytest.mark.parametrize(
    ("flow_of", "said"),
    [
        ([0], "`flow_of` has 1 values for 2 flows"),
        ([0, 2], "`flow_of` needs flow numbers from 0 to 1, but 1 of 2 entries are not: '2'"),
        ([-1, 0], "entries are not: '-1'"),
    ],
)
def test_the_flow_of_every_row_is_checked(flow_of, said):
    with pytest.raises(fb.ModelError, match=said):
        fb.Routes.from_csr([0, 1, 2], [0, 0], 1, flow_of=flow_of)


def test_usage_of_another_shape_is_said_once():
    with pytest.raises(fb.ModelError, match=r"but it has 1 rows for 2 paths\.$"):
        fb.Routes.from_paths([[0], [0]], n_links=1, usage=[[1.0]])


def test_a_bad_weight_is_printed_as_a_plain_number():
    with pytest.raises(fb.ModelError, match=r"at flows '0' \(the first is 0.0\)"):
        fb.Routes.from_paths([[0]], 1, weights=[0.0])


def test_routes_without_flows_are_routes():
    routes = fb.Routes.from_paths([], n_links=2)
    assert (routes.n_flows, routes.n_hops, routes.n_pairs) == (0, 0, 0)


def test_hops_and_parts_refuse_writes_and_leave_the_arrays_of_the_caller_alone():
    use, link = np.array([1.0, 0.5]), np.array([0, 1], np.int32)
    routes = fb.Routes.from_bundles(
        [0, 0], [0, 1], 1.0, [0, 1], link, use, n_flows=1, n_bundles=2, n_links=2
    )
    with pytest.raises(ValueError, match="read-only"):
        routes.part_use[1] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        routes.hop_bundle[0] = 1
    use[1], link[1] = 7.0, 0
    assert (routes.part_use.tolist(), routes.part_link.tolist()) == ([1.0, 0.5], [0, 1])


def test_routes_out_of_a_tree_map_refuse_writes_once_they_have_a_layout():
    routes = jax.tree.map(np.array, fb.Routes.from_paths([[0]], 1))
    fb.max_min_rates(fb.Network([1.0]), routes)
    with pytest.raises(ValueError, match="read-only"):
        routes.hop_use[0] = 2.0


def test_with_rule_returns_other_routes_with_the_same_layouts():
    routes = fb.Routes.from_paths([[0]], 1)
    named = routes.with_rule(name="by hand")
    assert (routes.rule, named.rule) == ({"name": "given"}, {"name": "by hand"})
    assert named.plans is routes.plans
    assert fb.place(fb.Network([1.0]), named)[1].rule == {"name": "by hand"}


def test_place_says_its_own_name_where_links_are_counted_differently():
    with pytest.raises(
        fb.ModelError, match=r"`place` was given a network with 2 links .* n_links=1"
    ):
        fb.place(fb.Network([1.0, 1.0]), fb.Routes.from_paths([[0]], 1))


def _shallow(value):
    return copy.copy(value)


def _pickled(value):
    return pickle.loads(pickle.dumps(value))


COPIES = [_shallow, copy.deepcopy, _pickled]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_routes_has_no_layouts_and_refuses_writes(copied):
    routes = fb.Routes.from_paths([[0], [0]], 1).with_rule(name="by hand")
    net = fb.Network([6.0])
    fb.max_min_rates(net, routes, method="compiled")
    assert routes.plans
    other = copied(routes)
    assert not other.plans
    assert other.rule == {"name": "by hand"}
    for name in ("hop_flow", "hop_bundle", "hop_use", "part_link", "flow_of"):
        assert not getattr(other, name).flags.writeable, name
    np.testing.assert_array_equal(fb.max_min_rates(net, other, method="compiled").rates, [3.0, 3.0])


def test_the_arrays_of_routes_are_out_of_reach_of_their_former_owner():
    use = np.array([1.0, 1.0])
    routes = dataclasses.replace(fb.Routes.from_paths([[0], [0]], 1), hop_use=use)
    view = use.view()
    view.flags.writeable = False
    through_a_view = dataclasses.replace(routes, hop_use=view)
    use[1] = 4.0
    assert use.flags.writeable
    assert routes.hop_use.tolist() == [1.0, 1.0]
    assert through_a_view.hop_use.tolist() == [1.0, 1.0]


def test_read_only_memory_is_shared_and_not_copied():
    routes = fb.Routes.from_paths([[0], [0]], 1)
    assert dataclasses.replace(routes).hop_use is routes.hop_use
    assert routes.with_rule(name="by hand").hop_flow is routes.hop_flow


@pytest.mark.parametrize(
    ("flow_of", "sums"),
    [
        ([0, 1, 2], [1.0, 2.0, 4.0]),
        ([2, 0, 1], [2.0, 4.0, 1.0]),
        ([0, 0, 2], [3.0, 0.0, 4.0]),
        ([1, 1, 1], [0.0, 7.0]),
    ],
)
def test_per_flow_reads_the_flow_of_every_row(flow_of, sums):
    routes = fb.Routes.from_csr([0, 1, 2, 3], [0, 0, 0], 1, flow_of=flow_of)
    rates = np.array([1.0, 2.0, 4.0])
    placed = fb.place(fb.Network([7.0]), routes)[1]
    assert routes.row_is_flow == (flow_of == [0, 1, 2])
    for by in (routes, placed):
        np.testing.assert_array_equal(by.per_flow(rates), sums)
        np.testing.assert_array_equal(by.per_flow(jnp.asarray(rates)), sums)
    traced = eqx.filter_jit(lambda r, x: r.per_flow(x))
    np.testing.assert_array_equal(traced(placed, jnp.asarray(rates)), sums)
    slope = jax.grad(lambda x: placed.per_flow(x)[flow_of[0]])(jnp.asarray(rates))
    np.testing.assert_array_equal(slope, np.equal(flow_of, flow_of[0]))


def test_per_flow_asks_for_one_rate_per_row():
    routes = fb.Routes.from_paths([[0], [0]], 1)
    with pytest.raises(fb.ModelError, match=r"one rate for each of 2 rows, but got shape \(3,\)"):
        routes.per_flow(np.ones(3))


def test_place_rounds_no_routing_cost():
    net = fb.Network([1.0, 1.0])
    net = eqx.tree_at(lambda n: n.routing_cost, net, np.array([1.0, 2.9]))
    with pytest.raises(fb.ModelError, match=r"1 of 2 links .*'link 1' \(the first is 2.9\)"):
        fb.place(net, fb.Routes.from_paths([[0]], 2))


def test_rows_that_are_not_the_flows_of_their_number_do_not_rank_alike():
    assert _answer._alike(fb.Routes.from_paths([[0], [0]], 1))
    for flow_of in ([0, 0, 2], [2, 0, 1]):
        routes = fb.Routes.from_csr([0, 1, 2, 3], [0, 0, 0], 1, flow_of=flow_of)
        assert not _answer._alike(routes)


def test_bottlenecks_of_an_answer_count_a_flow_once_even_where_another_has_no_row():
    plan = Blueprint()
    plan.cables("t", plan.nodes("node", "a", (1,)), plan.nodes("node", "b", (1,)), 6.0)
    net = plan.network("one cable")
    routes = fb.Routes.from_csr([0, 1, 2, 3], [0, 0, 0], 2, flow_of=[0, 0, 2])
    solution = fb.max_min_rates(net, routes)
    rate = np.asarray(routes.per_flow(np.asarray(solution.rates)))
    case = _answer.Case(routes, solution, rate, 0.0)
    rows, links = _answer._bottlenecks(net, case, np.array([6.0, 0.0]), 5, None)
    assert links == 1
    assert (rows[0]["flows"], rows[0]["rate"]) == (2, 2.0)
