"""What `Routes` and `place` promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb


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
