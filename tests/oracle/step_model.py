"""The step model a second time, in floats and lists, as `docs/step-model.md` states it.

It shares no code with `fabric.training`, `fabric.collectives` or `fabric.routing`: it counts
parameters, lists flows, walks the network node by node and fills links with the plain oracle of
`fabric.reference`. A `Model`, a `Layout`, a `Profile`, a `Gpu` and the labels of a `Network` are
read as data. Single letters are those of the document.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import fabric as fb
from fabric.hardware import Gpu, Profile
from fabric.reference import Problem, max_min_rates_by_levels

BYTES = {"fp8": 2, "bf16": 2, "fp16": 2, "fp32": 4}
Way = dict[int, float]  # share of a flow on every link that it crosses
Ring = list[tuple[int, int, float]]  # (from, to, share of the bytes) of every flow


class Fabric:
    """A network as nodes and live directed links, walked flow by flow."""

    def __init__(self, network: fb.Network, profile: Profile, scale: dict[str, float]):
        labels = network.labels
        self.n_links = int(network.n_links)
        self.src, self.dst = labels.src.tolist(), labels.dst.tolist()
        self.tier = [labels.tiers[tier] for tier in labels.tier_of.tolist()]
        self.kind = [labels.kinds[kind] for kind in labels.kind_of.tolist()]
        self.server = labels.tags["server"].tolist()
        self.nic, self.staging = labels.tags["nic"].tolist(), labels.tags["staging"].tolist()
        self.latency = [float(x) for x in network.latency]
        self.capacity = [
            float(c) * scale.get(tier, 1.0)
            for c, tier in zip(network.capacity, self.tier, strict=True)
        ]
        # What a collective reaches: NVLink inside servers, cables outside, the rest as it is.
        reached = {"nvlink": profile.efficiency.nvlink.value, "pcie": 1.0, "socket": 1.0}
        outside = profile.efficiency.nic.value
        self.reached = [
            c * reached.get(tier, outside) for c, tier in zip(self.capacity, self.tier, strict=True)
        ]
        self.out: dict[int, list[int]] = defaultdict(list)
        self.into: dict[int, list[int]] = defaultdict(list)
        for link, alive in enumerate(network.alive.tolist()):
            if alive:
                self.out[self.src[link]].append(link)
                self.into[self.dst[link]].append(link)
        self.known: dict[tuple[int, int, str], Way] = {}

    def way(self, a: int, b: int) -> Way:
        """Return the share of a flow from GPU to GPU on every link."""
        if self.server[a] == self.server[b]:
            return self.shortest(a, b, "nvlink")
        stops = [a, self.staging[a], self.nic[a], self.nic[b], self.staging[b], b]
        stops = [stop for stop in stops if stop >= 0]
        total: Way = defaultdict(float)
        for here, there in itertools.pairwise(stops):
            inside = self.server[here] == self.server[there]
            for link, share in self.shortest(here, there, "board" if inside else "cable").items():
                total[link] += share
        return dict(total)

    def shortest(self, a: int, b: int, by: str) -> Way:
        """Return the shares over all shortest ways, split anew at every node.

        NVLinks share by capacity, since a link is all the NVLinks between its ends; cables of the
        fabric share equally.
        """
        if (a, b, by) in self.known:
            return self.known[a, b, by]
        tiers = {"nvlink": {"nvlink"}, "board": {"pcie", "socket"}}.get(by)
        allowed = lambda link: (
            self.tier[link] in tiers
            if tiers
            else self.tier[link] not in ("nvlink", "pcie", "socket")
        )
        ends = ("gpu", "nic")
        left, edge = {b: 0}, [b]  # steps that are left to b
        while edge:
            behind = []
            for node in edge:
                for link in self.into[node]:
                    u = self.src[link]
                    if allowed(link) and u not in left and (u == a or self.kind[u] not in ends):
                        left[u] = left[node] + 1
                        behind.append(u)
            edge = behind
        way: Way = defaultdict(float)
        at = {a: 1.0}
        while at:
            then: dict[int, float] = defaultdict(float)
            for node, share in at.items():
                links = [
                    link for link in self.out[node]
                    if allowed(link) and left.get(self.dst[link]) == left[node] - 1
                ]  # fmt: skip
                size = [self.capacity[link] if by == "nvlink" else 1.0 for link in links]
                for link, part in zip(links, size, strict=True):
                    way[link] += share * part / sum(size)
                    if self.dst[link] != b:
                        then[self.dst[link]] += share * part / sum(size)
            at = then
        self.known[a, b, by] = dict(way)
        return self.known[a, b, by]


@dataclass
class Exchange:
    """Flows that are on the fabric at once: seconds per byte of each, and the latency."""

    group: list[int]
    pace: list[float]  # share / rate
    latency: float

    def seconds(self, size: float | Sequence[float]) -> float:
        """Return the time of an exchange in which the ranks of a group send so many bytes."""
        if not self.group:
            return 0.0
        of = lambda group: size[group] if isinstance(size, Sequence) else size
        return (
            max(of(g) * pace for g, pace in zip(self.group, self.pace, strict=True)) + self.latency
        )


def exchange(fabric: Fabric, profile: Profile, groups: list[Ring], steps: int) -> Exchange:
    """Return the exchange in which all these groups communicate at once."""
    latency = profile.latency
    flows = [(g, a, b, share) for g, ring in enumerate(groups) for a, b, share in ring]
    ways = [fabric.way(a, b) for _, a, b, _ in flows]
    if not flows:
        return Exchange([], [], 0.0)
    problem = Problem.from_paths(fabric.reached, ways, [way.values() for way in ways])
    rates = max_min_rates_by_levels(problem).tolist()
    slowest = 0.0
    for ring in groups:
        members = {x for a, b, _ in ring for x in (a, b)}
        if not members:
            continue
        # One pass visits each server once: so many of its steps leave one.
        passes = steps / (len(members) - 1)
        crossings = passes * (len({fabric.server[x] for x in members}) - 1)
        inside = steps - crossings
        waits = crossings * latency.nic_step.value + inside * latency.nvlink_step.value
        slowest = max(slowest, waits)
    longest = max(sum(share * fabric.latency[k] for k, share in way.items()) for way in ways)
    return Exchange(
        [g for g, *_ in flows],
        [share / rate for (*_, share), rate in zip(flows, rates, strict=True)],
        latency.collective.value + slowest + steps * longest,
    )


def ring(members: list[int], server_of: list[int]) -> Ring:
    """Return the flows of a ring: server after server, on a channel per member of a server."""
    if len(members) == 1:
        return []
    servers: dict[int, list[int]] = {}
    for member in members:
        servers.setdefault(server_of[member], []).append(member)
    blocks = list(servers.values())
    n = len(blocks)
    if n == 1:
        return [(a, b, 1.0) for a, b in zip(members, members[1:] + members[:1], strict=True)]
    channels = min(len(block) for block in blocks)
    flows = []
    for channel in range(channels):
        # The member that stands at either side of the gap behind each server.
        gap = [channel + s % 2 for s in range(n)]
        if n % 2:
            gap[-1] = channel + 2
        walk = []
        for s, block in enumerate(blocks):
            k = len(block)
            out, into = gap[s] % k, gap[s - 1] % k
            if into == out:
                into = (out + 1) % k
            between = [i for i in range(k) if i not in (into, out)]
            walk += [block[i] for i in dict.fromkeys([into, *between, out])]
        flows += [(a, b, 1 / channels) for a, b in zip(walk, walk[1:] + walk[:1], strict=True)]
    return flows


@dataclass
class Step:
    """What the document says of one step, by name."""

    parts: dict[str, float]
    hidden: dict[str, float]
    step: float
    tokens_per_s: float
    mfu: float


def gpu_parameters(model: fb.Model, layout: fb.Layout, stage: int) -> int:
    """Return the parameters on a GPU of a stage, matrix by matrix."""
    t, h, e = layout.tp, model.hidden, model.head_dim
    queries, keys = model.heads // t * e, max(model.kv_heads // t, 1) * e
    f, up = model.ffn // t, 2 if model.gated else 1
    norm = 2 * h if model.norm_bias else h
    layer = h * queries + 2 * h * keys + queries * h + up * h * f + f * h + 2 * norm
    layer += (queries + 2 * keys) if model.qkv_bias else 0
    layer += h if model.out_bias else 0
    layer += (up * f + h) if model.mlp_bias else 0
    layer += 2 * e if model.qk_norm else 0
    total = model.layers // layout.pp * layer
    table = math.ceil(model.vocab / t) * h
    if stage == 0:
        total += table + model.positions * h
    if stage == layout.pp - 1:
        total += norm
        if not (model.tied and layout.pp == 1):
            total += table
    return total


def layer_pass(computing: float, host: float, tp: float, cp: float) -> dict[str, float]:
    """Return what computing, launching and waiting each add to one pass of a layer.

    Launching hides behind all that the GPU does, and tensor parallelism is counted before context
    parallelism.
    """
    together = lambda busy: (busy**4 + host**4) ** 0.25
    return {
        "compute": computing,
        "host": together(computing) - computing,
        "tp": together(computing + tp) - together(computing),
        "cp": together(computing + tp + cp) - together(computing + tp),
    }


def step(
    network: fb.Network,
    model: fb.Model,
    layout: fb.Layout,
    profile: Profile,
    gpu: Gpu,
    gpu_of: Sequence[int] | None = None,
    scale: dict[str, float] | None = None,
) -> Step:
    """Return the time of a step and where it goes.

    Args:
        network: With servers.
        model: Its shape.
        layout: How it is cut.
        profile: Of the software.
        gpu: Of the GPU.
        gpu_of: (ranks,), the node of every rank. Default: in order.
        scale: Factors on the capacity of whole tiers.
    """
    h, L, f = model.hidden, model.layers, model.ffn
    a, k, e = model.heads, model.kv_heads, model.head_dim
    t, c, d, p, v = layout.tp, layout.cp, layout.dp, layout.pp, layout.vpp
    V = math.ceil(model.vocab / t)
    b, s = layout.mb, layout.seq
    m = layout.gbs // (b * d)
    D, M = d * c, b * s / c
    peak = gpu.peak[layout.dtype].value
    wide_peak = gpu.peak["bf16"].value if layout.dtype == "fp8" else peak
    P = peak * profile.efficiency.gemm.value
    H = gpu.hbm.value * profile.efficiency.hbm.value
    w = BYTES[layout.dtype]
    grad = {"fp32": 4, "bf16": 2}[profile.stack.grad_dtype]
    stack, latency = profile.stack, profile.latency
    weights = [gpu_parameters(model, layout, stage) for stage in range(p)]
    W = max(weights)
    heads_kv = max(k / t, 1)

    # Computing
    q, core = profile.gemm_half.value, profile.core_half.value

    def gemm(rows: float, columns: float, inner: float, speed: float = P) -> float:
        return 2 * rows * columns * inner / speed * (1 + q * (1 / rows + 1 / columns + 1 / inner))

    wide = wide_peak * profile.efficiency.gemm.value  # attention and head stay in BF16 with FP8
    up = 2 if model.gated else 1
    products = (
        gemm(M, (a * e + 2 * heads_kv * e * t) / t, h)
        + gemm(M, h, a * e / t)
        + gemm(M, up * f / t, h)
        + gemm(M, h, f / t)
    )
    fused = stack.attention != "unfused"
    if fused:
        attention = 2 * b * s**2 * a * e / (t * c) / (wide_peak * profile.efficiency.flash.value)
        attention_back = 2.5 * attention
    else:
        multiplying = 4 * b * s**2 * a * e / (t * c) / wide * (1 + core * (2 / s + 1 / e))
        scores = (9 if stack.dropout else 4) * a * b * s**2 / (t * c) / H
        attention = multiplying + scores
        attention_back = 2 * multiplying + 1.6 * scores
    whole_row = (22 if stack.dropout else 16) * M * h / (t if layout.sp else 1)
    elementwise = (whole_row + (8 * M * h + (6 if model.gated else 4) * M * f) / t) / H
    forward = products + attention + elementwise
    backward = 2 * products + attention_back + 2 * elementwise
    full = layout.recompute == "full"
    recompute = forward if full else 0.0
    if layout.recompute == "selective" and not fused:
        recompute = attention
    head = 3 * gemm(M, V, h, wide) + 20 * M * V / H
    accumulate = 10 * W / H if stack.grad_accumulation == "separate" else 0.0
    optimizer = W * ((4 + 30 / D) if layout.zero else 34) / H

    # On the wire
    fabric = Fabric(network, profile, scale or {})
    node = list(gpu_of) if gpu_of is not None else list(range(layout.gpus))

    def rank(i: int, j: int, l: int, n: int) -> int:
        return node[i + t * (j + c * (l + d * n))]

    tp_ranks, cp_ranks, dp_ranks, stages = range(t), range(c), range(d), range(p)
    rings = lambda groups: [ring(group, fabric.server) for group in groups]
    of = lambda groups, steps: exchange(fabric, profile, groups, steps)
    tp_groups = rings(
        [rank(i, j, l, n) for i in tp_ranks] for n in stages for l in dp_ranks for j in cp_ranks
    )
    cp_groups = rings(
        [rank(i, j, l, n) for j in cp_ranks] for n in stages for l in dp_ranks for i in tp_ranks
    )
    dp_groups = rings(
        [rank(i, j, l, n) for l in dp_ranks for j in cp_ranks] for n in stages for i in tp_ranks
    )
    every = [(i, j, l) for l in dp_ranks for j in cp_ranks for i in tp_ranks]
    after = [(n, (n + 1) % p) for n in stages if n + 1 < p or v > 1]
    ahead = [[(rank(*r, n), rank(*r, to), 1.0)] for n, to in after for r in every if p > 1]
    back = [[(y, x, 1.0)] for ((x, y, _),) in ahead]
    tied = [
        ring([rank(*r, 0), rank(*r, p - 1)], fabric.server) for r in every if model.tied and p > 1
    ]
    tp = of(tp_groups, 2 * (t - 1)).seconds(2 * (t - 1) / t * w * M * h)
    cp = of(cp_groups, c - 1).seconds((c - 1) * w * M * 2 * heads_kv * e)
    gathered = 0.0 if layout.sp else tp / 2
    messages = 0.0
    if p > 1:
        size = w * M * h / t
        messages = v * (of(ahead, 1).seconds(size) + of(back, 1).seconds(size) + 2 * gathered)
    dp = of(dp_groups, D - 1)
    sent = lambda width: dp.seconds(
        [(D - 1) / D * weights[n] * width for n in stages for _ in tp_ranks]
    )
    embedding = of(tied, 1).seconds(grad * V * h)

    # The step
    cp_forward = max(0.0, cp - attention * (c - 1) / c)
    cp_backward = max(0.0, 2 * cp - attention_back * (c - 1) / c)
    share = (stack.sp_exposed_backward if layout.sp else stack.tp_exposed_backward).value
    tp_forward, tp_backward = 2 * tp, 2 * share * tp
    if stack.tp_overlap:  # each of the two beside its products
        tp_forward = 2 * max(0.0, tp - products / 2)
        tp_backward = 2 * max(0.0, tp - products)
    again_tp, again_cp = (tp_forward, cp_forward) if full else (0.0, 0.0)
    host = latency.host_per_layer.value
    forward_pass = layer_pass(forward, host, tp_forward, cp_forward)
    backward_pass = layer_pass(
        backward + recompute, host * (2.6 if full else 1.6),
        tp_backward + again_tp, cp_backward + again_cp,
    )  # fmt: skip
    layers = L / p
    layer_forward, layer_backward = sum(forward_pass.values()), sum(backward_pass.values())
    both = {part: m * layers * (forward_pass[part] + backward_pass[part]) for part in forward_pass}
    stage_time = layers * (layer_forward + layer_backward)
    launch = latency.microbatch.value + (v * latency.chunk.value if v > 1 else 0.0)
    slowest = stage_time + head + 2 * tp + accumulate + messages + launch
    bubble = (p - 1) * (stage_time + messages + launch) / v
    pipeline = m * slowest + bubble

    dp_total, dp_part = 0.0, 0.0
    if D > 1:
        reduce, gather = sent(grad), sent(4 if layout.dtype == "fp32" else 2)
        bucket = 25e6 / grad if stack.buckets == "ddp" else max(40e6, 1e6 * D)
        floor = min(1.0, max(0.05, bucket / W))
        behind = lambda time, computing: (
            max(floor * time, time - computing) if stack.dp_overlap else time
        )
        beside = lambda time: (
            (pipeline**3 + time**3) ** (1 / 3) - pipeline if stack.dp_overlap else time
        )
        last_backward, first_forward = layers * layer_backward, layers * layer_forward
        if layout.zero == 0:
            dp_total = 2 * reduce
            dp_part = behind(dp_total, last_backward)
        elif layout.zero == 1:
            dp_total = reduce + gather
            dp_part = behind(reduce, last_backward) + behind(gather, first_forward)
        elif layout.zero == 2:
            dp_total = m * reduce + gather
            dp_part = beside(m * reduce) + behind(gather, first_forward)
        else:
            dp_total = m * (2 * gather + reduce)
            dp_part = beside(dp_total)
    plain = pipeline + dp_part + embedding + optimizer
    servers = len({fabric.server[x] for x in node})
    jitter = plain * profile.jitter_per_doubling.value * math.log2(servers)
    whole = (plain + jitter) / stack.factor.value
    tp_part, cp_part = both["tp"] + m * 2 * tp, both["cp"]
    parts = {
        "compute": both["compute"] + m * (head + accumulate),
        "host": both["host"] + m * launch,
        "tp": tp_part,
        "cp": cp_part,
        "pp": m * messages,
        "dp": dp_part,
        "embedding": embedding,
        "bubble": bubble,
        "optimizer": optimizer,
        "jitter": jitter,
        "stack": whole - plain - jitter,
    }
    hidden = {
        "tp": m * layers * (6 if full else 4) * tp + m * 2 * tp - tp_part,
        "cp": m * layers * (4 if full else 3) * cp - cp_part,
        "dp": dp_total - dp_part,
    }
    tokens = layout.gbs * s
    matrices = h * (a + 2 * k) * e + a * e * h + (up + 1) * h * f
    flops = 3 * tokens * (L * (2 * matrices + 4 * s * a * e) + 2 * h * model.vocab)
    return Step(parts, hidden, whole, tokens / whole, flops / (whole * layout.gpus * peak))
