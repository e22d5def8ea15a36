"""Rails under racks: leaves that the compute trays of whole racks share."""

import numpy as np

from fabric._errors import raise_faults
from fabric.network import Blueprint, Network


def racks(
    n_racks: int, racks_per_unit: int, trays: int, rails: int, leaves: int, spines: int,
    radix: int, rate: float, source: str,
) -> Network:  # fmt: skip
    """Return two tiers under racks: NIC r of every tray meets a leaf of rail r.

    The leaves of a rail fill up in order of racks and trays. A leaf has the fewest uplinks that
    are as many as its ports down and the same number to every spine.

    Args:
        n_racks: Number of racks.
        racks_per_unit: Racks of a scalable unit.
        trays: Compute trays of a rack.
        rails: NICs of a tray.
        leaves: Number of leaves, a multiple of `rails`.
        spines: Number of spines.
        radix: Ports of every switch.
        rate: byte/s of every cable, per direction.
        source: What was built.

    Raises:
        ModelError: If the leaves do not deal out, or a switch would need more ports than it has.
    """
    faults = []
    if leaves % rails:
        faults.append(
            f"`leaves={leaves}` needs a multiple of the {rails} rails, so that every rail has as "
            f"many. Use `leaves={-(-leaves // rails) * rails}`."
        )
    down = -(-n_racks * trays * rails // leaves)
    cables = -(-down // spines)
    if down + cables * spines > radix:
        faults.append(
            f"`leaves={leaves}` have {down} NICs each and {cables * spines} uplinks to "
            f"`spines={spines}`, {down + cables * spines} ports in all, but a switch has {radix}. "
            f"Use more leaves, or a number of spines that divides {down}."
        )
    if leaves * cables > radix:
        faults.append(
            f"`spines={spines}` with {cables} cables to each of {leaves} leaves need "
            f"{leaves * cables:,} ports each, but a switch has {radix}. Use more spines."
        )
    raise_faults(faults)
    plan = Blueprint()
    rack, tray = np.arange(n_racks)[:, None, None], np.arange(trays)[:, None]
    rail = np.arange(rails)
    per_rail = leaves // rails
    number = rail * per_rail + (rack * trays + tray) * per_rail // (n_racks * trays)
    nic = plan.nodes(
        "nic", "rack{}-tray{}-nic{}", (n_racks, trays, rails), rail=rail, leaf=number, rack=rack,
        unit=rack // racks_per_unit,
    )  # fmt: skip
    leaf = plan.nodes(
        "leaf", "leaf{}", (leaves,), leaf=np.arange(leaves), rail=np.arange(leaves) // per_rail
    )
    spine = plan.nodes("spine", "spine{}", (spines,))
    plan.cables("host", nic, leaf[number], rate)
    plan.cables("leaf-spine", leaf[:, None], spine, rate, parallel=cables)
    return plan.network(source)
