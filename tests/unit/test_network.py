"""What `Network`, its labels and the `Blueprint` promise."""

import itertools

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
    with pytest.raises(fb.ModelError, match=r"is a mask of shape \(2,\), but there are 16 links"):
        two_leaves.without(links=np.array([True, False]))
    with pytest.raises(fb.ModelError, match="needs whole numbers"):
        two_leaves.without(links=np.array([0.5]))
