"""What rounds over gather tables promise beside the rates, which `test_max_min_rates` pins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from fabric.kernels._table_rounds import Placed, Tables, table_rounds
from fabric.solvers import _rounds
from fabric.solvers._plan import compiled_plan
from fabric.solvers._table_plan import WIDTHS, hops_of, table_plan
from tests.golden.instances import instance


def golden(name, dtype=np.float64):
    made = instance(name)
    capacity = made["capacity"].astype(dtype)
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(capacity))
    return fb.Network(capacity), routes


def planned(routes, known=None, kind=np.float64):
    hops = hops_of(compiled_plan(routes))
    return table_plan(hops, uses=False, kind=np.dtype(kind), known=[] if known is None else known)


def entries(plan):
    """Return (flow, link) of every entry of the tables of links, and of those of paths."""
    by_link, by_flow, start = [], [], 0
    for table in map(np.asarray, plan.tables.flow):
        for column in range(table.shape[1]):
            flows = plan.flow_at[table[:, column]]
            by_link += [(f, plan.link_at[start + column]) for f in flows if f >= 0]
        start += table.shape[1]
    start = 0
    for table in map(np.asarray, plan.tables.path):
        for column in range(table.shape[1]):
            links = plan.link_at[table[:, column]]
            by_flow += [(plan.flow_at[start + column], l) for l in links if l >= 0]
        start += table.shape[1]
    return sorted(by_link), sorted(by_flow)


@pytest.mark.parametrize("name", ["ls-1k", "ft-1k", "chain-1k"])
def test_tables_hold_every_shared_hop_once_on_either_side(name):
    plan = planned(golden(name)[1])
    hops = plan.hops
    pairs = [
        (flow, link)
        for flow, start, end in zip(hops.flow, hops.ptr, hops.end, strict=True)
        for link in hops.at[start:end]
    ]
    by_link, by_flow = entries(plan)
    assert by_link == by_flow == sorted(pairs)


def test_a_bucket_is_padded_by_little():
    hops = hops_of(compiled_plan(golden("ls-100k")[1]))
    plan = table_plan(hops, uses=False, kind=np.dtype(np.float64), known=[])
    # Two passes over paths and two over links; widths and columns are rounded up.
    assert 4 * hops.n_hops <= plan.entries <= 1.5 * 4 * hops.n_hops
    assert np.all(np.diff(WIDTHS) > 0)
    assert np.all(np.diff(WIDTHS[7:]) <= WIDTHS[7:-1] / 4)


def test_the_bytes_of_a_round_are_an_index_and_a_sector_per_hop_and_pass():
    plan = planned(golden("ls-1k")[1])
    assert plan.bytes_per_round == 4 * (4 + 32) * plan.hops.n_hops


def test_a_second_fabric_of_much_the_same_shape_takes_the_shape_of_the_first():
    known = []
    first = planned(golden("ls-100k")[1], known)
    made = instance("ls-100k")
    order = np.random.default_rng(0).permutation(len(made["flow_ptr"]) - 1)[:100_000]
    rows = [
        made["flow_links"][made["flow_ptr"][f] : made["flow_ptr"][f + 1]] for f in order.tolist()
    ]
    ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    other = fb.Routes.from_csr(ptr, np.concatenate(rows), n_links=len(made["capacity"]))
    assert planned(other, known).shape == first.shape
    assert known == [first.shape]


def test_rounds_over_tables_are_as_many_as_others_count():
    # Rounds of local minima, found by others: see the golden instances.
    for name, rounds in {"ls-1k": 4, "ls-10k": 14, "ft-1k": 4, "ft-10k": 4}.items():
        net, routes = golden(name)
        assert int(fb.max_min_rates(net, routes, method="rounds").rounds) == rounds


def test_a_deep_chain_ends_in_the_heap_and_says_so():
    net, routes = golden("chain-1k")
    solution = fb.max_min_rates(net, routes, method="rounds")
    assert solution.method.startswith("rounds, then heap for ")
    want = fb.max_min_rates(net, routes, method="compiled")
    np.testing.assert_allclose(solution.rates, want.rates, rtol=1e-12)
    assert fb.certify(net, routes, solution) <= 1e-12


def test_max_rounds_is_kept_however_deep_the_problem_is():
    net, routes = golden("chain-1k")
    solution = fb.max_min_rates(net, routes, method="rounds", max_rounds=100, throw=False)
    assert int(solution.rounds) == 100
    assert bool(solution.result == fb.RESULTS.max_rounds_reached)


def test_new_tables_on_the_way_change_no_rate(monkeypatch):
    net, routes = golden("ls-10k-het")
    monkeypatch.setattr(_rounds, "SMALLEST", 2**31)
    once = fb.max_min_rates(net, routes, method="rounds")
    monkeypatch.setattr(_rounds, "SMALLEST", 1000)
    often = fb.max_min_rates(net, routes, method="rounds")
    np.testing.assert_allclose(often.rates, once.rates, rtol=1e-13)
    assert int(often.rounds) == int(once.rounds) == 16


@pytest.mark.parametrize("name", ["ls-10k", "chain-1k"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_accelerator_stays_on_the_device_and_gives_the_same(name, dtype, monkeypatch):
    net, routes = golden(name, dtype)
    want = fb.max_min_rates(net, routes, method="compiled")
    monkeypatch.setattr(jax, "default_backend", lambda: "cuda")
    got = fb.max_min_rates(net, routes, method="rounds")
    # float32: see the test on precision below.
    rtol = 1e-12 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(got.rates, want.rates, rtol=rtol)
    assert fb.certify(net, routes, got) <= (1e-9 if dtype == np.float64 else 5e-6)
    assert ("heap" in got.method) == (name == "chain-1k")


@pytest.mark.parametrize("name", ["ls-100k", "ls-100k-het", "ft-10k", "ft-10k-het"])
def test_float32_with_a_remainder_of_two_floats_is_right_to_2e_6(name):
    net, routes = golden(name, np.float32)
    exact = fb.max_min_rates(fb.Network(np.asarray(net.capacity, np.float64)), routes)
    solution = fb.max_min_rates(net, routes, method="rounds")
    np.testing.assert_allclose(solution.rates, exact.rates, rtol=2e-6)
    assert fb.certify(net, routes, solution) <= 5e-6


def test_sprayed_routes_are_solved_by_tables_and_wide_bundles_by_plain_rounds():
    net = fb.topologies.fat_tree(k=8)
    flows = fb.traffic.uniform_random(net.hosts, 300, seed=1)
    labels = net.labels
    inner = np.flatnonzero(
        ~labels.is_kind("host")[labels.src] & ~labels.is_kind("host")[labels.dst]
    )
    for failed in ([], inner[[0, 40]]):
        broken = net.without(links=failed) if len(failed) else net
        routes = fb.routing.spray(broken, flows)
        assert (_rounds.first_tables(routes, np.dtype(np.float64)) is None) == bool(len(failed))
        got = fb.max_min_rates(broken, routes, method="rounds")
        want = fb.max_min_rates(broken, routes, method="compiled")
        np.testing.assert_allclose(got.rates, want.rates, rtol=1e-12)
        inside = jax.jit(
            lambda c, net=broken, routes=routes: (
                fb.max_min_rates(net.with_capacity(c), routes, method="rounds", throw=False).rates
            )
        )
        np.testing.assert_allclose(inside(broken.capacity), want.rates, rtol=1e-12)


# Flow 0 crosses link 0, flow 1 both links, flow 2 link 1; flow 3 and link 2 are padding.
TABLES = Tables(
    path=(np.array([[0, 0, 1, 2], [2, 1, 2, 2]], np.int32),),
    flow=(np.array([[0, 1, 3], [1, 2, 3]], np.int32),),
    use=(),
)


@given(st.lists(st.sampled_from([0.0, 1.0, 3.0, 8.0]), min_size=2, max_size=2))
def test_tables_made_by_hand_give_the_rates_of_the_problem(capacity):
    padded = lambda values, none: jnp.array([*values, none])
    problem = Placed(
        left=padded(capacity, 0.0), low=jnp.zeros(3), weight=None,
        cap_level=jnp.full(4, jnp.inf), level=padded([np.inf] * 3, 0.0),
    )  # fmt: skip
    end = jax.jit(table_rounds)(TABLES, problem, np.int32(0), np.int32(9))
    routes = fb.Routes.from_paths([[0], [0, 1], [1]], n_links=2)
    want = fb.max_min_rates(fb.Network(capacity), routes, method="compiled").rates
    np.testing.assert_allclose(end.level[:3], want, rtol=1e-12)
    assert int(end.live) == 0


def test_a_small_problem_with_one_very_wide_link_is_not_all_padding():
    # 4,000 flows on link 0, in pairs on 2,000 others: one bucket would be 4,096 wide.
    routes = fb.Routes.from_paths([[0, 1 + i // 2] for i in range(4000)], n_links=2001)
    plan = planned(routes)
    assert plan.entries < 32 * plan.hops.n_hops  # in one bucket 2,000 times
    net = fb.Network(np.array([100.0, *np.linspace(0.01, 1, 2000)]))
    got = fb.max_min_rates(net, routes, method="rounds")
    np.testing.assert_allclose(
        got.rates, fb.max_min_rates(net, routes, method="compiled").rates, rtol=1e-12
    )
