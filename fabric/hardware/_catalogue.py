"""The parts by name: entries of the catalogue files made into records."""

import dataclasses
from typing import Any

from fabric._errors import ModelError, quoted, some
from fabric._evidence import Evidence
from fabric._units import parse_rate, parse_size, parse_time
from fabric.hardware._entry import Entry
from fabric.hardware._files import Folder, entry
from fabric.hardware._flops import parse_flops
from fabric.hardware._profile import (
    CHOICES,
    Collectives,
    Efficiency,
    Latency,
    Profile,
    Stack,
    replaced,
)
from fabric.hardware._records import Gpu, Nic, Server, Switch, evidence
from fabric.hardware._watts import parse_power

_DTYPES = ("bf16", "fp16", "fp8", "tf32", "fp32")
_SECTIONS = {
    "efficiency": Efficiency,
    "latency": Latency,
    "stack": Stack,
    "collectives": Collectives,
}


def gpu(name: str, folder: Folder = None) -> Gpu:
    """Return a GPU of the catalogue.

    Args:
        name: Its name or an alias of it.
        folder: Of the user, with files as the built-in ones; what it names wins. Default: as the
            environment variable `FABRIC_HARDWARE` says, else `hardware` in the user's home.

    Raises:
        ModelError: If there is no such GPU, or its entry is wrong; with every fault.

    Examples:
        >>> gpu("a100").peak["bf16"].value / 1e12
        312.0
    """
    name, found = entry("gpus", name, folder)
    peak = found.section("peak")
    present = [d for d in _DTYPES if peak.has(d) or d in ("bf16", "fp16")]
    fields = {
        "peak": {dtype: peak.quantity(dtype, parse_flops) for dtype in present},
        "memory": found.quantity("memory", parse_size),
        "hbm": found.quantity("hbm", parse_rate),
        "scale_up": found.quantity("scale_up", parse_rate),
        "profile": _named(found, "profile", "profiles", folder),
    }
    peak.close()
    return found.build(lambda: Gpu(name=name, **fields))


def nic(name: str, folder: Folder = None) -> Nic:
    """Return a NIC of the catalogue; arguments and errors as of `gpu`.

    Examples:
        >>> nic("cx7").rate.value
        50000000000.0
    """
    name, found = entry("nics", name, folder)
    fields = {"rate": found.quantity("rate", parse_rate), "ports": found.whole("ports")}
    return found.build(lambda: Nic(name=name, **fields))


def switch(name: str, folder: Folder = None) -> Switch:
    """Return a switch, or a switch chip, of the catalogue; arguments and errors as of `gpu`.

    Examples:
        >>> switch("nvswitch3").capacity
        1600000000000.0
    """
    name, found = entry("switches", name, folder)
    fields: dict[str, Any] = {
        "rate": found.quantity("rate", parse_rate),
        "ports": found.whole("ports"),
    }
    fields |= _modules(found)
    if found.has("power"):
        fields["power"] = found.quantity("power", parse_power)
    return found.build(lambda: Switch(name=name, **fields))


def server(name: str, folder: Folder = None) -> Server:
    """Return a server of the catalogue; arguments and errors as of `gpu`.

    An entry with `boards` describes one of them, and the server is so many.

    Examples:
        >>> server("dgx-a100").pcie_of_gpu
        (0, 0, 1, 1, 2, 2, 3, 3)
        >>> server("dgx-h100-nvl256").n_gpus
        256
    """
    name, found = entry("servers", name, folder)
    fields: dict[str, Any] = {key: _named(found, key, f"{key}s", folder) for key in ("gpu", "nic")}
    fields |= {key: found.whole(key) for key in ("n_gpus", "n_nics", "mesh")}
    wirings = ("chips", "pcie_of_gpu", "pcie_of_nic", "socket_of_pcie", "nic_of_gpu")
    fields |= {key: found.wholes(key) for key in wirings}
    rates = ("link_rate", "pcie_rate", "socket_rate")
    fields |= {key: found.quantity(key, parse_rate) for key in rates}
    fields |= {"gpudirect": found.flag("gpudirect"), "kind": found.kind, "source": found.source}
    fields |= _modules(found)
    fields |= {key: found.wholes(key) for key in ("uplinks",) if found.has(key)}
    fields |= {key: found.whole(key) for key in ("boards", "top_chips") if found.has(key)}
    return found.build(lambda: Server(name=name, **_repeated(fields)))


def _repeated(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of all boards of a server, from those of one."""
    if (boards := fields.get("boards", 1)) < 2:
        return fields
    n_pcie, n_sockets = len(fields["socket_of_pcie"]), max(fields["socket_of_pcie"], default=0) + 1
    steps = {
        "pcie_of_gpu": n_pcie, "pcie_of_nic": n_pcie, "nic_of_gpu": fields["n_nics"],
        "socket_of_pcie": n_sockets,
    }  # fmt: skip
    whole = {
        key: tuple(board * step + n for board in range(boards) for n in fields[key])
        for key, step in steps.items()
    }
    return fields | whole | {key: boards * fields[key] for key in ("n_gpus", "n_nics")}


def profile(name: str, folder: Folder = None) -> Profile:
    """Return a profile of the catalogue; arguments and errors as of `gpu`.

    A profile's file may name another one with `like`, and give only what differs. What is taken
    over from the profile of another GPU is an assumption, and its evidence says so.

    Examples:
        >>> round(profile("megatron-a100").latency.collective.value * 1e6)
        236
        >>> profile("default-h200").efficiency.gemm.kind
        'assumed'
    """
    return _profile(name, folder, ())


def default_profile(gpu_name: str, folder: Folder = None) -> Profile:
    """Return the profile that is the default of a GPU; arguments and errors as of `gpu`.

    Examples:
        >>> default_profile("h100").name
        'megatron-core-h100'
    """
    return profile(gpu(gpu_name, folder).profile, folder)


def _profile(name: str, folder: Folder, before: tuple[str, ...]) -> Profile:
    """Return a profile; `before` are those that led here by `like`."""
    name, found = entry("profiles", name, folder)
    if name in before:
        message = f"Profiles {some([*before, name])} are like each other in a circle."
        raise ModelError(message)
    if found.has("name") and found.raw["name"] != name:
        found.fault("name", f"the name of its file, {quoted(name)}", found.raw["name"])
    gpu_name = _named(found, "gpu", "gpus", folder)
    base = None
    if found.has("like"):
        like = found.text("like")
        try:
            base = _taken_over(_profile(like, folder, (*before, name)), gpu_name)
        except ModelError as error:
            found.note(f"`like`: {error}")
    values = _values(found, optional="like" in found.raw)
    about = {"name": name, "gpu": gpu_name, "kind": found.kind, "source": found.source}
    return found.build(
        lambda: replaced(base, values | about) if base else _assembled(values, about)
    )


def _modules(found: Entry) -> dict[str, Evidence]:
    """Return how many ports share a transceiver module, where the entry says it."""
    key = "ports_per_module"
    if not found.has(key):
        return {}
    shared = found.quantity(key)
    if shared.value < 1 or shared.value % 1:
        found.fault(key, "a whole number from 1", shared.value)
    return {key: shared}


def _named(found: Entry, key: str, kind: str, folder: Folder) -> str:
    """Return the name of another part that an entry names, by its name or an alias."""
    name = found.text(key)
    if key not in found.raw:
        return name
    try:
        return entry(kind, name, folder)[0]
    except ModelError as error:
        found.note(f"`{key}`: {error}")
        return name


def _values(found: Entry, optional: bool) -> dict[str, Any]:
    """Return what the entry of a profile holds, by dotted name; all of it unless it is optional."""
    values: dict[str, Any] = {
        key: found.quantity(key)
        for key in ("gemm_half", "core_half", "jitter_per_doubling")
        if found.has(key) or not optional
    }
    for key, record in _SECTIONS.items():
        if not found.has(key) and optional:
            continue
        section = found.section(key)
        for field in dataclasses.fields(record):
            if section.has(field.name) or not optional:
                values[f"{key}.{field.name}"] = _value(section, key, field)
        section.close()
    return values


def _value(section: Entry, key: str, field: dataclasses.Field[Any]) -> Any:
    if field.type is Evidence:
        return section.quantity(field.name, parse_time if key == "latency" else None)
    if field.type is bool:
        return section.flag(field.name)
    return section.choice(field.name, CHOICES[f"{key}.{field.name}"])


def _assembled(values: dict[str, Any], about: dict[str, str]) -> Profile:
    """Return the profile of these values by dotted name."""
    parts: dict[str, Any] = about | {k: value for k, value in values.items() if "." not in k}
    for key, record in _SECTIONS.items():
        names = [field.name for field in dataclasses.fields(record)]
        parts[key] = record(**{name: values[f"{key}.{name}"] for name in names})
    return Profile(**parts)


def _taken_over(base: Profile, gpu_name: str) -> Profile:
    """Return a profile as it is for its own GPU; for another one its numbers are assumed."""
    if base.gpu == gpu_name:
        return base
    return replaced(
        base,
        {
            key: dataclasses.replace(
                found,
                kind="assumed",
                source=f"as {base.gpu} in profile {base.name}: {found.source}",
            )
            for key, found in evidence(base)
        },
    )
