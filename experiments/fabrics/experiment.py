"""Do tiers, rails, planes, tori and dragonflies reach, save and carry what is said of them?

A03 to A05, A50, A51 and A54 to A57. Counts are those of networks as built; rates are max-min fair,
on shortest ways unless a row says otherwise; times are those of the step model.
"""

from collections.abc import Callable
from typing import Any

from experiments.fabrics import equal_cost, optical, rails, scale, training
from experiments.rows import Result, Row

PARTS: tuple[Callable[[bool], tuple[list[Row], dict[str, Any]]], ...] = (
    rails.rows, training.rows, optical.rows, equal_cost.rows,
)  # fmt: skip


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` small clusters and few draws."""
    rows, summary = list(scale.rows(smoke)), dict[str, Any]()
    for part in PARTS:
        more, found = part(smoke)
        rows += more
        summary |= found
    notes = [
        "A04: eight GPUs behind one adapter take an eighth of the ports and have an eighth of the "
        "rate; with an adapter each they take what single GPUs take.",
        "A50: within a unit rails keep same-rank rings off the spines in any order of servers. "
        "Drawn from everywhere, servers in rails meet on uplinks nearly as often as others.",
        "A55: how far a fabric may be thinned is a matter of placement, not of size: a job in "
        "order stays within 1 % up to 4:1, one placed anywhere pays for the first halving.",
        "A55: rails alone save switches only where a tier falls away, since a rail of as many "
        "adapters as two tiers hold is a fabric of two tiers itself. Exchanges between GPUs of "
        "different numbers, such as those of experts, have to go over NVLink first.",
        "A56: circuits tuned to rings carry what a Clos carries; the price is every other "
        "pattern. A reconfiguration of 10 s pays for a job, one of 10 ms for a phase.",
        "A57: a dragonfly that also goes by a third group, with ideal shares, is as quick as a "
        "Clos of 2:1 and a tenth cheaper at these prices; on shortest ways alone, or on circuits "
        "in a ring, jobs placed anywhere pay for it. Servers meet all eight routers of a group.",
    ]
    return Result(sorted(rows, key=lambda row: row.id.partition(" ")[0]), summary, notes)
