"""Layout search: proofs against scoring every layout, the speed of the closed form, and GPT-3.

Spaces are drawn: a model, a batch and servers under leaves whose uplinks have a half or an eighth
of what the servers can send. The truth of a space is the exact score of each of its layouts.
"""

import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fabric as fb
from experiments.optimizers.limits import at_least, at_most
from experiments.rows import Row
from fabric import hardware, optimize, routing
from fabric.network import Network
from fabric.optimize._layout_score import ClosedForm, Rows, Wires
from fabric.optimize._layout_search import Search
from fabric.optimize._layout_space import Space as Table
from fabric.optimize._layout_wires import Fabric
from fabric.training._assemble import Wire, assemble
from fabric.training._compute import compute_times
from fabric.training._phases import Servers

TARGET = "target of this project"
MODELS = (
    "llama-3.1-8b", "llama-2-13b", "qwen2.5-14b", "qwen2.5-32b", "llama-3.1-70b", "megatron-22b",
)  # fmt: skip
GPU, PROFILE = "h100-sxm", "megatron-core-h100"
TABLE = 100_000


def rows(smoke: bool = False) -> list[Row]:
    """Return every row; with `smoke` one space of each kind, and GPT-3 on 64 GPUs."""
    found: list[Row] = []
    for ratio in (2, 8):
        found += proofs(ratio, 1 if smoke else 50)
    return [*found, *speed(smoke), *large(8 if smoke else 512), stages(20 if smoke else 200)]


class Space(NamedTuple):
    """A drawn problem."""

    network: Network
    model: fb.Model
    gbs: int
    seq: int
    routing: str


def drawn(seed: int, ratio: int) -> Space:
    """Return the space of a seed; of some seeds nothing fits."""
    rng = random.Random(seed)
    servers, per_leaf, spines = rng.choice([2, 4, 4, 8]), rng.choice([1, 2]), 4
    nics = fb.topologies.leaf_spine(
        leaves=servers // per_leaf, spines=spines, hosts_per_leaf=8 * per_leaf,
        capacity="400Gb/s", uplink_capacity=50e9 * 8 * per_leaf / spines / ratio,
    )  # fmt: skip
    network = fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(servers, 8)
    )
    model = fb.Model.listed(rng.choice(MODELS))
    seq = model.positions or rng.choice([4096, 8192])
    return Space(
        network, model, rng.choice([64, 128, 256, 512]), seq, rng.choice(["spray", "ecmp"])
    )


class Proof(NamedTuple):
    """One space searched, and its truth."""

    regret: float
    gap: float
    share: float  # of the layouts that were scored exactly
    solves: int
    sound: bool  # no bound is above its exact score, refined or not
    alone: float  # regret of the least bound


def proofs(ratio: int, spaces: int) -> Iterator[Row]:
    """Yield what searches prove on spaces of one oversubscription."""
    found: list[Proof] = []
    for seed in itertools.count():
        if len(found) == spaces:
            break
        try:
            found.append(proof(drawn(seed, ratio)))
        except fb.InfeasibleError:
            continue
    name = f"{spaces} spaces, spine {ratio}:1"
    regrets = [one.regret for one in found]
    solves = sorted(one.solves for one in found)
    alone = [one.alone for one in found]
    yield at_least(
        f"{name}, optimum found", spaces, sum(abs(r) <= 1e-11 for r in regrets), "", TARGET,
        f"solves: median {solves[len(solves) // 2]}, most {solves[-1]}",
    )  # fmt: skip
    yield at_least(
        f"{name}, certificate >= true gap >= 0, all bounds below", spaces,
        sum(o.gap >= o.regret - 1e-11 >= -2e-11 and o.sound for o in found), "", TARGET,
    )  # fmt: skip
    yield at_least(
        f"{name}, at most 5 % scored exactly", round(0.9 * spaces),
        sum(one.share <= 0.05 for one in found), "", TARGET,
        f"mean {np.mean([one.share for one in found]):.2%}; the least bound alone is up to "
        f"{max(alone):.1%} off",
    )  # fmt: skip


def proof(space: Space) -> Proof:
    """Return what a search says of a space, and what is true."""
    asked = {"gbs": space.gbs, "seq": space.seq, "routing": space.routing}
    found = optimize.layout(space.network, space.model, top=1, **asked)
    search = searched(space, found.space)
    truth = np.empty(search.space.n_rows)
    for key in np.unique(search.keys).tolist():
        of_key = np.flatnonzero(search.keys == key)
        truth[of_key] = search.seconds(key, of_key)
    best = truth.min()
    sound = bool((search.lower <= truth).all())
    search.refine(np.arange(len(search.space.degrees)))
    return Proof(
        found.objective / best - 1, found.gap, found.evaluations / found.legal, found.solves,
        sound and bool((search.lower <= truth).all()), found.ideal.step_time / best - 1,
    )  # fmt: skip


def searched(space: Space, table: Table) -> Search:
    """Return a search of its own of a table, with the bounds of all rows."""
    gpu, profile = hardware.gpu(GPU), hardware.profile(PROFILE)
    form = ClosedForm(space.model, gpu, profile, space.gbs, space.seq, "bf16")
    slots = {len(space.network.hosts): space.network.hosts}
    return Search(table, form, exchanges(space), slots, None, by_cost=False)


def exchanges(space: Space) -> Fabric:
    """Return the exchanges of a space."""
    return Fabric(
        space.network, space.model, hardware.profile(PROFILE), space.seq, "bf16",
        routing.ROUTINGS[space.routing], named=True,
    )  # fmt: skip


def speed(smoke: bool) -> Iterator[Row]:
    """Yield the speed of the closed form, its precision, and its best row against one at a time."""
    network = fb.topologies.cluster("dgx-h100", nodes=16)
    model, gbs, seq = fb.Model.listed("llama-3.1-70b"), 512, 4096
    space = Space(network, model, gbs, seq, "spray")
    found = optimize.layout(
        network, model, gbs=gbs, seq=seq, routing="spray", recompute="counts", top=1
    )
    fabric, table = exchanges(space), found.space
    of = np.random.default_rng(0).integers(0, table.n_rows, TABLE)
    least = np.array([fabric.least(one, network.hosts) for one in table.degrees])

    def columns(kind: type[np.floating]) -> tuple[Rows, Wires]:
        return (
            Rows(*(np.asarray(column[table.shape_of[of]], kind) for column in table.columns)),
            Wires(*(np.asarray(column[table.degrees_of[of]], kind) for column in least.T)),
        )

    form = ClosedForm(model, hardware.gpu(GPU), hardware.profile(PROFILE), gbs, seq, "bf16")
    wide = form.seconds(*columns(np.float64), lower=True)
    rate = {}
    for kind in (np.float64, np.float32):
        given, times = columns(kind), []
        form.compiled(*given).block_until_ready()
        for _ in range(5 if smoke else 50):
            begun = time.perf_counter()
            np.asarray(form.compiled(*given))
            times.append(time.perf_counter() - begun)
        # Other processes only slow a call down: the fastest says what the closed form can.
        rate[kind] = TABLE / min(times)
    narrow = np.asarray(form.compiled(*columns(np.float32)))
    off = float(np.abs(narrow / wide - 1).max())
    yield at_least(
        f"{TABLE:,} layouts in closed form, a second", 5e6, rate[np.float64], "1/s", TARGET,
        f"float64; float32 {rate[np.float32] / 1e6:.0f} M; the best published tool about 100",
    )  # fmt: skip
    yield at_most("float32 against float64, worst", 2e-6, off, "", TARGET)
    whole = np.isin(table.columns.recomputed * table.columns.pp, (0, model.layers))
    some = np.flatnonzero(whole[table.shape_of[of]])[: 200 if smoke else 2000]
    single = [one_at_a_time(space, table, int(of[i]), Wires(*least[table.degrees_of[of[i]]]))
              for i in some]  # fmt: skip
    batch = form.seconds(
        Rows(*(c[some] for c in columns(np.float64)[0])),
        Wires(*(w[some] for w in columns(np.float64)[1])),
    )
    yield at_most(
        f"best of {len(some):,} layouts against one at a time", 1e-12,
        single[int(batch.argmin())] / min(single) - 1, "", TARGET,
        f"worst difference of a score {np.abs(batch / single - 1).max():.1e}",
    )  # fmt: skip


def one_at_a_time(space: Space, table: Table, row: int, wires: Wires) -> float:
    """Return the step of a layout by the functions that take one at a time."""
    layout, gpu, profile = table.layout(row), hardware.gpu(GPU), hardware.profile(PROFILE)
    sized = lambda name: layout.mb * getattr(wires, name) + getattr(wires, f"{name}_wait")
    wire = Wire(
        **{name: sized(name) for name in ("tp", "cp", "pp_forward", "pp_backward")},
        dp=wires.dp, dp_latency=wires.dp_wait, embedding=wires.embedding,
    )  # fmt: skip
    parameters = float(table.columns.parameters[table.shape_of[row]])
    found = assemble(
        compute_times(space.model, layout, gpu, profile, parameters), wire, layout, profile,
        layers=space.model.layers, parameters=parameters,
        nodes=Servers.in_(space.network).count(space.network.hosts),
    )  # fmt: skip
    return float(found.step)


def large(nodes: int) -> Iterator[Row]:
    """Yield the exact search of GPT-3 with all recompute counts and orders of ranks."""
    network = fb.topologies.cluster("dgx-h100", nodes=nodes)
    with tempfile.TemporaryDirectory() as folder:
        asked = {
            "gbs": 1536, "seq": 2048, "recompute": "counts", "rank_orders": "all", "top": 1,
            "checkpoint": Path(folder) / "kept",
        }  # fmt: skip
        first = optimize.layout(network, fb.Model.listed("gpt-3-175b"), **asked)
        second = optimize.layout(network, fb.Model.listed("gpt-3-175b"), **asked)
    name = f"GPT-3 175B on {8 * nodes:,} GPUs"
    yield at_most(
        f"{name}, seconds to a proved optimum", 600, first.seconds, "s", TARGET,
        f"{first.legal:,} layouts; {first.evaluations:,} scored exactly, {first.solves:,} solves, "
        f"gap {first.gap:.1e}; {first.best}",
    )  # fmt: skip
    same = (first.objective, first.bound, first.evaluations, first.best.layout) == (
        second.objective, second.bound, second.evaluations, second.best.layout
    )  # fmt: skip
    yield at_least(
        f"{name}, resumed gives the same", 1, float(same), "", TARGET,
        f"{second.seconds:.0f} s instead of {first.seconds:.0f} s",
    )  # fmt: skip


def stages(seeds: int) -> Row:
    """Return how often layers per stage are as good as the best of all divisions."""
    right = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 5))
        layers, m = int(rng.integers(count, 15)), int(rng.integers(1, 17))
        cost = rng.uniform(0.5, 2, layers) * rng.choice([1.0, 1.7], (count, 1))
        found = optimize.stages(cost, stages=count, microbatches=m)
        best = np.inf
        for inner in itertools.combinations(range(1, layers), count - 1):
            ends = itertools.pairwise([0, *inner, layers])
            times = [cost[s, a:b].sum() for s, (a, b) in enumerate(ends)]
            best = min(best, sum(times) + (m - 1) * max(times))
        right += abs(found.objective / best - 1) <= 1e-12
    return at_least(
        "layers per stage equal brute force, up to 14 layers and 4 stages", seeds, right, "",
        TARGET,
    )  # fmt: skip
