"""Steps on clusters, and what can be read from them: bytes, how often, which links."""

from functools import cache

import numpy as np

import fabric as fb
from fabric.hardware import Profile
from fabric.topologies import INSIDE_TIERS
from fabric.training import StepReport

KORTHIKANTI = (
    "V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models "
    "(arXiv 2205.05198)"
)
NARAYANAN = (
    "D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using "
    "Megatron-LM (arXiv 2104.04473)"
)
SHOEYBI = "M. Shoeybi et al., Megatron-LM (arXiv 1909.08053), section 3"
ZERO = "S. Rajbhandari et al., ZeRO (arXiv 1910.02054)"
RULE = "a rule of planning guides, no document named"


@cache
def servers(name: str, nodes: int) -> fb.Network:
    """Return a cluster, built once."""
    return fb.topologies.cluster(name, nodes=nodes)


def stepped(
    model: str | fb.Model,
    words: str,
    network: fb.Network | None = None,
    profile: Profile | None = None,
) -> StepReport:
    """Return a step, by default on as many DGX H100 as the layout fills; memory does not count."""
    layout = fb.Layout.parse(words)
    model = fb.Model.listed(model) if isinstance(model, str) else model
    network = network or servers("dgx-h100", -(-layout.gpus // 8))
    return fb.step(network, model, layout, profile=profile, by=None, allow_infeasible=True)


def sent(report: StepReport, kind: str) -> float:
    """Return the bytes that the busiest GPU sends in one exchange of a kind: its flows summed."""
    traffic = next(p.traffic for p in report.phases if p.traffic.name == kind)
    return float(np.bincount(np.asarray(traffic.exchange.flows.src), traffic.size).max())


def often(report: StepReport, kind: str) -> float:
    """Return how often a step makes an exchange; of "dp" the bytes a parameter that go round."""
    return report.times_a_step[kind]


def tiers(report: StepReport, kind: str) -> list[str]:
    """Return the tiers that an exchange crosses, from the GPU outwards."""
    phase = next(p for p in report.phases if p.traffic.name == kind)
    routes, labels = phase.routes, report.network.labels
    used = np.unique(np.asarray(routes.hop_bundle)[np.asarray(routes.hop_use) > 0])
    if routes.n_parts:
        parts = np.isin(np.asarray(routes.part_bundle), used) & (np.asarray(routes.part_use) > 0)
        used = np.unique(np.asarray(routes.part_link)[parts])
    crossed = np.unique(labels.tier_of[used])
    return [labels.tiers[i] for i in crossed]


def with_nics(network: fb.Network, factor: float) -> fb.Network:
    """Return the network with every link outside of servers that much faster."""
    outside = np.array([tier not in INSIDE_TIERS for tier in network.labels.tiers])
    scale = np.where(outside, factor, 1.0)[network.labels.tier_of]
    return network.with_capacity(np.asarray(network.capacity) * scale)
