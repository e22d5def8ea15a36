"""Do counts, cuts, diameters and paths of the fabrics we build equal what is published of them?

Every entry of the reference file whose numbers are sure gives a row per key, compared exactly, or
to the printed digits. A key that no topology gives, such as a price or a measurement, is listed
with the reason. Entries that are from memory in part stand in a table of their own with the
difference, and decide nothing.
"""

from collections import Counter
from typing import Any

from experiments.rows import Result, Row
from experiments.topologies import (
    generic,
    hyperscalers,
    low_diameter,
    nodes,
    parts,
    superpods,
    tori,
)
from experiments.topologies.answers import Answers
from experiments.topologies.published import Entry, allowed, entries, flat

FAMILIES = {
    "superpod": superpods.answer, "rule": superpods.rule, "node": nodes.answer,
    "generic": generic.answer, "hyperscaler": hyperscalers.answer, "torus": tori.answer,
    "ocs": tori.answer, "low-diameter": low_diameter.answer, "asic": parts.answer,
    "sanity": parts.answer,
}  # fmt: skip

PRINTED_WRONG = (
    (
        "superpod_b300_xdr_18su", "gpus", 9216,
        "the document's table prints this in its row of 18 units, but 1,296 nodes have 8 GPUs each",
    ),
    (
        "superpod_h100_1024gpu_full", "spine_tier_port_capacity_one_way_TBps", 25.6,
        "an appendix of the source takes the 25 GB/s of an NVSwitch port for a port of 400 Gb/s",
    ),
)  # fmt: skip
"""Numbers that a source prints and that are wrong: entry, key, the number, and why."""

NO_RULE = "no rule here gives it"

UNITS = {
    "GBps": "GB/s", "TBps": "TB/s", "PBps": "PB/s", "Tbps": "Tb/s", "gbps": "Gb/s",
    "musd": "M$", "kusd": "k$",
}  # fmt: skip


def run(smoke: bool = False) -> Result:
    """Return a row for every number that can be had; with `smoke` without the largest fabrics."""
    rows: list[Row] = []
    missing: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for entry in entries():
        found = FAMILIES[entry.kind](entry, smoke)
        missing += without(entry, found)
        if entry.sure:
            rows += compared(entry, found)
            rows += refuted(entry, found)
        else:
            others += [
                {"id": row.id, "quoted": row.quoted, "computed": row.computed,
                 "difference": row.computed - row.quoted}
                for row in compared(entry, found)
            ]  # fmt: skip
    counts = Counter(row.verdict for row in rows)
    summary = {
        "matched": counts["holds"],
        "refuted": counts["refuted"],
        "differing": counts["short"],
        "not computed": len([line for line in missing if line["sure"]]),
        "other entries: equal": sum(abs(line["difference"]) <= 1e-9 for line in others),
        "other entries: different": sum(abs(line["difference"]) > 1e-9 for line in others),
        "other entries: not computed": len([line for line in missing if not line["sure"]]),
        "twisted torus 4x4x8 over plain, all-to-all": gain((4, 4, 8)),
        "twisted torus 4x8x8 over plain, all-to-all": gain((4, 8, 8)),
    }
    notes = [
        "Words and yes or no are compared as 1 and 0.",
        f"{counts['holds']:,} published numbers matched, {counts['short']:,} differ, "
        f"{counts['refuted']:,} are printed wrongly; {summary['not computed']:,} are no property "
        f"of a topology or were left out.",
    ]
    tables = {"not computed": missing, "entries from memory, and the difference": others}
    return Result(rows, summary, notes, tables)


def compared(entry: Entry, found: Answers) -> list[Row]:
    """Return a row for every leaf of every key that has a value.

    Args:
        entry: With the published numbers.
        found: With ours.
    """
    rows = []
    for key, value in found.values.items():
        if key not in entry.expected:
            message = f"{entry.name} has no key {key}"
            raise KeyError(message)
        ours = dict(flat(key, value))
        for name, quoted in flat(key, entry.expected[key]):
            rows.append(_row(entry, name, quoted, ours.get(name, "nothing"), found.how[key]))
    return rows


def refuted(entry: Entry, found: Answers) -> list[Row]:
    """Return a row for every number that the source of an entry prints wrongly.

    Args:
        entry: With the published numbers.
        found: With ours.
    """
    return [
        Row(f"{name}.{key} as printed", quoted, float(found.values[key]), _unit(key), 0.0,
            entry.source, why, refuted=True)
        for name, key, quoted, why in PRINTED_WRONG
        if name == entry.name and key in found.values
    ]  # fmt: skip


def without(entry: Entry, found: Answers) -> list[dict[str, Any]]:
    """Return the keys without a value, each with the reason.

    Args:
        entry: With the published numbers.
        found: With ours.
    """
    return [
        {"id": f"{entry.name}.{key}", "quoted": quoted, "sure": entry.sure,
         "reason": found.reasons.get(key, NO_RULE)}
        for key, quoted in entry.expected.items() if key not in found.values
    ]  # fmt: skip


def gain(dims: tuple[int, ...]) -> float:
    """Return how much more a twisted torus carries of a uniform all-to-all than the plain one.

    Args:
        dims: Its shape.
    """
    return tori.rate(dims, "tpu").rate / tori.rate(dims).rate


def _row(entry: Entry, name: str, quoted: Any, ours: Any, how: str) -> Row:
    note = how
    if isinstance(quoted, bool | str) or quoted is None:
        same = ours == quoted
        note = f"{how}: {ours!r}" if same else f"{how}: quoted {quoted!r}, computed {ours!r}"
        quoted, ours = 1, int(same)
    value = float("nan") if isinstance(ours, str) or ours is None else float(ours)
    return Row(
        f"{entry.name}.{name}", quoted, value, _unit(name), allowed(quoted), entry.source, note
    )


def _unit(key: str) -> str:
    return next((unit for word, unit in UNITS.items() if word in key), "")
