"""What a cluster is built of: GPUs, NICs, switches and the servers that hold them."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabric._errors import raise_faults, some
from fabric._evidence import Evidence

_A_MODULE_PER_PORT = Evidence(1.0, "assumed", "a transceiver module per port")


@dataclass(frozen=True)
class Gpu:
    """One type of GPU.

    Attributes:
        name: Its name in the catalogue.
        peak: Dense FLOP/s by dtype: "bf16", "fp16", and where known "fp8", "tf32" and "fp32".
        memory: Bytes of high-bandwidth memory.
        hbm: byte/s between that memory and the GPU.
        scale_up: byte/s per direction of all NVLink or xGMI links together.
        profile: Name of the `Profile` that is its default.

    Examples:
        >>> from fabric import hardware
        >>> gpu = hardware.gpu("h100")
        >>> gpu.name, gpu.peak["bf16"].value, gpu.scale_up.value
        ('h100-sxm', 989000000000000.0, 450000000000.0)
    """

    name: str
    peak: Mapping[str, Evidence]
    memory: Evidence
    hbm: Evidence
    scale_up: Evidence
    profile: str


@dataclass(frozen=True)
class Nic:
    """One type of network card.

    Attributes:
        name: Its name in the catalogue.
        rate: byte/s per port and direction.
        ports: Number of ports.

    Examples:
        >>> from fabric import hardware
        >>> hardware.nic("cx7").rate.value
        50000000000.0
    """

    name: str
    rate: Evidence
    ports: int


@dataclass(frozen=True)
class Switch:
    """One type of switch, or of switch chip.

    Attributes:
        name: Its name in the catalogue.
        ports: Number of ports.
        rate: byte/s per port and direction.
        ports_per_module: Ports that share a transceiver module: 2 where cages are twin-port.
        power: Watts without transceiver modules; None: not known.

    Examples:
        >>> from fabric import hardware
        >>> quantum = hardware.switch("qm9700")
        >>> quantum.ports, quantum.capacity
        (64, 3200000000000.0)
    """

    name: str
    ports: int
    rate: Evidence
    ports_per_module: Evidence = _A_MODULE_PER_PORT
    power: Evidence | None = None

    @property
    def capacity(self) -> float:
        """byte/s of all ports together, per direction."""
        return self.ports * self.rate.value


@dataclass(frozen=True)
class Server:
    """One type of server: how its GPUs, NICs, PCIe switches and sockets are wired.

    Attributes:
        name: Its name in the catalogue.
        gpu: Name of its GPU.
        n_gpus: Number of GPUs.
        chips: (chips,), NVLink cables from every GPU to each NVSwitch chip; empty: no chips.
        mesh: Links between every pair of GPUs, as in an xGMI mesh; 0: none.
        link_rate: byte/s per direction of one NVLink or xGMI link.
        pcie_of_gpu: (gpus,), PCIe switch of every GPU.
        pcie_of_nic: (nics,), PCIe switch of every NIC.
        socket_of_pcie: (pcie switches,), socket of every PCIe switch.
        pcie_rate: byte/s per direction of an x16 slot.
        socket_rate: byte/s per direction between two sockets.
        nic: Name of its NIC.
        n_nics: Number of NICs for the compute fabric.
        nic_of_gpu: (gpus,), the NIC that each GPU uses: its rail.
        gpudirect: Whether NICs read GPU memory; otherwise the traffic passes through the socket.
        kind: How the wiring is known, one of the kinds of `Evidence`.
        source: Where the wiring comes from.
        ports_per_module: Ports of its NICs that share a transceiver module.
        boards: Boards that the GPUs are divided over, each with NVSwitch chips of its own; `chips`
            counts those of one board. Default 1.
        uplinks: (chips,), NVLinks of each chip of a board to a second level of chips. Default:
            none.
        top_chips: Chips of the second level; every board has as many links to each of them, and
            chip after chip of a board takes its share.

    Raises:
        ModelError: With every field that has a wrong length or points at something absent.

    Examples:
        >>> from fabric import hardware
        >>> dgx = hardware.server("dgx-h100")
        >>> dgx.chips, dgx.links_per_gpu, dgx.scale_up
        ((5, 4, 4, 5), 18, 450000000000.0)
        >>> dgx.with_gpudirect(False).gpudirect
        False
    """

    name: str
    gpu: str
    n_gpus: int
    chips: tuple[int, ...]
    mesh: int
    link_rate: Evidence
    pcie_of_gpu: tuple[int, ...]
    pcie_of_nic: tuple[int, ...]
    socket_of_pcie: tuple[int, ...]
    pcie_rate: Evidence
    socket_rate: Evidence
    nic: str
    n_nics: int
    nic_of_gpu: tuple[int, ...]
    gpudirect: bool
    kind: str = "user"
    source: str = "given by the caller"
    ports_per_module: Evidence = _A_MODULE_PER_PORT
    boards: int = 1
    uplinks: tuple[int, ...] = ()
    top_chips: int = 0

    def __post_init__(self) -> None:
        raise_faults(_wiring_faults(self))

    @property
    def links_per_gpu(self) -> int:
        """NVLink or xGMI links of every GPU."""
        return sum(self.chips) + self.mesh * (self.n_gpus - 1)

    @property
    def n_chips(self) -> int:
        """Number of NVSwitch chips, on boards and above them."""
        return self.boards * len(self.chips) + self.top_chips

    @property
    def scale_up(self) -> float:
        """byte/s per direction of all NVLink or xGMI links of a GPU; 0 where there are none."""
        return self.links_per_gpu * self.link_rate.value

    @property
    def n_pcie(self) -> int:
        """Number of PCIe switches."""
        return len(self.socket_of_pcie)

    @property
    def n_sockets(self) -> int:
        """Number of sockets."""
        return max(self.socket_of_pcie) + 1

    def with_gpudirect(self, gpudirect: bool) -> "Server":
        """Return the same server with GPUDirect RDMA on or off."""
        return dataclasses.replace(self, gpudirect=gpudirect)


def evidence(record: Any, prefix: str = "") -> Iterator[tuple[str, Evidence]]:
    """Yield the dotted name and the `Evidence` of every number of a record.

    Args:
        record: A `Gpu`, `Nic`, `Switch`, `Server` or `Profile`.
        prefix: What the names begin with.

    Examples:
        >>> from fabric import hardware
        >>> [name for name, _ in hardware.evidence(hardware.server("dgx-h100"))]
        ['link_rate', 'pcie_rate', 'socket_rate', 'ports_per_module']
    """
    if isinstance(record, Evidence):
        yield prefix, record
        return
    if dataclasses.is_dataclass(record):
        items = [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]
    else:
        items = list(record.items()) if isinstance(record, Mapping) else []
    for name, value in items:
        yield from evidence(value, f"{prefix}.{name}" if prefix else name)


def _wiring_faults(server: Server) -> list[str]:
    """Return every field whose length or numbers do not fit the others."""
    counts = {"n_gpus": server.n_gpus, "n_nics": server.n_nics}
    faults = [
        f"`{key}` of server '{server.name}' needs a whole number from 1, but got {count}."
        for key, count in counts.items()
        if count < 1
    ]
    lengths = {
        "pcie_of_gpu": server.n_gpus,
        "nic_of_gpu": server.n_gpus,
        "pcie_of_nic": server.n_nics,
    }
    for key, length in lengths.items():
        if len(getattr(server, key)) != length:
            faults.append(
                f"`{key}` of server '{server.name}' needs {length} entries, but has "
                f"{len(getattr(server, key))}."
            )
    limits = {
        "pcie_of_gpu": (server.n_pcie, "PCIe switches, as `socket_of_pcie` has it"),
        "pcie_of_nic": (server.n_pcie, "PCIe switches, as `socket_of_pcie` has it"),
        "nic_of_gpu": (server.n_nics, "NICs"),
    }
    for key, (limit, what) in limits.items():
        wrong = [i for i in getattr(server, key) if not 0 <= i < limit]
        if wrong:
            faults.append(
                f"`{key}` of server '{server.name}' names {some(wrong)}, but there are {limit} "
                f"{what}, counted from 0."
            )
    negative = [
        key
        for key, numbers in (
            ("chips", server.chips),
            ("mesh", (server.mesh,)),
            ("socket_of_pcie", server.socket_of_pcie),
        )
        if any(n < 0 for n in numbers)
    ]
    if negative:
        faults.append(
            f"Server '{server.name}' needs numbers of 0 or more, but {some(negative)} "
            f"{'have' if len(negative) > 1 else 'has'} a negative one."
        )
    if server.chips and server.mesh:
        faults.append(
            f"Server '{server.name}' has NVSwitch chips and a mesh. Give `chips` or `mesh`, and "
            f"leave the other empty."
        )
    faults += _board_faults(server)
    if not server.socket_of_pcie:
        faults.append(f"`socket_of_pcie` of server '{server.name}' needs a PCIe switch at least.")
    return faults


def _board_faults(server: Server) -> list[str]:
    """Return what is wrong with boards and the chips above them."""
    of = f"of server '{server.name}'"
    if server.boards < 1 or server.n_gpus % server.boards:
        return [
            f"`boards={server.boards}` {of} does not divide its {server.n_gpus} GPUs. Use a number "
            f"that does."
        ]
    if not server.uplinks and not server.top_chips:
        if server.boards > 1 and server.chips:
            return [f"`boards` {of} need `uplinks` and `top_chips` to join them. Give both."]
        return []
    if len(server.uplinks) != len(server.chips):
        return [
            f"`uplinks` {of} needs {len(server.chips)} entries, one per chip of a board, but has "
            f"{len(server.uplinks)}."
        ]
    links = sum(server.uplinks)
    if min(server.uplinks, default=0) < 0 or server.top_chips < 1 or links % server.top_chips:
        return [
            f"`top_chips={server.top_chips}` {of} does not divide the {links} uplinks of a board. "
            f"Use a number that does."
        ]
    return []
