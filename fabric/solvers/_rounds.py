"""Rounds over gather tables, for concrete problems: stages, and a tail for what is deep.

On a CPU tables are made anew when half of the live flows have stopped: a round then reads half as
much, and making tables takes about as long as two rounds. Elsewhere a round is far quicker than
the host can make tables, and everything stays on the device: see `fabric.solvers._table_core`.
What is left after many rounds is deep, such as a parking lot, whose links fill one after another
however wide a round is: the rest goes to the compiled heap.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric.kernels._table_rounds import Placed, table_rounds
from fabric.network import Routes
from fabric.solvers._plan import CompiledPlan, compiled_plan, plain_array
from fabric.solvers._table_plan import ROOM, SMALL, Hops, Shape, TablePlan, hops_of, table_plan

SHAPES: list[Shape] = []
"""Shapes of the tables made so far; see `fabric.solvers._table_plan`."""


FlowFloats = Float[np.ndarray, " flows"]
LinkFloats = Float[np.ndarray, " links"]

SMALLEST = 2**16
"""Hops down to which tables are made anew; each new shape takes a compilation."""

PATIENCE, PATIENCE_ELSEWHERE = 64, 512
"""Rounds without new tables, and of all on an accelerator, after which the rest is deep."""


class Filled(NamedTuple):
    """Levels of all flows."""

    level: np.ndarray  # (flows,), infinite where nothing stops the flow
    stopper: np.ndarray  # (flows,), the link that stopped it; -1: its cap, or nothing
    live: np.ndarray  # (flows,), still growing when rounds ran out
    rounds: int
    method: str


_stage = jax.jit(table_rounds)


def first_tables(routes: Routes, kind: np.dtype) -> TablePlan | None:
    """Return the tables of all flows, from the cache of the routes; None where bundles are wide.

    Args:
        routes: Concrete.
        kind: Type of uses.
    """
    plan = compiled_plan(routes)
    if plan.wide:
        return None
    if ("tables", kind) not in routes.plans:
        hops = hops_of(plan)
        # Small problems share one program, whatever their uses and weights.
        uses = len(hops.use) > 0 or hops.n_hops <= SMALL
        routes.plans["tables", kind] = table_plan(hops, uses=uses, kind=kind, known=SHAPES)
    found = routes.plans["tables", kind]
    assert isinstance(found, TablePlan)
    return found


def fill(
    routes: Routes,
    tables: TablePlan,
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    kind: np.dtype,
    max_rounds: int | None,
    patience: int = PATIENCE,
) -> Filled:
    """Return the filled state of a concrete problem.

    Args:
        routes: Which flow crosses which link.
        tables: Theirs.
        capacity: (links,), byte/s, 0 where failed.
        weight: (flows,).
        cap: (flows,), byte/s.
        kind: Type in which rounds reckon.
        max_rounds: The limit; None for as many as it takes, and the heap where those are many.
        patience: Rounds in which half of the live flows have to stop.
    """
    from fabric.kernels import _layout

    plan = compiled_plan(routes)
    least, class_link = _layout.smallest(capacity, *plan.members)
    alone, use = private_links(plan)
    cap_level = cap / weight
    own = cap_level.copy()
    limited = alone >= 0
    own[limited] = np.minimum(own[limited], least[alone[limited]] / (use * weight)[limited])
    own = own.astype(kind).astype(np.float64)
    state = _State(
        own, weight, own.copy(), np.full(len(own), -1, np.int32), _remainders(least, tables)
    )
    rest, rounds = _stages(tables, state, kind, max_rounds, patience)
    method, live = "rounds", np.zeros(len(own), bool)
    if rest is not None and max_rounds is None:
        rounds += _heap(rest, state)
        method = f"rounds, then heap for {len(rest.flow):,} flows"
    elif rest is not None:
        live[rest.flow] = True
        state.level[rest.flow] = np.inf
    by_own_link = limited & (state.stopper < 0) & (own < cap_level) & ~live
    state.stopper[by_own_link] = alone[by_own_link]
    stopper = np.where(state.stopper < 0, -1, np.append(class_link, -1)[state.stopper])
    return Filled(state.level, stopper.astype(np.int32), live, rounds, method)


def private_links(plan: CompiledPlan) -> tuple[Int[np.ndarray, " flows"], FlowFloats]:
    """Return (class, use) of the link that each flow has to itself; -1 and 1 for none."""
    end = np.flatnonzero(plan.flow_end < plan.flow_ptr[1:])
    alone, use = np.full(len(plan.flow_end), -1, np.int32), np.ones(len(plan.flow_end))
    hop = plan.flow_end[end]
    alone[end] = plan.hop_at[hop]
    if plan.uses is not None:
        use[end] = plan.uses[hop]
    return alone, use


class _State(NamedTuple):
    """What the stages change, in float64, by flow and by shared class of links."""

    own: np.ndarray  # level at which its cap or its private link stops a flow
    weight: np.ndarray
    level: np.ndarray
    stopper: np.ndarray  # class
    left: np.ndarray  # (classes, 2), what is left of each as two floats


def _remainders(least: np.ndarray, tables: TablePlan) -> np.ndarray:
    left = np.zeros((tables.hops.n_links, 2))
    left[:, 0] = least[: tables.hops.n_links]
    return left


def _stages(
    here: TablePlan, state: _State, kind: np.dtype, max_rounds: int | None, patience: int
) -> tuple[Hops | None, int]:
    """Fill in stages, and return the hops of flows that are live still, and the rounds."""
    from fabric.kernels import _tables

    rounds, weighs = 0, here.shape.uses or bool((state.weight != 1).any())
    while len(here.hops.flow):
        goal = len(here.hops.flow) // 2 if here.hops.n_hops > SMALLEST else 0
        most = patience if max_rounds is None else max_rounds - rounds
        problem = _problem(here, state, kind, weighs=weighs)
        end = _stage(here.tables, problem, np.int32(goal), np.int32(most))
        rounds += int(end.rounds)
        hops = here.hops
        rest = _tables.settle(
            hops.flow, hops.ptr, hops.end, hops.at, hops.use, here.place,
            plain_array(end.level, np.float64), plain_array(end.stopper, np.int32), here.link_at,
            state.weight, state.level, state.stopper, state.left,
        )  # fmt: skip
        hops = Hops(*rest, n_links=hops.n_links)
        if len(hops.flow) > goal:
            return hops, rounds
        if not len(hops.flow):
            break
        here = table_plan(hops, uses=here.shape.uses, kind=kind, known=SHAPES, room=ROOM)
    return None, rounds


def _problem(here: TablePlan, state: _State, kind: np.dtype, *, weighs: bool) -> Placed:
    """Return the values of a stage by place."""
    place = lambda values, at, none: jnp.asarray(np.where(at >= 0, values[at], none), kind)
    left, flow_at, link_at = state.left, here.flow_at, here.link_at
    high = (left[:, 0] + left[:, 1]).astype(kind)
    low = (left[:, 0] - high) + left[:, 1]
    return Placed(
        left=place(high, link_at, 0) if len(high) else jnp.zeros(len(link_at), kind),
        low=place(low, link_at, 0) if len(high) else jnp.zeros(len(link_at), kind),
        weight=place(state.weight, flow_at, 0) if weighs else None,
        cap_level=place(state.own, flow_at, np.inf),
        level=jnp.asarray(np.where(flow_at >= 0, np.inf, 0), kind),
    )


def _heap(rest: Hops, state: _State) -> int:
    """Fill what is left one link at a time, and return the steps."""
    from fabric.kernels import _layout, _water_fill

    ptr = np.append(rest.ptr, rest.end[-1:])
    use = rest.use if len(rest.use) else np.ones(len(rest.at))
    back_ptr, back_flow, _ = _layout.by_column(ptr, rest.at, None, rest.n_links)
    left = np.maximum(state.left[:, 0] + state.left[:, 1], 0)
    level, stopper, steps = _water_fill.fill_links(
        left, state.own[rest.flow], ptr, ptr[1:], rest.at, use, state.weight[rest.flow],
        back_ptr, back_flow, rest.n_links, False,
    )  # fmt: skip
    state.level[rest.flow], state.stopper[rest.flow] = level, stopper
    return int(steps)
