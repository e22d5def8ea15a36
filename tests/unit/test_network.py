"""What `Network`, its labels and the `Blueprint` promise."""

import copy
import dataclasses
import itertools
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric.network import Blueprint, Labels, Names


@pytest.fixture
def two_leaves():
    plan = Blueprint()
    leaf = plan.nodes("leaf", "leaf{}", (2,), leaf=np.arange(2))
    spine = plan.nodes("spine", "spine{}", (1,))
    host = plan.nodes("host", "leaf{}-host{}", (2, 2), leaf=np.arange(2)[:, None])
    plan.cables("host", host, leaf[:, None], 50e9)
    plan.cables("leaf-spine", leaf[:, None], spine[None, :], 25e9, latency=1e-6, parallel=2)
    return plan.network("two leaves")


def test_names_are_made_by_rule():
    names = Names([("a{}", (2,)), ("b{}-{}", (2, 3))])
    assert len(names) == 8
    assert names[-1] == "b1-2"
    assert names[1:4] == ["a1", "b0-0", "b0-1"]
    with pytest.raises(IndexError):
        names[8]


def test_a_cable_is_two_links_and_parallel_cables_stay(two_leaves):
    labels = two_leaves.labels
    assert two_leaves.n_links == 2 * (4 + 4)
    np.testing.assert_array_equal(labels.src[::2], labels.dst[1::2])
    np.testing.assert_array_equal(np.bincount(labels.cable_of), 2)
    names = [two_leaves.link_name(i) for i in range(8, 12)]
    assert names == ["leaf0->spine0", "spine0->leaf0", "leaf0->spine0#1", "spine0->leaf0#1"]
    assert len({two_leaves.link_name(i) for i in range(two_leaves.n_links)}) == two_leaves.n_links


def test_only_hosts_send_and_only_switches_forward(two_leaves):
    assert [two_leaves.labels.names[i] for i in two_leaves.hosts[:2]] == [
        "leaf0-host0",
        "leaf0-host1",
    ]
    assert two_leaves.labels.forwards.sum() == 3


def test_without_fails_both_directions_and_names_unknown_nodes(two_leaves):
    assert two_leaves.without(links=[8]).alive[8:10].tolist() == [False, False]
    assert two_leaves.without(nodes=["spine0"]).alive.sum() == 8
    with pytest.raises(fb.ModelError, match=r"'spine1' is no node .* Did you mean 'spine0'"):
        two_leaves.without(nodes=["spine1"])
    with pytest.raises(fb.ModelError, match=r"names links '99', but there are 16"):
        two_leaves.without(links=[99])


def test_labels_stay_outside_the_pytree(two_leaves):
    leaves = jax.tree_util.tree_leaves(two_leaves)
    assert len(leaves) == 4
    through = eqx.filter_jit(lambda n: n.with_capacity(n.capacity * 2))(two_leaves)
    assert not through.has_labels
    assert two_leaves.with_capacity(two_leaves.capacity * 2).has_labels
    with pytest.raises(fb.ModelError, match="came out of a JAX transformation"):
        _ = through.labels


def test_from_capacity_names_every_bad_link():
    with pytest.raises(fb.ModelError, match=r"3 of 7 links .*'link 1', 'link 3' and 'link 5'"):
        fb.Network.from_capacity([1.0, -1.0, 0.0, np.nan, 2.0, np.inf, 3.0])


def test_whole_number_capacities_become_floats():
    assert fb.Network(np.array([1, 2])).capacity.dtype == np.float64


def test_a_name_that_several_nodes_have_is_no_identity():
    labels = Labels(
        kinds=("switch",), kind_of=np.zeros(2, np.int8), names=["sw", "sw"], ids=["S-1", "S-2"],
        src=np.array([0]), dst=np.array([1]), tiers=("t",), tier_of=np.zeros(1, np.int8),
        cable_of=np.zeros(1, np.int32),
    )  # fmt: skip
    assert labels.node("S-2") == 1
    with pytest.raises(fb.ModelError, match="is the name of several nodes; use an id"):
        labels.node("sw")
    with pytest.raises(fb.ModelError, match="no tier 'tt'"):
        labels.is_tier("tt")


def labels_of(names, src, dst, **rest):
    return Labels(
        kinds=("switch",), kind_of=np.zeros(len(names), np.int8), names=names,
        src=np.array(src), dst=np.array(dst), tiers=("t",), tier_of=np.zeros(len(src), np.int8),
        cable_of=np.arange(len(src)), **rest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["A", "B", "C", "D"], ["x(A)->x(B)", "x(B)->x(C)", "x(A)->y", "x(A)->y#1", "y->x(C)"]),
        (None, ["x(0)->x(1)", "x(1)->x(2)", "x(0)->y", "x(0)->y#1", "y->x(2)"]),
    ],
)
def test_links_of_nodes_that_share_a_name_are_told_apart_by_id(ids, names):
    labels = labels_of(["x", "x", "x", "y"], [0, 1, 0, 0, 3], [1, 2, 3, 3, 2], ids=ids)
    assert [labels.link_name(link) for link in range(5)] == names


def test_links_between_the_same_ports_are_counted():
    labels = labels_of(
        ["a", "b"], [0, 0, 0, 0], [1, 1, 1, 1],
        src_port=np.array([1, 1, 2, 0]), dst_port=np.array([5, 5, 5, 5]),
    )  # fmt: skip
    names = [labels.link_name(link) for link in range(4)]
    assert names == ["a[1]->b[5]", "a[1]->b[5]#1", "a[2]->b[5]", "a->b"]


def test_a_blueprint_tells_hundreds_of_kinds_and_tiers_apart():
    plan = Blueprint()
    nodes = [plan.nodes(f"kind{i}", "n{}", (1,)) for i in range(300)]
    for i, (a, b) in enumerate(itertools.pairwise(nodes)):
        plan.cables(f"tier{i}", a, b, 1.0)
    labels = plan.network("a chain").labels
    assert labels.kinds[labels.kind_of[299]] == "kind299"
    assert labels.tiers[labels.tier_of[2 * 298]] == "tier298"


def test_a_blueprint_rounds_nothing():
    plan = Blueprint()
    with pytest.raises(fb.ModelError, match="`pod` needs whole numbers of 32 bits"):
        plan.nodes("leaf", "leaf{}", (1,), pod=np.array([2**40]))
    a, b = plan.nodes("leaf", "leaf{}-{}", (2, 1))
    with pytest.raises(fb.ModelError, match="`routing_cost` needs a whole number from 1"):
        plan.cables("t", a, b, 1.0, routing_cost=2**31)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alive", np.array([False])),
        ("alive", np.ones(3, bool)),
        ("latency", np.zeros((2, 1))),
        ("routing_cost", jnp.ones(1, int)),
    ],
)
def test_arrays_of_another_length_are_refused(field, value):
    with pytest.raises(fb.ModelError, match=rf"`Network\({field}\)` needs one value for each of 2"):
        fb.Network([10.0, 4.0], **{field: value})
    net = fb.Network([10.0, 4.0])
    with pytest.raises(fb.ModelError, match="one value for each of"):
        net.with_capacity(np.ones(3))


def test_an_alive_mask_is_true_and_false():
    with pytest.raises(fb.ModelError, match=r"`Network\(alive\)` needs true and false"):
        fb.Network([1.0, 1.0], alive=np.array([1, 0]))
    with pytest.raises(fb.ModelError, match=r"needs one value per link, but has shape \(1, 2\)"):
        fb.Network(np.ones((1, 2)))


def test_lists_of_python_numbers_are_arrays():
    net = fb.Network([2, 1], latency=[0, 1], alive=[True, False], routing_cost=[1, 3])
    assert [x.dtype for x in (net.capacity, net.latency)] == [np.float64] * 2
    assert (net.alive.dtype, net.routing_cost.dtype) == (bool, np.int32)
    half = fb.Network(np.ones(2, np.float32), latency=[0, 1])
    assert half.latency.dtype == np.float32


def test_shapes_are_checked_inside_a_transformation_too():
    with pytest.raises(fb.ModelError, match="one value for each of 2 links, but has shape"):
        jax.jit(lambda c: fb.Network(c, alive=np.ones(3, bool)).capacity)(jnp.ones(2))
    doubled = jax.vmap(lambda c: fb.Network(c).with_capacity(2 * c).capacity)(jnp.ones((3, 2)))
    assert doubled.shape == (3, 2)
    shapes = eqx.filter_eval_shape(lambda c: fb.Network(c), jax.ShapeDtypeStruct((2,), "float32"))
    assert shapes.alive.shape == (2,)
    assert jax.tree.map(lambda _: None, fb.Network([1.0])) is not None


def test_from_capacity_checks_every_column():
    with pytest.raises(fb.ModelError) as caught:
        fb.Network.from_capacity(
            [1.0, -1.0], latency=np.array([np.nan, 0.0]), routing_cost=np.array([1, 0])
        )
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(fb.ModelError, match="one value for each of 2 links"):
        fb.Network.from_capacity([1.0, 1.0], latency=[1.0])


def test_arrays_of_a_network_refuse_writes_and_those_of_the_caller_do_not():
    capacity = np.array([1.0, 2.0])
    net = fb.Network(capacity)
    with pytest.raises(ValueError, match="read-only"):
        net.capacity[0] = 5.0
    capacity[0] = 5.0


def test_every_link_is_found_by_its_name_whatever_it_is_called():
    kinds = ("host", "switch")
    labels = Labels(
        kinds=kinds,
        kind_of=np.array([0, 0, 1, 1]),
        names=["a", "a", "s", "t"],
        ids=["x1", "x2", "s1", "t1"],
        src=np.array([0, 2, 1, 2, 2, 3, 2, 3, 2, 3]),
        dst=np.array([2, 0, 2, 1, 3, 2, 3, 2, 3, 2]),
        tiers=("cable",),
        tier_of=np.zeros(10, np.int8),
        cable_of=np.repeat(np.arange(5), 2),
        src_port=np.array([1, 1, 1, 2, 3, 3, 0, 0, 0, 0]),
        dst_port=np.array([1, 1, 2, 1, 3, 3, 0, 0, 0, 0]),
    )
    net = fb.Network(np.ones(10), labels=labels)
    for link in range(10):
        alive = np.asarray(net.without(links=net.link_name(link)).alive)
        assert np.flatnonzero(~alive).tolist() == [link // 2 * 2, link // 2 * 2 + 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leaf0", r"`without\(links=...\)`: 'leaf0' is no link. Write its two ends"),
        ("leaf0->spine1", r"`without\(links=...\)`: 'spine1' is no node .*Did you mean 'spine0'"),
        ("leaf0->leaf1", r"`without\(links=...\)`: .*There is no cable between the two"),
        ("leaf0->spine0#7", r"'leaf0->spine0#7' is no link. There are 'leaf0->spine0'"),
    ],
)
def test_a_name_that_no_link_has_is_refused_with_the_nearest(two_leaves, name, said):
    with pytest.raises(fb.ModelError, match=said):
        two_leaves.without(links=[name])


def test_without_takes_masks_and_single_items(two_leaves):
    mask = np.zeros(two_leaves.n_links, bool)
    mask[8] = True
    want = two_leaves.without(links=[8]).alive
    np.testing.assert_array_equal(two_leaves.without(links=mask).alive, want)
    np.testing.assert_array_equal(two_leaves.without(links=jnp.asarray(mask)).alive, want)
    np.testing.assert_array_equal(two_leaves.without(links=8).alive, want)
    assert two_leaves.without(nodes="spine0").alive.sum() == 8
    assert two_leaves.without(nodes=two_leaves.labels.is_kind("spine")).alive.sum() == 8
    assert two_leaves.without(nodes=np.array(["spine0"])).alive.sum() == 8
    assert two_leaves.without(nodes=two_leaves.labels.node("spine0")).alive.sum() == 8
    assert two_leaves.without().alive.all()
    name = two_leaves.link_name(8)
    for named in (name, [name], np.array([name]), iter([name]), [8, name]):
        np.testing.assert_array_equal(two_leaves.without(links=named).alive, want)
    with pytest.raises(fb.ModelError, match=r"is a mask of shape \(2,\), but there are 16 links"):
        two_leaves.without(links=np.array([True, False]))
    with pytest.raises(fb.ModelError, match="needs whole numbers"):
        two_leaves.without(links=np.array([0.5]))


def test_a_network_is_out_of_reach_of_the_owner_of_its_arrays():
    capacity, alive = np.array([1.0, 2.0]), np.array([True, True])
    net, other = fb.Network(capacity, alive=alive), fb.Network([3.0, 3.0]).with_capacity(capacity)
    capacity[0], alive[0] = 9.0, False
    assert net.capacity.tolist() == other.capacity.tolist() == [1.0, 2.0]
    assert net.alive.all()
    assert net.with_alive(alive).capacity is net.capacity


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))]
)
def test_a_copy_of_a_network_refuses_writes_and_keeps_its_labels(two_leaves, copied):
    net = copied(two_leaves)
    assert net.link_name(0) == two_leaves.link_name(0)
    for values in (net.capacity, net.latency, net.alive, net.routing_cost):
        assert not values.flags.writeable
    assert not net.labels.src.flags.writeable
    assert not net.labels.tags["leaf"].flags.writeable


@pytest.mark.parametrize("array", [np.array, jnp.asarray])
def test_a_routing_cost_is_a_whole_number_in_every_kind_of_array(array):
    with pytest.raises(
        fb.ModelError, match=r"whole numbers from 1 to 2,147,483,647, but 1 of 3 .*'link 1'.*2\.9"
    ):
        fb.Network(np.ones(3), routing_cost=array([1.0, 2.9, 1.0]))
    with pytest.raises(fb.ModelError, match=r"1 of 2 links .*'link 0' \(the first is 1\.5\)"):
        fb.Network.from_capacity(np.ones(2), routing_cost=array([1.5, 1.0]))
    whole = fb.Network(np.ones(3), routing_cost=array([1.0, 2.0, 1.0])).routing_cost
    assert (whole.dtype, whole.tolist()) == (np.int32, [1, 2, 1])


def test_a_routing_cost_out_of_range_is_named_by_its_link(two_leaves):
    cost = np.ones(16, np.int64)
    cost[8] = 2**31
    with pytest.raises(fb.ModelError, match=r"'leaf0->spine0' \(the first is 2147483648\)"):
        fb.Network(two_leaves.capacity, routing_cost=cost, labels=two_leaves.labels)


def test_an_exported_routing_cost_is_whole(two_leaves):
    changed = eqx.tree_at(lambda n: n.routing_cost, two_leaves, np.full(16, 1.5))
    object.__setattr__(changed, "_labels", two_leaves.labels)
    for use in (
        lambda: changed.to_networkx(),
        lambda: fb.routing.ecmp(changed, fb.Flows(changed.hosts[:1], changed.hosts[1:2])),
    ):
        with pytest.raises(fb.ModelError, match=r"`network.routing_cost` needs whole numbers"):
            use()


def test_labels_of_other_links_are_refused(two_leaves):
    with pytest.raises(
        fb.ModelError, match=r"`Network\(labels\)` describe 16 links, but .* has 3\."
    ):
        fb.Network(np.ones(3), labels=two_leaves.labels)


def test_a_network_that_lost_its_labels_says_how_and_what_keeps_them(two_leaves):
    other = np.array(two_leaves.capacity) / 2
    for changed in (
        dataclasses.replace(two_leaves, capacity=other),
        eqx.tree_at(lambda n: n.capacity, two_leaves, other),
    ):
        with pytest.raises(
            fb.ModelError, match=r"`dataclasses.replace` or `eqx.tree_at`.*`net.with_capacity"
        ):
            _ = changed.labels


def test_labels_refuse_writes_and_leave_the_arrays_of_the_caller_alone(two_leaves):
    pod, ends = np.array([1, 2]), np.array([0])
    labels = labels_of(["a", "b"], [0], [1], src_port=ends, tags={"pod": pod})
    pod[0], ends[0] = 7, 7
    assert (labels.tags["pod"].tolist(), labels.src_port.tolist()) == ([1, 2], [0])
    for values in (
        labels.src, labels.dst, labels.kind_of, labels.tier_of, labels.cable_of,
        labels.endpoint, labels.forwards, labels.tags["pod"],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    assert dataclasses.replace(two_leaves.labels, source="x").src is two_leaves.labels.src
