"""The programs of rounds over tables and of batches: how many, what is in them, what they give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric.solvers import _rounds
from tests.golden.instances import instance
from tests.programs.test_programs import COMPILED

METHODS = ["rounds", "compiled", "auto"]


def permuted(seed):
    """Return the network and routes of a leaf-spine fabric whose flows are drawn anew."""
    made = instance("ls-10k")
    draw = np.random.default_rng(seed).permutation(len(made["capacity"]))
    # Links trade their numbers: another fabric, with the same number of links of each degree.
    links = draw[made["flow_links"]]
    routes = fb.Routes.from_csr(made["flow_ptr"], links, n_links=len(draw))
    capacity = np.random.default_rng(seed).uniform(25, 75, len(draw))
    return fb.Network(capacity), routes


NET, ROUTES = permuted(0)


def test_new_values_and_another_fabric_of_the_shape_compile_nothing(monkeypatch):
    monkeypatch.setattr(_rounds, "SMALLEST", 10_000)
    # Which shape is taken depends on those that were seen before: begin with none.
    monkeypatch.setattr(_rounds, "SHAPES", [])
    solve = lambda net, routes: fb.max_min_rates(net, routes, method="rounds").rates
    first, known = permuted(4)
    solve(first, known)
    before = len(COMPILED)
    for seed in (1, 2, 3):
        net, routes = permuted(seed)
        solve(net, known)
        solve(net, routes)
    assert len(COMPILED) == before


def test_tables_are_gathered_from_and_never_scattered_to():
    tables = _rounds.first_tables(ROUTES, np.dtype(np.float64))
    shape = jax.ShapeDtypeStruct
    links, flows = shape((tables.tables.n_links,), float), shape((tables.tables.n_flows,), float)
    problem = _rounds.Placed(links, links, flows, flows, flows)
    traced = jax.jit(_rounds.table_rounds).trace(
        tables.tables, problem, shape((), np.int32), shape((), np.int32)
    )
    branches = {}
    for platform in ("cpu", "cuda"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "gather" in text
        assert "scatter" not in text
        assert "callback" not in text
        branches[platform] = text.count("stablehlo.case")
    # Three branches keep XLA on a CPU from fusing passes; elsewhere they would cost.
    assert branches["cpu"] == branches["cuda"] + 3


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap])
def test_closed_over_routes_hold_no_callback_on_an_accelerator(transform):
    rates = lambda c: (
        fb.max_min_rates(NET.with_capacity(c), ROUTES, method="rounds", throw=False).rates
    )
    capacity = jnp.asarray(NET.capacity)
    given = capacity if transform is not jax.vmap else capacity[None]
    text = jax.jit(transform(rates)).trace(given).lower(lowering_platforms=("cuda",)).as_text()
    assert "while" in text
    assert "callback" not in text


def problems(n, axes):
    """Return n capacities, weights and caps; those not in `axes` are the same for all."""
    draw = np.random.default_rng(0)
    values = {
        "capacity": draw.uniform(25, 75, (n, NET.n_links)),
        "weights": draw.uniform(0.5, 2, (n, ROUTES.n_flows)),
        "caps": draw.uniform(1, 50, (n, ROUTES.n_flows)),
    }
    return {name: jnp.asarray(x if name in axes else x[0]) for name, x in values.items()}


def solve(problem, method):
    net = NET.with_capacity(problem["capacity"])
    weights, caps = problem["weights"], problem["caps"]
    solution = fb.max_min_rates(net, ROUTES, weights=weights, caps=caps, method=method, throw=False)
    return solution.rates, solution.bottleneck, solution.saturated, solution.rounds


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "axes", [("capacity",), ("weights",), ("caps",), ("capacity", "weights", "caps")]
)
def test_vmap_equals_a_loop_to_an_ulp(axes, method):
    batch = problems(3, axes)
    in_axes = ({name: 0 if name in axes else None for name in batch},)
    each = lambda problem: solve(problem, method)
    got = jax.jit(jax.vmap(each, in_axes))(batch)
    for i in range(3):
        one = {name: x[i] if name in axes else x for name, x in batch.items()}
        want = jax.jit(each)(one)
        np.testing.assert_array_max_ulp(np.asarray(got[0][i]), np.asarray(want[0]), 1)
        for field, alone in zip(got[1:], want[1:], strict=True):
            np.testing.assert_array_equal(field[i], alone)


@pytest.mark.parametrize("method", METHODS)
def test_vmap_of_vmap_equals_two_loops(method):
    batch = problems(4, ("capacity", "caps"))
    capacity, caps, weights = batch["capacity"][:2], batch["caps"][:3], batch["weights"]
    rates = lambda c, k: solve({"capacity": c, "caps": k, "weights": weights}, method)[0]
    outer = jax.vmap(jax.vmap(rates, (None, 0)), (0, None))
    got = jax.jit(outer)(capacity, caps)
    for i in range(2):
        for j in range(3):
            want = jax.jit(rates)(capacity[i], caps[j])
            np.testing.assert_array_max_ulp(np.asarray(got[i, j]), np.asarray(want), 1)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_a_batch_are_those_of_its_members(method):
    batch = problems(2, ("capacity",))
    loss = lambda c: jnp.log(solve(batch | {"capacity": c}, method)[0]).sum()
    got = jax.jit(jax.vmap(jax.grad(loss)))(batch["capacity"])
    for i in range(2):
        want = jax.grad(loss)(batch["capacity"][i])
        # Sums over hundreds of flows, taken in another order.
        np.testing.assert_allclose(got[i], want, rtol=1e-10, atol=1e-12)


def test_the_batch_is_the_last_axis_of_every_gather_in_the_loop():
    rates = lambda c: solve(problems(1, ()) | {"capacity": c}, "rounds")[0]
    text = str(jax.make_jaxpr(jax.vmap(rates))(problems(7, ("capacity",))["capacity"]))
    tables = _rounds.first_tables(ROUTES, np.dtype(np.float64))
    for table in (*tables.tables.path, *tables.tables.flow):
        assert f"f64[{table.shape[0]},{table.shape[1]},7] = gather" in text


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_none_is_an_answer_of_none(method):
    rates = lambda c: solve(problems(1, ()) | {"capacity": c}, method)[0]
    none = jnp.zeros((0, NET.n_links))
    assert jax.vmap(rates)(none).shape == (0, ROUTES.n_flows)
    assert jax.jit(jax.vmap(rates))(none).shape == (0, ROUTES.n_flows)
    for shape in ((0, 3), (3, 0)):
        nested = jax.vmap(jax.vmap(rates))(jnp.zeros((*shape, NET.n_links)))
        assert nested.shape == (*shape, ROUTES.n_flows)


def test_small_fabrics_of_about_the_same_size_share_one_program(monkeypatch):
    traces = []

    def counted(*args):
        traces.append(args)
        return _rounds.table_rounds(*args)

    monkeypatch.setattr(_rounds, "SHAPES", [])
    monkeypatch.setattr(_rounds, "_stage", jax.jit(counted))
    draw = np.random.default_rng(0)
    for n_links, n_flows in ((50, 100), (55, 107), (56, 110), (50, 110), (56, 100)):
        paths = [draw.choice(n_links, 3, replace=False).tolist() for _ in range(n_flows)]
        routes = fb.Routes.from_paths(paths, n_links=n_links)
        net = fb.Network(draw.uniform(1, 2, n_links))
        got = fb.max_min_rates(net, routes, method="rounds").rates
        want = fb.max_min_rates(net, routes, method="compiled").rates
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert len(traces) == len(_rounds.SHAPES) == 1
