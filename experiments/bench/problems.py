"""How each phase is set up, run and judged; imported only by the process that measures."""

import functools
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fabric as fb
from experiments.bench import fabrics, failures, optimizers, references
from experiments.bench.instances import instance
from experiments.bench.registry import Cell
from experiments.bench.symmetric import Rails
from experiments.bench.timing import Solved, Work, net_facts, route_facts, solve_facts, timed
from fabric.solvers import _compiled

N_FLOWS = {"k8": 2_000, "k64": 1_000_000}
OVERSUBSCRIPTION = {"fat-tree-4to1": 4}
N_FAILED = {"fat-tree-20-failed": 20}


def work_of(cell: Cell) -> Work:
    """Return the work of a cell, its inputs made."""
    if cell.phase == "import":
        return Work(lambda: None, _import_time, lambda _: {})
    if cell.phase == "read":
        return _reading()
    if cell.problem == "rails":
        return _compressing(int(cell.size.removeprefix("n")))
    if cell.phase == "rates":
        return _rates(cell)
    if cell.problem == "permutation":
        made = instance(cell.size)
        net = fb.Network(made["capacity"])
        fresh = lambda: fb.Routes.from_csr(
            made["flow_ptr"], made["flow_links"], n_links=net.n_links
        )
        if cell.phase == "one-sided":
            return _one_sided(net, fresh())
        if cell.phase == "batch":
            return _batch(net, fresh())
        if cell.phase == "surrogate":
            return _surrogate(net, fresh())
        return _solving(net, fresh, cell.phase, cell.method)
    if cell.problem == "quotient":
        return _quotients(int(cell.size.removeprefix("b")))
    if cell.problem == "rail-pods":
        return fabrics.on_rail_pods(cell)
    if cell.problem == "contingency":
        return failures.failing(cell)
    if cell.problem in fabrics.BUILDERS:
        return fabrics.building(cell)
    if cell.problem == "superpod":
        return _stepping(int(cell.size.removeprefix("n")), cell.phase)
    if cell.phase in optimizers.PHASES:
        return optimizers.optimising(cell)
    if cell.phase == "build":
        return Work(lambda: None, lambda _: timed(lambda: _fat_tree(cell)), net_facts)
    phase, _, rule = cell.phase.partition("-")
    net = _with_failures(_fat_tree(cell), cell)
    if phase == "all":
        return fabrics.all_pairs(net, cell.method)
    if rule == "adaptive":
        return fabrics.adapting(net)
    flows = fb.traffic.uniform_random(net.hosts, N_FLOWS[cell.size], seed=0)
    route = functools.partial(_route, net, flows, rule)
    if phase == "route":
        return Work(lambda: None, lambda _: timed(route), route_facts)
    return _solving(net, route, phase, cell.method or "compiled")


def _solving(net: fb.Network, fresh: Callable[[], fb.Routes], phase: str, method: str) -> Work:
    def solve(routes: fb.Routes) -> Solved:
        solution = fb.max_min_rates(net, routes, method=method, throw=False)
        jax.block_until_ready(solution.rates)
        return net, routes, solution

    def plan(routes: fb.Routes) -> tuple[float, Solved]:
        # What the first solve of new routes takes beyond a second one: their layout.
        first, _ = timed(lambda: solve(routes))
        second, solved = timed(lambda: solve(routes))
        return first - second, solved

    if phase == "plan":
        return Work(fresh, plan, solve_facts)
    routes = fresh()
    if phase == "reverse":
        return _reversing(net, routes, method, functools.partial(solve, routes))
    return Work(lambda: routes, lambda held: timed(lambda: solve(held)), solve_facts)


def _reversing(
    net: fb.Network, routes: fb.Routes, method: str, solve: Callable[[], Solved]
) -> Work:
    """Time the pull of one cotangent back to every capacity, beside solve and whole gradient."""
    loss = lambda c: jax.numpy.log(
        fb.max_min_rates(net.with_capacity(c), routes, method=method, throw=False).rates
    ).sum()
    capacity = jax.numpy.asarray(net.capacity)
    _, pull = jax.jit(lambda c: jax.vjp(loss, c))(capacity)
    one = jax.numpy.ones((), capacity.dtype)
    pulled, gradient = jax.jit(lambda back, bar: back(bar)), jax.jit(jax.grad(loss))
    ready = lambda call: lambda: jax.block_until_ready(call())

    def facts(_: Any) -> dict[str, object]:
        median = lambda call: statistics.median(timed(ready(call))[0] for _ in range(5))
        gradient(capacity)
        took = {
            "solve_s": median(lambda: solve()[2].rates),
            "gradient_s": median(lambda: gradient(capacity)),
        }
        return took | solve_facts(solve())

    return Work(lambda: None, lambda _: timed(ready(lambda: pulled(pull, one))), facts)


def _rates(cell: Cell) -> Work:
    """Time rates alone, layout made before, by the compiled kernels or by another solver."""
    made = instance(cell.size)
    facts: dict[str, object] = {"links": len(made["capacity"]), "flows": len(made["flow_ptr"]) - 1}
    told = lambda result: facts | {"sum_of_rates": result}
    if cell.method != "compiled":
        run = references.runner(cell.method, cell.size)
        return Work(lambda: None, lambda _: run(), told)
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(made["capacity"]))
    capacity, weight = np.array(made["capacity"]), np.ones(routes.n_flows)
    cap = np.full(routes.n_flows, np.inf)
    fill = lambda: references.timed(lambda: _compiled.fill(capacity, routes, weight, cap)[0])
    return Work(lambda: None, lambda _: fill(), told)


N_SCENARIOS = 64


def _batch(net: fb.Network, routes: fb.Routes) -> Work:
    """Time many capacity vectors on the same routes by `jit` of `vmap`, as a caller writes it."""
    jitter = np.random.default_rng(0).uniform(0.5, 1.5, (N_SCENARIOS, net.n_links))
    capacities = jax.numpy.asarray(jitter * np.asarray(net.capacity))
    rates = lambda c: fb.max_min_rates(net.with_capacity(c), routes, throw=False).rates
    many = jax.jit(jax.vmap(rates))

    def facts(solved: jax.Array) -> dict[str, object]:
        same = np.array_equal(rates(capacities[-1]), solved[-1])
        return route_facts(routes) | {"scenarios": N_SCENARIOS, "equals_one_solve": same}

    return Work(
        lambda: None, lambda _: timed(lambda: jax.block_until_ready(many(capacities))), facts
    )


def _one_sided(net: fb.Network, routes: fb.Routes) -> Work:
    """Time the exact derivative when every link grows a little."""
    run = lambda: jax.block_until_ready(
        fb.one_sided(lambda s: s.rates, net, routes, {"capacity": np.asarray(net.capacity)})
    )
    return Work(lambda: None, lambda _: timed(run), lambda _: route_facts(routes))


def _compressing(servers: int) -> Work:
    """Time compression, its check and a solve of the quotient, of all-to-all on rails."""
    made = Rails(servers=servers).build()
    net = fb.Network(made["capacity"])
    fresh = lambda: fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=net.n_links)

    def run(routes: fb.Routes) -> tuple[float, fb.Quotient]:
        def both() -> fb.Quotient:
            quotient = fb.compress(net, routes)
            quotient.solve(net)
            return quotient

        return timed(both)

    facts = lambda quotient: {
        "flows": len(made["flow_ptr"]) - 1,
        "flow_classes": quotient.n_flow_classes,
        "link_classes": quotient.n_link_classes,
    }
    return Work(fresh, run, facts)


def _quotients(batch: int) -> Work:
    """Time a batch of capacity vectors on a quotient of 24 flow and 32 link classes."""
    rng = np.random.default_rng(0)
    links, flows = 32, 24
    paths = [rng.choice(links, 4, replace=False).tolist() for _ in range(flows)]
    net = fb.Network(rng.uniform(1, 100, links))
    quotient = fb.compress(net, fb.Routes.from_paths(paths, n_links=links), least=1)
    capacity = jax.numpy.asarray(rng.uniform(1, 100, (batch, quotient.n_link_classes)))
    run = lambda: jax.block_until_ready(quotient.solve_many(capacity))
    facts = {"flow_classes": quotient.n_flow_classes, "link_classes": quotient.n_link_classes}
    return Work(lambda: None, lambda _: timed(run), lambda _: {"batch": batch, **facts})


def _surrogate(net: fb.Network, routes: fb.Routes) -> Work:
    """Time the smooth surrogate at alpha 8, to a residual of 1e-9."""
    run = lambda: fb.alpha_fair_rates(net, routes, 8.0)
    facts = lambda solution: {"residual": float(solution.residual), "steps": int(solution.steps)}
    return Work(lambda: None, lambda _: timed(lambda: jax.block_until_ready(run())), facts)


def _fat_tree(cell: Cell) -> fb.Network:
    ratio = OVERSUBSCRIPTION.get(cell.problem, 1)
    return fb.topologies.fat_tree(k=int(cell.size.removeprefix("k")), oversubscription=ratio)


def _with_failures(net: fb.Network, cell: Cell) -> fb.Network:
    """Fail cables between switches, drawn once."""
    if cell.problem not in N_FAILED:
        return net
    labels = net.labels
    hosts = labels.is_kind("host")
    inner = np.flatnonzero(~hosts[labels.src] & ~hosts[labels.dst])
    cables = np.unique(labels.cable_of[inner])
    drawn = np.random.default_rng(0).choice(cables, N_FAILED[cell.problem], replace=False)
    _, first_link = np.unique(labels.cable_of, return_index=True)
    return net.without(links=first_link[np.searchsorted(np.unique(labels.cable_of), drawn)])


def _route(net: fb.Network, flows: fb.Flows, rule: str) -> fb.Routes:
    if rule == "ecmp":
        return fb.routing.ecmp(net, flows, seed=0)
    return fb.routing.spray(net, flows)


def _stepping(servers: int, phase: str) -> Work:
    """Build a cluster, or step on it with sensitivities by tier, warm or in a new process."""
    build = lambda: fb.topologies.cluster("dgx-h100", nodes=servers)
    if phase == "build":
        return Work(lambda: None, lambda _: timed(build), net_facts)
    if phase.startswith("route-"):
        net = build()
        flows = fb.traffic.uniform_random(net.hosts, PAIRS if servers > SMALL else 2_000, seed=0)
        route = functools.partial(_route, net, flows, phase.removeprefix("route-"))
        return Work(lambda: None, lambda _: timed(route), route_facts)
    if phase == "cold":
        return Work(lambda: None, lambda _: _cold(servers), lambda _: {})
    net, model, layout = build(), fb.Model.listed(STEP_MODEL), step_layout(servers)
    return Work(
        lambda: None,
        lambda _: timed(lambda: fb.step(net, model, layout, "spread")),
        lambda report: {
            "gpus": report.gpus_used,
            "step_time_s": report.step_time,
            "flows": sum(phase.traffic.exchange.n_flows for phase in report.phases),
            "certificate": report.certificate,
        },
    )


PAIRS, SMALL = 1_000_000, 64
STEP_MODEL = "llama-3.1-70b"


def step_layout(servers: int) -> fb.Layout:
    """Return a layout for a 70B model on so many servers of 8 GPUs."""
    dp = servers // 4
    return fb.Layout.parse(
        f"tp8 sp pp4 dp{dp} zero1 mb1 gbs{32 * dp} seq8192 bf16 recompute=selective"
    )


def _cold(servers: int) -> tuple[float, None]:
    """Return what a new process takes from its start to the answer."""
    code = (
        "import jax; jax.config.update('jax_enable_x64', True); import fabric as fb; "
        f"net = fb.topologies.cluster('dgx-h100', nodes={servers}); "
        f"layout = fb.Layout.parse('{step_layout(servers)}'); "
        f"fb.step(net, fb.Model.listed('{STEP_MODEL}'), layout, 'spread')"
    )
    run = lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return timed(run)[0], None


def _reading() -> Work:
    path = Path(fb.__file__).parent / "data" / "demo.ibnetdiscover.gz"
    read = lambda: fb.readers.read(path)
    return Work(lambda: None, lambda _: timed(read), lambda reading: net_facts(reading.network))


def _import_time(_: None) -> tuple[float, None]:
    """Return what `import fabric` takes in a new process that has imported JAX and equinox."""
    code = (
        "import time, jax, equinox; began = time.perf_counter(); import fabric; "
        "print(time.perf_counter() - began)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout), None
