"""Hundreds of what-ifs around one solution: how fast, how exact, and how far the lines reach.

A fabric of more than a thousand endpoints, once with every link of another capacity so that no two
are tied, and once as it is built, where everything is. Every row is held against `max_min_rates` on
the changed network; a row that was read off a line is also tried at the end of its reach and just
beyond. Then the step of a job on 1,024 GPUs, against `step` with the same routes.
"""

import time
from collections.abc import Sequence

import numpy as np

import fabric as fb
from experiments.optimizers.limits import at_most
from experiments.rows import Row
from fabric.network import Network, Routes
from fabric.optimize import Job, WhatIf, WhatIfs, linearize

TARGET = "target of this project"
HOW = ("unchanged", "linear", "re-solved")
TRIED = 24
"""Rows of a table that are tried where all would take long, spread over it."""
MANY = 100
"""Rows of a table from which its time counts; fewer are mostly the first pass."""


def rows(smoke: bool = False) -> list[Row]:
    """Return every row; with `smoke` of a small fabric."""
    found: list[Row] = []
    for name, net, routes in cases(8 if smoke else 24):
        for objective in ("mean", "slowest"):
            found += judged(name, net, routes, objective)
    return found + steps(4 if smoke else 128)


def cases(k: int) -> list[tuple[str, Network, Routes]]:
    """Return fat trees of radix k: links of unlike capacity, hashed; and as built, hashed."""
    net = fb.topologies.fat_tree(k=k, capacity="400Gb/s")
    flows = fb.traffic.permutation(net.hosts, seed=1)
    factor = np.random.default_rng(0).uniform(0.6, 1.0, net.n_links)
    uneven = net.with_capacity(np.asarray(net.capacity) * factor)
    size = f"{len(net.hosts):,} endpoints, {net.n_links:,} links"
    return [
        (f"{size}, uneven, hashed", uneven, fb.routing.ecmp(uneven, flows, seed=1)),
        (f"{size}, as built, hashed", net, fb.routing.ecmp(net, flows, seed=1)),
    ]


def judged(name: str, net: Network, routes: Routes, objective: str) -> list[Row]:
    """Return the rows of one table: every cable up and down, as many as there may be."""
    linearize(net, routes, "tier", objective)  # compiled
    begun = time.process_time()
    table = linearize(net, routes, "cable", objective, by="5%", most=400)
    ours = (time.process_time() - begun) / len(table)
    begun = time.process_time()
    fresh = [solved(net, routes, row, row.by, objective) for row in table]
    each = (time.process_time() - begun) / len(table)
    found = [exact(f"{name}, {objective}", table, table, fresh)]
    if len(table) >= MANY:
        found.append(faster(f"{name}, {objective}", table, ours, each))
    return [*found, *reaches(f"{name}, {objective}", net, routes, table)]


def exact(name: str, table: WhatIfs, rows: Sequence[WhatIf], fresh: Sequence[float]) -> Row:
    """Return how far rows are from what a fresh solve says."""
    error = max(abs(row.value / value - 1) for row, value in zip(rows, fresh, strict=True))
    how = ", ".join(f"{sum(row.how == kind for row in table)} {kind}" for kind in HOW)
    return at_most(
        f"{name}, worst of {len(rows)} rows against a fresh solve", 1e-9, error, "", TARGET,
        f"{how}; {table.tangents} derivatives, {table.solves} solves",
    )  # fmt: skip


def faster(name: str, table: WhatIfs, ours: float, each: float) -> Row:
    """Return the seconds of computing of a fresh solve over those of a what-if.

    A line has to be worked out with its reach, so that one size of every change may be solved anew
    in less time: no limit to hold, and shown as refuted where it is so.
    """
    ratio = each / ours
    note = f"{1e3 * ours:.2f} ms, reach included, against {1e3 * each:.2f} ms"
    return Row(
        f"{name}, a fresh solve over one of {len(table)} what-ifs", 1.0, ratio, "times",
        abs(ratio - 1), "a line is read off faster than it is solved", note, refuted=ratio < 1,
    )  # fmt: skip


def steps(nodes: int) -> list[Row]:
    """Return the rows of a step: cables up and down, and as many fresh steps as are tried."""
    net = fb.topologies.cluster("dgx-h100", nodes=nodes)
    gpus = len(net.hosts)
    model = fb.Model.listed("llama-3.1-70b")
    layout = fb.Layout.parse(f"tp8 sp pp4 dp{gpus // 32} zero1 mb1 gbs{gpus} seq2048")
    kept: dict[bytes, Routes] = {}

    def fixed(network: Network, flows: fb.Flows) -> Routes:
        # A rule may split by capacity, and a what-if leaves routes as they are.
        key = np.asarray(flows.src).tobytes() + np.asarray(flows.dst).tobytes()
        if key not in kept:
            kept[key] = fb.routing.spray(network, flows)
        return kept[key]

    job = Job(model=model, layout=layout, routing=fixed)
    stepped = lambda network: fb.step(network, model, layout, routing=fixed, by=None).step_time
    linearize(net, job, "tier")  # compiled
    begun = time.process_time()
    table = linearize(net, job, "cable", by="20%", most=400)
    ours = (time.process_time() - begun) / len(table)
    tried = table.rows[:: max(len(table) // TRIED, 1)]
    begun = time.process_time()
    fresh = [stepped(changed(net, row, row.by)) for row in tried]
    each = (time.process_time() - begun) / len(tried)
    name = f"step on {gpus:,} GPUs, {net.n_links:,} links"
    return [exact(name, table, tried, fresh), faster(name, table, ours, each)]


def reaches(name: str, net: Network, routes: Routes, table: WhatIfs) -> list[Row]:
    """Return how true lines are at their ends, and how many bend right behind them."""
    ends = [row for row in table if row.how == "linear" and 1e-6 < row.exact_within < 0.99]
    tried = ends[:: max(len(ends) // TRIED, 1)]
    if not tried:
        return []
    inside, past = [], []
    for row in tried:
        start = row.share / abs(row.by)  # of the objective per share of the capacity
        for shares, factor in ((inside, 1 - 1e-6), (past, 1 + 1e-2)):
            by = float(np.sign(row.by)) * row.exact_within * factor
            value = solved(net, routes, row, by, table.objective)
            shares.append(abs(value / table.value - 1 - start * abs(by)))
    bent = sum(off > 1e-12 for off in past)
    return [
        at_most(f"{name}, {len(tried)} lines at the end of their reach", 1e-9, max(inside), "",
                TARGET, f"reach {min(r.exact_within for r in tried):.2g} to "
                f"{max(r.exact_within for r in tried):.2g}; {bent} bend within one percent behind"),
    ]  # fmt: skip


def solved(net: Network, routes: Routes, row: WhatIf, by: float, objective: str) -> float:
    """Return the objective on the changed network, from scratch."""
    rates = np.asarray(fb.max_min_rates(changed(net, row, by), routes).rates)
    return float(rates.min() if objective == "slowest" else rates.mean())


def changed(net: Network, row: WhatIf, by: float) -> Network:
    """Return the network with both links of a cable changed, found by its two ends."""
    labels = net.labels
    ends = [labels.node(end) for end in str(row.key).split(" - ")]
    src, dst = np.asarray(labels.src), np.asarray(labels.dst)
    here = (src == ends[0]) & (dst == ends[1]) | (src == ends[1]) & (dst == ends[0])
    return net.with_capacity(np.asarray(net.capacity) * np.where(here, 1 + by, 1.0))
