"""What `experiments.bench.gpu` measures, inside one process per part."""

import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fabric as fb
from experiments.bench.gpu import about_machine
from experiments.bench.instances import instance
from experiments.bench.symmetric import Rails
from fabric.solvers import _compiled
from fabric.solvers._table_plan import TablePlan

Row = dict[str, Any]

SIZES = ("ft-10k", "ft-100k", "ls-100k", "k64-1m", "ft-1m")
SMALL_SIZES = ("ft-1k", "ls-1k", "k8-2k")
BATCHES, SMALL_BATCHES = (1, 4, 16, 64, 256, 1024, 4096), (1, 4)
AGREES = {"float64": 1e-12, "float32": 5e-5}
"""Relative difference from the CPU's float64 rates that a type of number may have."""

REPEATS = 5


def measure(part: str, *, smoke: bool) -> None:
    """Print one JSON line per measurement of a part."""
    say(about_machine() | {"bytes_per_second": bandwidth(2**22 if smoke else 2**28)})
    if part == "batches":
        cells = [*batches(smoke=smoke), *quotients(smoke=smoke)]
    else:
        only_solve = part.endswith("-flag")
        sizes = SMALL_SIZES if smoke else SIZES[:-1] if only_solve else SIZES
        cells = [cell for size in sizes for cell in of_size(size, only_solve=only_solve)]
    for name, cell in cells:
        try:
            say({"cell": name, **cell()})
        except Exception as error:  # one broken cell must not hide the others
            say({"cell": name, "error": f"{type(error).__name__}: {str(error)[:300]}"})


def say(row: Row) -> None:
    """Print a row at once: a part may be stopped at any time."""
    print(json.dumps(row), flush=True)


Cell = tuple[str, Callable[[], Row]]


def of_size(size: str, *, only_solve: bool) -> Iterator[Cell]:
    """Return solves of one instance, by tables and by scatter, and reverse mode."""
    for kind in ("float32", "float64"):
        yield f"{size}/solve/{kind}", lambda kind=kind: solve(size, kind)
    if only_solve:
        return
    yield f"{size}/scatter/float32", lambda: scatter(size, "float32")
    if size not in ("ft-1m", "k64-1m"):
        yield f"{size}/reverse/float64", lambda: reverse(size)


@functools.lru_cache(maxsize=1)
def problem(size: str) -> tuple[np.ndarray, fb.Routes, np.ndarray]:
    """Return capacities, routes and the CPU's rates of an instance."""
    if size.startswith("k"):
        ports, flows = {"k64-1m": (64, 1_000_000), "k8-2k": (8, 2_000)}[size]
        net = fb.topologies.fat_tree(k=ports)
        pairs = fb.traffic.uniform_random(net.hosts, flows, seed=0)
        routes, capacity = fb.routing.ecmp(net, pairs, seed=0), np.array(net.capacity, np.float64)
    else:
        made = instance(size)
        capacity = np.array(made["capacity"], np.float64)
        routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(capacity))
    ones, endless = np.ones(routes.n_flows), np.full(routes.n_flows, np.inf)
    return capacity, routes, _compiled.fill(capacity, routes, ones, endless)[0]


def solve(size: str, kind: str) -> Row:
    """Time the eager call of rounds, beside the least time its gathers could take."""
    capacity, routes, truth = problem(size)
    net = fb.Network(jnp.asarray(capacity, kind))
    call = lambda: fb.max_min_rates(net, routes, method="rounds", throw=False)
    row, solution = timed(call)
    row |= {"rounds": int(solution.rounds), "ran": solution.method}
    row |= agreement(solution.rates, truth, kind)
    row["certificate"] = float(fb.certify(net, routes, solution))
    # Every round reads all tables: a device is quicker at that than its host at making new ones.
    plans = [plan for plan in routes.plans.values() if isinstance(plan, TablePlan)]
    if plans:
        floor = max(plan.bytes_per_round for plan in plans) * row["rounds"] / bandwidth()
        row |= {"floor_s": floor, "over_floor": row["median_s"] / floor}
    return row


def scatter(size: str, kind: str) -> Row:
    """Time the plain loop that traced routes take: sorted segments, no tables."""
    capacity, routes, truth = problem(size)
    placed = jax.device_put(routes)

    @jax.jit
    def rates(capacity: jax.Array, routes: fb.Routes) -> jax.Array:
        net = fb.Network(capacity)
        return fb.max_min_rates(net, routes, method="rounds", throw=False).rates

    held = jnp.asarray(capacity, kind)
    row, found = timed(lambda: rates(held, placed), repeats=3)
    return row | agreement(found, truth, kind)


def reverse(size: str) -> Row:
    """Time solve and gradient of the sum of log rates to every capacity, as one program."""
    capacity, routes, _ = problem(size)

    def loss(capacity: jax.Array) -> jax.Array:
        net = fb.Network(capacity)
        rates = fb.max_min_rates(net, routes, method="rounds", throw=False).rates
        return jnp.log(rates).sum()

    held = jnp.asarray(capacity)
    gradient = jax.jit(jax.grad(loss))
    row, found = timed(lambda: gradient(held), repeats=3)
    # Rates scale with all capacities together, so this sum is the number of flows.
    euler = float(jnp.vdot(found, held)) / routes.n_flows
    return row | {"worst": abs(euler - 1), "agrees": abs(euler - 1) < 1e-9}


def batches(*, smoke: bool) -> Iterator[Cell]:
    """Return solves of many capacity vectors on one set of routes, by `vmap`."""
    size = "ft-1k" if smoke else "ft-10k"
    for batch in SMALL_BATCHES if smoke else BATCHES:
        yield f"{size}/batch/{batch}", lambda batch=batch: of_batch(size, batch)


def of_batch(size: str, batch: int) -> Row:
    """Time a batch in float32; its last member is compared with the CPU."""
    capacity, routes, _ = problem(size)
    scale = np.random.default_rng(batch).uniform(0.5, 1.5, (batch, 1))
    held = jnp.asarray(scale * capacity, jnp.float32)
    rates = jax.jit(
        jax.vmap(
            lambda c: fb.max_min_rates(fb.Network(c), routes, method="rounds", throw=False).rates
        )
    )
    row, found = timed(lambda: rates(held), repeats=3)
    ones, endless = np.ones(routes.n_flows), np.full(routes.n_flows, np.inf)
    truth = _compiled.fill(scale[-1] * capacity, routes, ones, endless)[0]
    row |= agreement(found[-1], truth, "float32")
    return row | {"per_second": batch / row["median_s"]}


def quotients(*, smoke: bool) -> Iterator[Cell]:
    """Return batched solves of a small quotient of a symmetric fabric."""
    for batch in SMALL_BATCHES if smoke else (1, 256, 65_536):
        yield f"rails/quotient/{batch}", lambda batch=batch: of_quotient(batch)


def of_quotient(batch: int) -> Row:
    """Time a batch of capacities of classes; its last member is compared with a lifted solve."""
    quotient = compressed()
    least = np.asarray(quotient.network.capacity, np.float64)
    scale = np.random.default_rng(0).uniform(0.5, 1.5, (batch, len(least)))
    held = jnp.asarray(scale * least)
    row, found = timed(lambda: quotient.solve_many(held))
    truth = np.asarray(quotient.solve(scale[-1] * least).rates)
    row |= agreement(found[-1], truth, "float64")
    return row | {"per_second": batch / row["median_s"]}


@functools.cache
def compressed() -> fb.Quotient:
    """Return the quotient of all-to-all on rails with one slow link."""
    rails = Rails(servers=64)
    made = rails.build(slow=(rails.up(0, 0),))
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(made["capacity"]))
    return fb.compress(fb.Network(made["capacity"]), routes)


def timed(call: Callable[[], Any], repeats: int = REPEATS) -> tuple[Row, Any]:
    """Return seconds of the first call, the median and least of the next, and the last result."""
    times: list[float] = []
    result = None
    for _ in range(repeats + 1):
        began = time.perf_counter()
        result = jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    row = {
        "first_s": times[0],
        "median_s": statistics.median(times[1:]),
        "min_s": min(times[1:]),
        "repeats": repeats,
    }
    return row, result


def agreement(rates: Any, truth: np.ndarray, kind: str) -> Row:
    """Return how far rates are from the CPU's, and whether that is near enough."""
    found = np.asarray(rates, np.float64)
    worst = float(np.max(np.abs(found - truth) / np.where(truth > 0, truth, 1.0), initial=0.0))
    return {"worst": worst, "agrees": worst <= AGREES[kind]}


@functools.cache
def bandwidth(n: int = 2**28) -> float:
    """Return bytes a second that the device moves while it adds 1 to n float32 numbers."""
    values = jnp.zeros(n, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    row, _ = timed(lambda: add(values))
    return 8 * n / row["min_s"]
