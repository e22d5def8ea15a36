"""What is inside servers: GPUs, NVLink, PCIe and sockets, and their links to the NICs."""

import numpy as np
from jaxtyping import Int

from fabric.hardware import Server
from fabric.network import Blueprint, Network

INSIDE_KINDS = ("nvswitch", "pcie-switch", "socket")
"""Kinds that forward inside a server and are no switches of the fabric."""

INSIDE_TIERS = ("nvlink", "pcie", "socket")
"""Tiers inside a server."""

# NVLink costs 1, so that a way over PCIe is the shortest only where there is none over NVLink.
_NVLINK_COST, _PCIE_COST = 1, 8
_MESHED_SOCKETS = 8


def insides(
    server: Server, nics: Int[np.ndarray, "servers nics"]
) -> tuple[Network, dict[str, np.ndarray]]:
    """Return the network of the insides of servers, and what their GPUs are.

    Args:
        server: What is inside.
        nics: (servers, nics of a server), node numbers in the fabric.

    Returns:
        The network; a NIC has its number in the fabric plus the number of nodes inside. And the
        tags `gpu`, `rail`, `nic` and `staging` of the GPUs, which are its first nodes.
    """
    plan, next_slot = Blueprint(), 0
    of = np.arange(len(nics))[:, None]

    def nodes(kind: str, word: str, count: int) -> Int[np.ndarray, "servers nodes"]:
        nonlocal next_slot
        slot, next_slot = next_slot + np.arange(count), next_slot + count
        shape = (len(nics), count)
        return plan.nodes(kind, f"server{{}}-{word}{{}}", shape, server=of, slot=slot)

    def cables(tier: str, a: np.ndarray, b: np.ndarray, rate: float | np.ndarray, cost: int):
        if a.size:
            plan.cables(tier, a, b, rate, routing_cost=cost)

    gpu = nodes("gpu", "gpu", server.n_gpus)
    n_lower = server.boards * len(server.chips)
    chip = nodes("nvswitch", "nvswitch", n_lower) if n_lower else gpu[:, :0]
    top = nodes("nvswitch", "nvswitch-top", server.top_chips) if server.top_chips else gpu[:, :0]
    pcie = nodes("pcie-switch", "pcie", server.n_pcie)
    socket = nodes("socket", "socket", server.n_sockets)
    nic = nics + (socket.max() + 1)

    link, lane = server.link_rate.value, server.pcie_rate.value
    if server.chips:
        lower = chip.reshape(len(nics), server.boards, 1, -1)
        of_board = gpu.reshape(len(nics), server.boards, -1, 1)
        cables("nvlink", of_board, lower, link * np.array(server.chips), _NVLINK_COST)
        if server.top_chips:
            a, b, links = _uplinks(server)
            cables("nvlink", lower[:, :, 0, a], top[:, None, b], link * links, _NVLINK_COST)
    if server.mesh:
        a, b = np.triu_indices(server.n_gpus, 1)
        cables("nvlink", gpu[:, a], gpu[:, b], link * server.mesh, _NVLINK_COST)
    cables("pcie", gpu, pcie[:, list(server.pcie_of_gpu)], lane, _PCIE_COST)
    cables("pcie", nic, pcie[:, list(server.pcie_of_nic)], lane, _PCIE_COST)
    cables("socket", pcie, socket[:, list(server.socket_of_pcie)], lane, _PCIE_COST)
    a, b = _socket_pairs(server.n_sockets)
    cables("socket", socket[:, a], socket[:, b], server.socket_rate.value, _PCIE_COST)

    own = np.array(server.socket_of_pcie)[list(server.pcie_of_gpu)]
    tags = {
        "gpu": np.broadcast_to(np.arange(server.n_gpus), gpu.shape),
        "rail": np.broadcast_to(np.array(server.nic_of_gpu), gpu.shape),
        "nic": nic[:, list(server.nic_of_gpu)],
        "staging": np.full_like(gpu, -1) if server.gpudirect else socket[:, own],
    }
    return plan.network(server.name), {tag: values.ravel() for tag, values in tags.items()}


def _socket_pairs(n: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    if n <= _MESHED_SOCKETS:
        return np.triu_indices(n, 1)
    first = np.arange(0, n - 1, 2)
    return first, first + 1


def _uplinks(
    server: Server,
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return chips of a board, chips above, and the links between each pair of them."""
    chip = np.repeat(np.arange(len(server.chips)), server.uplinks)
    top = np.arange(len(chip)) * server.top_chips // len(chip)
    pairs, links = np.unique(np.stack([chip, top]), axis=1, return_counts=True)
    return pairs[0], pairs[1], links
