"""Switches of the catalogue, and cases that are arithmetic."""

from experiments.topologies.answers import ARITHMETIC, COUNTED, Answers, largest
from experiments.topologies.published import Entry
from experiments.topologies.tori import rate
from fabric import hardware
from fabric.hardware import Switch
from fabric.topologies import sizes

CATALOGUE = "the hardware catalogue"
TBIT, TB = 1e12 / 8, 1e12


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    if entry.name == "sanity_single_gpu_1e24":
        _one_gpu(found, entry)
    elif entry.name == "sanity_torus_a2a_scaling":
        _scaling(found, entry, smoke)
    else:
        _asic(found, entry)
    return found


def _asic(found: Answers, entry: Entry) -> None:
    names = {
        "asic_tomahawk5": "tomahawk5", "asic_tomahawk4": "tomahawk4", "asic_tomahawk6": "tomahawk6",
        "asic_spectrum4_sn5600": "sn5600", "asic_quantum_hdr_qm8790": "qm8790",
        "asic_quantum2_qm9700": "qm9700", "asic_quantum_x800_q3400": "q3400",
        "asic_nvswitch_gen3": "nvswitch3", "asic_nvswitch_gen2": "nvswitch2",
        "asic_nvswitch_gen4_nvl72": "nvswitch4", "asic_rosetta_slingshot": "rosetta",
    }  # fmt: skip
    switch = hardware.switch(names[entry.name])
    for key in entry.expected:
        _put(found, entry, switch, key)


def _put(found: Answers, entry: Entry, switch: Switch, key: str) -> None:
    """Add the value of one key of a switch."""
    bits = switch.capacity / TBIT
    if key.startswith("ports_"):
        speed = float(key.removeprefix("ports_").removesuffix("g")) * 1e9 / 8
        how = CATALOGUE if speed == switch.rate.value else f"{CATALOGUE}; its capacity by the speed"
        found.put(how, **{key: round(switch.capacity / speed)})
    elif key.endswith("_ports"):
        found.put(CATALOGUE, **{key: switch.ports})
    elif key in ("Tbps", "Tbps_per_dir"):
        found.put(CATALOGUE, **{key: bits})
    elif key == "Tbps_bidir":
        found.put(CATALOGUE, **{key: 2 * bits})
    elif key == "one_way_TBps":
        found.put(CATALOGUE, **{key: switch.capacity / TB})
    elif key == "bidir_TBps":
        found.put(CATALOGUE, **{key: 2 * switch.capacity / TB})
    elif key == "osfp":
        found.put(CATALOGUE, osfp=switch.ports // int(switch.ports_per_module.value))
    elif key == "serdes_lanes":
        lane = entry.expected["lane_gbps"] * 1e9 / 8
        found.put(f"{ARITHMETIC}: the capacity by a lane", serdes_lanes=switch.capacity / lane)
    elif key == "two_tier_max_nics":
        most = largest(lambda n: sizes("clos", hosts=n, radix=switch.ports))
        found.put(COUNTED, two_tier_max_nics=most)
    elif key == "per_dgx_a100":
        found.put(CATALOGUE, per_dgx_a100=len(hardware.server("dgx-a100").chips))
    else:
        found.skip("a lane of a chip, which the catalogue does not hold", key)


def _one_gpu(found: Answers, entry: Entry) -> None:
    flop, speed = entry.params["total_flop"], entry.params["gpu_flops"]
    seconds = flop / speed
    found.put(
        ARITHMETIC,
        seconds=seconds, years_365_25=seconds / (365.25 * 86_400),
        seconds_at_200k_gpus_100pct=seconds / 200_000,
        hours_at_200k_gpus_40pct_mfu=seconds / 200_000 / 0.4 / 3600,
    )  # fmt: skip


def _scaling(found: Answers, entry: Entry, smoke: bool) -> None:
    link = entry.params["link_one_way_GBps"]
    cube = rate((4, 4, 4))
    found.put("built", v4_4x4x4_per_chip_GBps=cube.in_links * link)
    key = "v4_16x16x16_per_chip_GBps"
    if smoke:
        found.skip("left out of a smoke run", key)
    else:
        found.put("built", **{key: rate((16, 16, 16)).in_links * link})
    per_gpu = hardware.nic("cx7").rate.value / 1e9
    found.put(f"{CATALOGUE}; a fat tree keeps it", fat_tree_400g_per_gpu_GBps=per_gpu)
