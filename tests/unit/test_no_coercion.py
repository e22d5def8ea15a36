"""No entry point turns a value of another kind into one that it takes, rounds it or wraps it.

The run-time type checker of the tests would refuse most of these first, so a process without it is
asked.
"""

import json
import subprocess
import sys

import pytest

CASES = {
    "fb.Routes.from_csr([0, 1], [0.9], 1)": "`flow_links` needs whole numbers",
    "fb.Routes.from_csr([0, 1], [0], 1.5)": "`n_links` needs a whole number",
    "fb.Routes.from_csr([0, 1], [True], 1)": "`flow_links` needs whole numbers",
    "fb.Routes.from_paths([[0.9]], 1)": "`paths` needs whole numbers",
    "fb.Routes.from_paths([['0']], 1)": "`paths` needs whole numbers",
    "fb.Routes.from_paths([[0]], 1, weights=[[1]])": "`weights` needs a list of numbers",
    "fb.Routes.from_paths([[0]], 1, weights='1')": "`weights` needs numbers",
    "fb.Routes.from_paths([[0]], 1, weights=[[1], [1, 2]])": "of different lengths",
    "fb.Routes.from_paths([[0]], 1, pad_to=2.5)": "`pad_hops` needs a whole number",
    "fb.Routes.from_csr([0, 1], [0], 1, flow_of=[0.5])": "`flow_of` needs whole numbers",
    "fb.Flows([0.5], [1])": "`Flows(src=...)` needs whole numbers",
    "fb.Flows([0], [2**40])": "`Flows(dst=...)` needs whole numbers",
    "fb.Flows(0, 1)": "`Flows(src=...)` needs a list of numbers",
    "fb.Flows([0], [1], size='1GB')": "`Flows(size=...)` needs numbers",
    "fb.Flows([0], [1], size=[None])": "`Flows(size=...)` needs numbers",
    "fb.Placement([.5, 1.7])": "`Placement(endpoint_of)` needs whole numbers",
    "fb.Placement.first(net, 1.5)": "`n_ranks` needs a whole number",
    "fb.Placement.first(net, True)": "`n_ranks` needs a whole number",
    "fb.Placement.spread(net, 2, 'leaf', block=1.5)": "`block` needs a whole number",
    "fb.Network(['400Gb/s'])": "`Network(capacity)` needs numbers",
    "fb.Network([1.0], alive=['no'])": "`Network(alive)` needs true and false",
    "fb.Network([1.0], routing_cost=[1.5])": "`Network(routing_cost)` needs whole numbers",
    "fb.Placement(5)": "`Placement(endpoint_of)` needs a list of numbers",
    "fb.Placement(None)": "`Placement(endpoint_of)` needs whole numbers",
    "fb.Routes.from_paths([0, 1], 2)": "`paths` needs a list per flow",
    "fb.Routes.from_paths(None, 2)": "`paths` needs a list per flow",
    "fb.Routes.from_paths([[0]], 1, usage=[1.0])": "`usage` needs a list per flow",
    "fb.place(net, fb.Routes.from_paths([[0]], net.n_links), dtype='banana')": "`place(dtype=",
    "fb.place(net, fb.Routes.from_paths([[0]], net.n_links), dtype='float16')": "`place(dtype=",
    "fb.Network(np.array([1.0], object))": "`Network(capacity)` needs float32, float64 or integers",
    "fb.Network(np.array([True]))": "or integers, but got bool",
    "fb.Network(np.array(['1']))": "or integers, but got <U1",
    "fb.Network(np.ones(1, complex))": "or integers, but got complex128",
    "fb.Network(np.ones(1, np.float16))": "but got float16. Use `.astype('float64')`",
    "fb.Network(np.ones(1, np.longdouble))": "or integers, but got float128",
    "fb.Network(jnp.ones(1, jnp.bfloat16))": "or integers, but got bfloat16",
    "fb.Network(np.ma.array([1.0], mask=[True]))": "but got a masked array. Use `.filled(...)`",
    "fb.Network([1.0], latency=np.array([True]))": "`Network(latency)` needs float32, float64",
    "fb.Network([1.0], latency=[True])": "`Network(latency)` needs numbers, but got bool",
    "fb.Network([1.0], alive=np.ma.array([True]))": "`Network(alive)` is a masked array",
    "fb.Network([1.0], routing_cost=np.ma.array([1]))": "`Network(routing_cost)` needs whole",
    "fb.Network([1.0], routing_cost=np.array([True]))": "`Network(routing_cost)` needs whole",
    "net.without(links=[0.5])": "`without(links=...)` needs whole numbers",
    "net.without(links='ab')": "`without(links=...)`: 'ab' is no link",
    "net.without(nodes=[1.5])": "`without(nodes=...)` needs whole numbers",
    "fb.traffic.incast(net.hosts, to=2.5)": "`to` needs a whole number",
    "fb.traffic.incast(net.hosts, senders=1.5)": "`senders` needs a whole number",
    "fb.traffic.incast(net.hosts, senders=True)": "`senders` needs a whole number",
    "fb.traffic.incast(net.hosts, senders=[0.5])": "`senders` needs whole numbers",
    "fb.traffic.ring([0, 2**32])": "`ring(hosts)` needs whole numbers",
    "fb.traffic.permutation(net.hosts, seed=1.5)": "`seed` needs a whole number",
    "fb.traffic.uniform_random(net.hosts, float('nan'))": "`n_flows` needs a whole number",
    "fb.routing.ecmp(net, flows, seed=1.5)": "`seed` needs a whole number",
    "fb.routing.ecmp(net, flows, seed=2**64)": "`seed` needs a whole number",
    "fb.routing.ecmp(net, flows, queue_pairs=float('nan'))": "`queue_pairs` needs a whole number",
    "fb.routing.shortest_distances(net, [0.9])": "`destinations` needs whole numbers",
    "fb.topologies.fat_tree(k=float('nan'))": "`k` needs a whole number",
    "fb.topologies.fat_tree(k='4')": "`k` needs a whole number",
    "fb.topologies.torus(4)": "`dims` needs sizes as text such as '4x4x8' or as a list, but got 4",
    "fb.topologies.torus([4, 4], wrap='no')": "`wrap` needs True or False, but got 'no'",
    "fb.topologies.sizes('torus', dims=[4, 4], wrap=1)": "`wrap` needs True or False, but got 1",
    "fb.topologies.cluster('dgx-h100', 2, gpudirect='no')": "`gpudirect` needs True or False",
    "fb.topologies.bill(net, manager='no')": "`manager` needs True or False",
    "fb.topologies.tpu_pod(1, 4)": "`slices` needs text such as '4x4x8+2x2x1', or a list",
    "fb.topologies.at_equal_cost({}, {}, '10')": "needs a finite number of 0 or more",
    "fb.topologies.at_equal_cost({}, {}, float('nan'))": "needs a finite number of 0 or more",
    "fb.topologies.path_counts(net, [(0, 1, 2)])": "a source and a destination in every row",
    "fb.topologies.path_counts(net, [(0.5, 1)])": "`pairs` needs whole numbers",
}

ASK = """
import json, sys
import jax.numpy as jnp
import numpy as np
import fabric as fb
net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
flows = fb.Flows(net.hosts[:1], net.hosts[1:2])
said = {}
for case in json.load(sys.stdin):
    try:
        said[case] = f"accepted: {eval(case)}"
    except fb.ModelError as error:
        said[case] = str(error)
    except Exception as error:
        said[case] = f"raw {error!r}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    run = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps(list(CASES)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", CASES)
def test_values_of_another_kind_are_refused_by_name(said, case):
    assert CASES[case] in said[case]
