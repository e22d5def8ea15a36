"""The answer of `fabric run` for people: one screen."""

import textwrap
from typing import Any

from fabric._units import format_size
from fabric.cli._output import table
from fabric.cli._units import counted, cut_link, listed, percent
from fabric.solvers._sensitivity_table import signed, within

WIDTH = 100
_PARTS = {
    "compute": "kernels of the slowest stage, recomputing included",
    "host": "launching kernels",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "pp": "messages between stages",
    "dp": "reducing gradients, gathering weights",
    "embedding": "gradients of the tied embedding",
    "bubble": "filling and draining the pipeline",
    "optimizer": "the update",
    "jitter": "waiting for the slowest server",
    "stack": "a stack slower than the tuned ones",
}
_MATTER = ("servers", "efficiency", "jitter_per_doubling", "fabric", "gemm_half", "latency")
_MOST_LINKS, _MOST_ASSUMPTIONS, _MOST_CASES = 5, 6, 8


def text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer."""
    lines = [*header(answer), "", _totals(answer), *_breakdown(answer), *_memory(answer["memory"])]
    lines += [*bottlenecks(answer["bottlenecks"]), *_sensitivities(answer["sensitivities"])]
    most = _MOST_ASSUMPTIONS - 2 * ("cases" in answer) - len(answer["notes"])
    lines += _assumptions(answer["assumptions"], most)
    if missing := answer.get("missing_cables"):
        lines += _missing(missing)
    if cases := answer.get("cases"):
        lines += ["", *_cases(answer, cases)]
    return lines


def header(answer: dict[str, Any]) -> list[str]:
    """Return what was asked: model, fabric, layout, GPUs, routing and links."""
    gpus, routing = answer["gpus"], answer["routing"]
    lines = _wrapped(f"{answer['model']['name']} on {answer['fabric']}", "")
    lines += _wrapped(answer["layout"], "  ")
    lines += _wrapped(
        f"{gpus['used']:,} of {gpus['used'] + gpus['idle']:,} {gpus['type']} used, "
        f"{gpus['idle']:,} idle; placement {answer['placement']}; routing {routing['name']} "
        f"({routing['source']}); {answer['links_used']:,} of "
        f"{counted(answer['links_present'], 'link')} used",
        "  ",
    )
    out = answer.get("failed", {})
    if dead := [*out.get("nodes", ()), *out.get("links", ())]:
        lines += _wrapped(f"failed: {listed(dead, 5)}", "  ")
    if slow := out.get("degraded"):
        named = listed([*slow.get("nodes", ()), *slow.get("links", ())], 5)
        lines += _wrapped(f"at {slow['factor']:.4g} of their capacity: {named}", "  ")
    if hosts := answer.get("read", {}).get("hosts"):
        left = [f"{len(row['hosts'])} ({row['why']})" for row in hosts["left_out"] if row["hosts"]]
        without = f"; left out {', '.join(left)}" if left else ""
        nics = hosts["unnamed_nics"]
        unnamed = f"; {counted(nics, 'NIC')} without a host" if nics else ""
        whose = " of the file" * ("file" in answer["scenario"]["fabric"])
        lines += _wrapped(f"{counted(hosts['used'], 'host')}{whose} used{without}{unnamed}", "  ")
    if out := answer["left_out"]:
        lines += _wrapped(left_out(out), "  ")
    for said in answer["notes"]:
        lines += _wrapped(f"note: {said}", "  ")
    return lines


def left_out(out: list[dict[str, Any]]) -> str:
    """Return which servers a job is kept away from, and why."""
    named = listed([f"{row['server']} ({row['why']})" for row in out], 5)
    return f"{counted(len(out), 'server')} left out: {named}"


def seconds(value: float) -> str:
    """Return seconds for people.

    Examples:
        >>> seconds(10.00059), seconds(-0.0258597), seconds(4.04e-4), seconds(0.0)
        ('10.001 s', '-25.86 ms', '404.0 us', '0 s')
    """
    size = abs(value)
    if size >= 1:
        return f"{value:.3f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.1f} us" if size >= 1e-8 else "0 s"


def more(value: float) -> str:
    """Return a difference in seconds with its sign.

    Examples:
        >>> more(0.00966), more(-1e-3), more(0.0)
        ('+9.66 ms', '-1.00 ms', '0 s')
    """
    return f"+{shown}" if (shown := seconds(value))[0] not in "-0" or value >= 1e-8 else shown


def rise(share: float | None) -> str:
    """Return a relative change as a percentage with its sign.

    Examples:
        >>> rise(0.0333), rise(-0.5), rise(0.0), rise(None)
        ('+3.33 %', '-50.00 %', '0 %', 'new')
    """
    if share is None:
        return "new"
    return "0 %" if abs(share) < 5e-6 else f"{share * 100:+.2f} %"


def _totals(answer: dict[str, Any]) -> str:
    line = (
        f"step {seconds(answer['step_time_s'])}, MFU {percent(answer['mfu'])}, "
        f"{answer['tokens_per_s']:,.0f} tokens/s"
    )
    if training := answer.get("training"):
        line += (
            f"; {_count(training['tokens'])} tokens: {training['days']:,.1f} days, "
            f"{training['gpu_hours']:,.0f} GPU-hours"
        )
    return line


def _count(tokens: float) -> str:
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if tokens >= scale:
            return f"{tokens / scale:g}{letter}"
    return f"{tokens:g}"


def _breakdown(answer: dict[str, Any]) -> list[str]:
    rows = [["  part", "exposed", "of step", "hidden", ""]]
    for row in answer["breakdown"]:
        if row["exposed_s"] or row["hidden_s"]:
            hidden = seconds(row["hidden_s"]) if row["hidden_s"] else ""
            share = percent(row["exposed_s"] / answer["step_time_s"])
            part = row["part"]
            rows.append(
                [f"  {part}", seconds(row["exposed_s"]), share, hidden, _PARTS.get(part, "")]
            )
    return table(rows, right=(1, 2, 3))


def _memory(memory: dict[str, Any]) -> list[str]:
    margin = memory["margin"]
    left = f"{percent(margin)} free" if margin >= 0 else f"{percent(-margin)} missing"
    sizes = sorted(memory["components"].items(), key=lambda item: -item[1])
    held = [f"{name} {format_size(size)}" for name, size in sizes if size]
    return [
        f"memory {memory['verdict']}: {format_size(memory['total_bytes'])} of "
        f"{format_size(memory['capacity_bytes'])} on stage {memory['heaviest_stage']}, {left}",
        *_wrapped(listed(held, 4), "  "),
    ]


def bottlenecks(links: list[dict[str, Any]]) -> list[str]:
    """Return a line per kind of exchange: a link that holds it, and what the exchange costs."""
    if not links:
        return ["no link holds the step: nothing is exchanged"]
    rows = [["links that hold an exchange", "tier", "loaded by", "links", "exchange costs"]]
    seen = set()
    for row in links:
        if row["exchange"] in seen:
            continue
        seen.add(row["exchange"])
        link = cut_link(row["link"], 44)
        rows.append(
            [f"  {link}", row["tier"], row["exchange"], f"{row['alike'] + 1:,}",
             seconds(row["cost_s"])]
        )  # fmt: skip
    return table(rows[: _MOST_LINKS + 1], right=(3, 4))


def _sensitivities(found: list[dict[str, Any]]) -> list[str]:
    moving = [
        row for row in found if abs(row["gain_per_plus_1pct"]) + abs(row["loss_per_minus_1pct"]) > 0
    ]
    if not found:
        return []
    by = found[0]["by"]
    if not moving:
        return [f"1 % more or less capacity of any {by} leaves the step time as it is"]
    rows = [[f"step time, by {by}", "links", "+1 %", "-1 %", "exact within"]]
    for row in moving[:6]:
        reach = row["exact_within_pct"]
        rows.append(
            [
                f"  {row['key']}",
                f"{row['links']:,}",
                signed(row["gain_per_plus_1pct"]),
                signed(-row["loss_per_minus_1pct"]),
                within(float("inf") if reach is None else reach),
            ]
        )
    lines = table(rows, right=(1, 2, 3, 4))
    still = [row["key"] for row in found if row not in moving]
    return lines + ([f"  no effect: {listed(still, 6)}"] if still else [])


def _assumptions(found: list[dict[str, Any]], most: int) -> list[str]:
    """Return the numbers that decide and that no vendor's document states."""
    open_ = [row for row in found if row["kind"] in ("fitted", "assumed", "user")]
    rank = {word: i for i, word in enumerate(_MATTER)}

    def weight(row: dict[str, Any]) -> tuple[bool, int]:
        return row["kind"] != "user", rank.get(_plain(row["name"]).split(".")[0], len(rank))

    chosen = sorted(open_, key=weight)[:most]
    lines = [
        f"assumptions ({len(chosen)} of the {len(open_)} that are fitted, assumed or your own; all "
        f"{len(found)} with `--format json`)"
    ]
    for row in chosen:
        value = row["value"]
        shown = f"{value:.4g}" if isinstance(value, float) else value
        line = f"  {_plain(row['name'])} {shown}: {row['kind']}, {row['source']}"
        lines.append(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]}..")
    return lines if chosen else []


def _plain(name: str) -> str:
    return name.removeprefix("profile.")


def _missing(missing: dict[str, Any]) -> list[str]:
    share = missing["cost_share"]
    cost = f"{more(missing['cost_s'])} ({rise(share)})"
    cables = counted(missing["missing"], "missing leaf-spine cable")
    step = seconds(missing["with_all_step_time_s"])
    return _wrapped(
        f"{cables} of {missing['design']:,} in the uniform design cost a step {cost}: with all of "
        f"them it takes {step}. {_exchanges(missing['change'])}",
        "",
    )


def _cases(answer: dict[str, Any], cases: list[dict[str, Any]]) -> list[str]:
    head = ["case", "step", "change", "against", "dp exposed + hidden", "change", "dp exchange"]
    rows, total = [head], {}
    for row in [answer | {"name": "base"}, *cases[:_MOST_CASES]]:
        name = row["name"]
        dp = next(part for part in row["breakdown"] if part["part"] == "dp")
        total[name] = dp["exposed_s"] + dp["hidden_s"]
        exchange = next((e["seconds"] for e in row["exchanges"] if e["name"] == "dp"), 0.0)
        moved = ["", "", ""]
        if against := row.get("against"):
            then = total[against]
            share = rise(total[name] / then - 1 if then else None)
            moved = [_ms(row["change"]["step_time_s"]), against, share]
        both = f"{seconds(dp['exposed_s'])} + {seconds(dp['hidden_s'])}"
        step = f"{row['step_time_s']:.4f} s"
        rows.append([f"  {name}", step, *moved[:2], both, moved[2], seconds(exchange)])
    lines = table(rows, right=(1, 2, 4, 5, 6))
    for case in cases[:_MOST_CASES]:
        lines += _wrapped(_told(case), "")
    return lines


def _ms(value: float) -> str:
    """Return a difference in milliseconds."""
    return f"{round(value * 1e3, 2) + 0.0:+.2f} ms"


def _told(case: dict[str, Any]) -> str:
    """Return in a sentence what moved between a case and the one it is compared with, and why."""
    change = case["change"]
    moved = f"{_ms(change['step_time_s'])} ({rise(change['step_time'])})"
    said = f"{case['name']}: the step moves by {moved} against {case['against']}."
    if abs(change["step_time"]) < 5e-7:
        said = f"{case['name']}: the step is as long as that of {case['against']}."
    said += f" {_exchanges(change)}"
    if case["left_out"]:
        said += f" {left_out(case['left_out'])}."
    if (crowd := case["crowd"]) is not None:
        links = "uplinks" if crowd["kind"] == "leaf" else f"{crowd['tier']} links"
        flows = counted(crowd["flows"], "flow")
        verb = crowd["way"] if crowd["flows"] > 1 else f"{crowd['way']}s"
        said += (
            f" {flows} of {crowd['exchange']} {verb} {crowd['node']} over {crowd['links']} of its "
            f"{crowd['whole']} {links}."
        )
    return said


def _exchanges(change: dict[str, Any]) -> str:
    """Return which exchanges take longer or shorter, and which do not."""
    moved = [e for e in change["exchanges"] if abs(e["share"]) >= 5e-6]
    same = [e["name"] for e in change["exchanges"] if abs(e["share"]) < 5e-6]
    told = [
        f"{e['name']} {rise(e['share'])} (to {seconds(e['after_s'])})"
        for e in sorted(moved, key=lambda e: -abs(e["share"]))
    ]
    if not told:
        return "No exchange takes longer or shorter."
    rest = f"; {listed(same, 6)} as before" if same else ""
    return f"Exchanges: {listed(told, 4)}{rest}."


def _wrapped(said: str, indent: str) -> list[str]:
    return textwrap.wrap(
        said, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ",
        break_on_hyphens=False,
    )  # fmt: skip
