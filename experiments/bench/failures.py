"""Every single failure of a cable, NIC or switch of servers on a fabric of three tiers."""

import numpy as np

import fabric as fb
from experiments.bench.registry import Cell
from experiments.bench.timing import Work, net_facts, timed
from fabric.reliability import Contingency, contingency

KINDS = ("link", "nic", "switch")


def failing(cell: Cell) -> Work:
    """Score every single failure under a ring of servers per rail; by phase with two faults."""
    hosts = fb.topologies.fat_tree(int(cell.size.removeprefix("k")))
    server = fb.hardware.server("dgx-h100")
    net = fb.topologies.attach_servers(hosts, server, hosts.hosts.reshape(-1, 8))
    if cell.phase == "with-faults":
        cable = int(np.flatnonzero(net.labels.is_tier("aggregation-core"))[5])
        nic = int(net.labels.tags["nic"][net.hosts[len(net.hosts) // 2]])
        net = net.without(links=[cable]).degraded(nodes=[nic], factor=0.5)
    flows = fb.Flows(net.hosts, np.roll(net.hosts, -8))

    def facts(report: Contingency) -> dict[str, object]:
        return net_facts(net) | {
            "flows": flows.n_flows,
            "components": report.n_components,
            "classes": report.n_classes,
        }

    call = lambda: contingency(net, flows, kind=KINDS, progress=False)
    return Work(lambda: None, lambda _: timed(call), facts)
