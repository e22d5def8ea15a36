"""Alpha-fair rates by a fixed point in log prices: arrays in, arrays out, any device.

With x_l the logarithm of the level s_l that link l alone would give, a flow of weight w has

    r_f = min(cap_f, w_f t_f),      t_f = (sum over l of A_lf s_l^-alpha)^(-1/alpha),

the maximiser of the sum of w^alpha r^(1 - alpha) / (1 - alpha) if the loads A r respect the
capacities and s_l^-alpha, the price of link l, is 0 (here: s_l at its upper end) where they leave
room. Each step moves x_l towards balance, log c_l - log load_l. The Jacobian G of the log loads in
x has rows of sum 1, entries of 0 or more and eigenvalues from 0 to 1, so that a step of 0.8 is
stable at any alpha; two things make it quick: links whose price is a small part of what their flows
pay take longer steps, as long as no mode overshoots, and every link keeps a momentum of its own,
which it drops when it turns.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ops import segment_min, segment_sum

from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Ends, Usage

STEP = 0.8
"""Part of the imbalance that one step takes away where a link is the only price of its flows."""

LONGEST = 2.0
"""The longest stretched step, in logarithms of a price; the plain step is never cut."""

BLOCK = 8
"""Steps of the linear solve between two looks at its residual."""


class Way(NamedTuple):
    """What every flow pays, and to whom, at given prices."""

    log_level: AnyArray  # (flows,), log t
    hop_price: AnyArray  # (hops,), price of the bundle over that of the whole flow
    part_price: AnyArray  # (parts,), price of the link over that of the bundle


class Problem(NamedTuple):
    """An alpha-fair problem, in which flows that cannot send have been marked."""

    capacity: AnyArray  # (links,)
    weight: AnyArray  # (flows,)
    cap: AnyArray  # (flows,)
    alpha: AnyArray
    usage: Usage
    live: AnyArray  # (flows,), may send
    used: AnyArray  # (links,), carries a live flow
    highest: AnyArray  # log of the level that stands for "no price"


class Found(NamedTuple):
    """Log prices and how well they balance."""

    x: AnyArray  # (links,)
    residual: AnyArray
    steps: AnyArray


def problem(
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    alpha: AnyArray,
    usage: Usage,
    n_bundles: int,
) -> Problem:
    """Return the problem; a flow over a link of capacity 0, or of cap 0, sends nothing.

    Args:
        capacity: (links,), the largest about 1.
        weight: (flows,).
        cap: (flows,), in the unit of the capacities.
        alpha: More than 0.
        usage: Which flow crosses which link.
        n_bundles: Static.
    """
    ends = Ends(usage, weight.shape[0], n_bundles, capacity.shape[0])
    live = ends.touched() & (ends.count_to_flows(capacity <= 0) == 0) & (cap > 0)
    used = ends.count_to_links(live) > 0
    one = jnp.ones((), capacity.dtype)
    least = lambda values, mask: jnp.min(jnp.where(mask, values, one), initial=one)
    # No flow can reach a higher level than the largest link would give to the lightest flow.
    top = jnp.log(jnp.max(jnp.where(used, capacity, 0), initial=jnp.finfo(one.dtype).tiny))
    top -= jnp.log(least(weight, live)) + jnp.log(least(usage.hop_use, ends.crosses))
    top -= jnp.log(least(ends.carried_use, ends.carried))
    # Beyond this a price is lost in the rounding of the sums that it is part of.
    return Problem(
        capacity, weight, cap, alpha, usage, live, used,
        jax.lax.stop_gradient(top - jnp.log(jnp.finfo(one.dtype).eps) / alpha),
    )  # fmt: skip


def start(p: Problem, n_bundles: int) -> LinkFloats:
    """Return log prices to start from: an equal share of every link."""
    load = _ends(p, n_bundles).sum_to_links(jnp.where(p.live, p.weight, 0))
    share = jnp.where(p.used, p.capacity, 1) / jnp.where(p.used, load, 1)
    return jnp.where(p.used, jnp.log(share), p.highest)


def rates(x: LinkFloats, p: Problem, n_bundles: int) -> tuple[FlowFloats, AnyArray]:
    """Return (rates, which flows their cap stops) at log prices; 0 for flows that send nothing."""
    way = _way(x, p, _ends(p, n_bundles))
    wish = p.weight * jnp.exp(way.log_level)
    capped = p.live & (wish >= p.cap)
    return jnp.where(p.live, jnp.where(capped, p.cap, wish), 0), capped


def log_loads(x: LinkFloats, p: Problem, n_bundles: int) -> LinkFloats:
    """Return (links,), the logarithm of every load; 0 on links without a live flow."""
    load = _ends(p, n_bundles).sum_to_links(rates(x, p, n_bundles)[0])
    return jnp.log(jnp.where(p.used, load, 1))


def balance(
    p: Problem, x: LinkFloats, tolerance: AnyArray, n_bundles: int, max_steps: int
) -> Found:
    """Return the log prices at which loads and capacities balance, or after `max_steps`.

    Args:
        p: The problem.
        x: (links,), log prices to start from.
        tolerance: Of the residual: the larger of the overload of a link and, where there is room,
            of that room times the price, relative to what its flows pay.
        n_bundles: Static.
        max_steps: Static.

    Not to be differentiated: see `fabric.solvers._alpha_fair` for the rule that is.
    """

    def move(now: _Moving) -> _Moving:
        room, part, size = _step(now.ahead, p, n_bundles)
        longest = jnp.maximum(STEP * jnp.abs(room), LONGEST / p.alpha)
        x = jnp.minimum(now.ahead + jnp.clip(STEP * room / size, -longest, longest), p.highest)
        residual = jnp.max(jnp.where(p.used, jnp.maximum(-room, part * room), 0), initial=0)
        ahead, run = _momentum(x, now)
        # What is judged is where the step began, so that is what is kept.
        best = jnp.where(residual <= tolerance, now.ahead, x)
        return _Moving(best, jnp.minimum(ahead, p.highest), run, residual, now.steps + 1)

    kind = p.capacity.dtype
    begin = jnp.where(p.used, jnp.minimum(x, p.highest), p.highest)
    still = jnp.zeros(begin.shape, kind)
    first = _Moving(begin, begin, still, jnp.asarray(jnp.inf, kind), jnp.zeros((), jnp.int32))
    going = lambda now: (now.residual > tolerance) & (now.steps < max_steps)
    last = jax.lax.while_loop(going, move, first)
    return Found(last.x, last.residual, last.steps)


class Slope(NamedTuple):
    """The Jacobian of log loads in log prices on the links whose price counts, ready to solve."""

    way: Way
    rate: AnyArray  # (flows,), of those that no cap stops
    load: AnyArray  # (links,)
    active: AnyArray  # (links,)
    size: AnyArray  # (links,), bound on the rows that keeps all modes from overshooting


def slope(x: LinkFloats, p: Problem, n_bundles: int) -> Slope:
    """Return the Jacobian at a solution: a link counts if its price weighs more than its room."""
    ends = _ends(p, n_bundles)
    room, part, size = _step(x, p, n_bundles)
    rate, capped = rates(x, p, n_bundles)
    load = jnp.where(p.used, ends.sum_to_links(rate), 1)
    free = jnp.where(capped, 0, rate)
    active = p.used & (part >= room) & (ends.sum_to_links(free) > 0)
    return Slope(_way(x, p, ends), free, load, active, size)


def solve(
    s: Slope, right: LinkFloats, usage: Usage, n_bundles: int, max_steps: int, *, transpose: bool
) -> LinkFloats:
    """Return y: G y = right on active links (or the transpose of G), y = right elsewhere.

    Where prices are not unique G is singular. Then y solves what can be solved, and leaves the
    rest of `right`, which no price could bring about, aside.
    """
    ends = Ends(usage, s.rate.shape[0], n_bundles, s.load.shape[0])
    inside = lambda y: jnp.where(s.active, y, 0)
    if transpose:
        apply = lambda y: inside(
            _to_prices(ends.sum_to_flows(inside(y) / s.load) * s.rate, s, ends)
        )
    else:
        apply = lambda y: inside(ends.sum_to_links(s.rate * _paid(inside(y), s.way, ends)) / s.load)
    found = _richardson(apply, inside(right), STEP / s.size, max_steps)
    return jnp.where(s.active, found, right)


class _Moving(NamedTuple):
    x: AnyArray
    ahead: AnyArray  # x, carried on by its momentum
    run: AnyArray  # (links,), steps since the link last turned
    residual: AnyArray
    steps: AnyArray


def _momentum(x: LinkFloats, now: _Moving) -> tuple[LinkFloats, LinkFloats]:
    """Return x carried on, and for how many steps every link has kept its direction."""
    turned = (x - now.ahead) * (x - now.x) < 0
    carry = jnp.where(turned, 0, now.run / (now.run + 3))
    return x + carry * (x - now.x), jnp.where(turned, 0, now.run + 1)


def _ends(p: Problem, n_bundles: int) -> Ends:
    return Ends(p.usage, p.weight.shape[0], n_bundles, p.capacity.shape[0])


def _way(x: LinkFloats, p: Problem, ends: Ends) -> Way:
    """Return the level of every flow; sums of powers are taken relative to their largest term."""
    kind, u = x.dtype, ends.u
    infinite, held = jnp.asarray(jnp.inf, kind), jax.lax.stop_gradient
    sound = lambda low: held(jnp.where(jnp.isfinite(low), low, 0))
    at = ends.of_links(x)
    low = sound(ends.part_min(jnp.where(ends.carried, at, infinite)))
    power = jnp.where(ends.carried, jnp.exp(-p.alpha * (at - ends.of_parts(low))), 0)
    total = _to_bundles(ends.carried_use * power, ends)
    total = jnp.where(total > 0, total, 1)
    bundle = low - jnp.log(total) / p.alpha

    at = bundle[u.hop_bundle]
    first = segment_min(
        jnp.where(ends.crosses, at, infinite), u.hop_flow, ends.n_flows, indices_are_sorted=True
    )
    first = sound(first)
    hop = jnp.where(ends.crosses, jnp.exp(-p.alpha * (at - first[u.hop_flow])), 0)
    paid = segment_sum(u.hop_use * hop, u.hop_flow, ends.n_flows, indices_are_sorted=True)
    paid = jnp.where(paid > 0, paid, 1)
    level = first - jnp.log(paid) / p.alpha
    return Way(level, hop / paid[u.hop_flow], power / ends.of_parts(total))


def _step(x: LinkFloats, p: Problem, n_bundles: int) -> tuple[LinkFloats, LinkFloats, LinkFloats]:
    """Return per link (room as a logarithm, part that its price is of its flows', row bound).

    For any u > 0 the eigenvalues of G, rows divided by (G u) / u, stay within 0 and 1; u is large
    where prices are small, so that such links, which have little effect, may move far.
    """
    ends, u = _ends(p, n_bundles), p.usage
    way = _way(x, p, ends)
    wish = p.weight * jnp.exp(way.log_level)
    rate = jnp.where(p.live, jnp.minimum(wish, p.cap), 0)
    load = jnp.where(p.used, ends.sum_to_links(rate), 1)
    # A flow at its cap pays the rest of what it could bear to the cap.
    paying = rate * jnp.exp(p.alpha * jnp.minimum(jnp.log(p.cap) - jnp.log(wish), 0))
    paying = jnp.where(p.live, paying, 0)
    bundle = segment_sum(u.hop_use * paying[u.hop_flow] * way.hop_price, u.hop_bundle, n_bundles)
    part = ends.part_sum(ends.carried_use * way.part_price * ends.of_parts(bundle)) / load
    tiny = jnp.finfo(x.dtype).tiny
    reach = jnp.where(p.used, jax.lax.rsqrt(jnp.maximum(part, tiny)), 1)
    size = ends.sum_to_links(rate * _paid(reach, way, ends)) / load / reach
    room = jnp.where(p.used, jnp.log(jnp.where(p.used, p.capacity, 1) / load), 0)
    return room, part, jnp.where(p.used, jnp.maximum(size, tiny), 1)


def _paid(per_link: LinkFloats, way: Way, ends: Ends) -> FlowFloats:
    """Return (flows,), the mean over links by what the flow pays to each."""
    bundle = _to_bundles(ends.carried_use * way.part_price * ends.of_links(per_link), ends)
    hop = ends.u.hop_use * way.hop_price * bundle[ends.u.hop_bundle]
    return segment_sum(hop, ends.u.hop_flow, ends.n_flows, indices_are_sorted=True)


def _to_prices(per_flow: FlowFloats, s: Slope, ends: Ends) -> LinkFloats:
    """Return (links,), the transpose of `_paid`."""
    hop = ends.u.hop_use * s.way.hop_price * per_flow[ends.u.hop_flow]
    bundle = segment_sum(hop, ends.u.hop_bundle, ends.n_bundles)
    return ends.part_sum(ends.carried_use * s.way.part_price * ends.of_parts(bundle))


def _to_bundles(per_part: AnyArray, ends: Ends) -> AnyArray:
    if not ends.two_level:
        return per_part
    return segment_sum(per_part, ends.u.part_bundle, ends.n_bundles)


def _richardson(
    apply: Callable[[LinkFloats], LinkFloats],
    right: LinkFloats,
    step: LinkFloats,
    max_steps: int,
) -> LinkFloats:
    """Return y with apply(y) = right by steps as in `balance`; what is out of reach is left."""
    kind = right.dtype
    small = 4 * jnp.asarray(jnp.finfo(kind).eps, kind)

    def move(_: AnyArray, now: _Moving) -> _Moving:
        x = now.ahead + step * (right - apply(now.ahead))
        ahead, run = _momentum(x, now)
        return _Moving(x, ahead, run, now.residual, now.steps)

    def block(now: _Moving) -> _Moving:
        now = jax.lax.fori_loop(0, BLOCK, move, now)
        # The part of `right` out of reach stays in the residual for ever; `apply` takes it away.
        left = jnp.max(jnp.abs(apply(right - apply(now.x))), initial=0)
        size = jnp.max(jnp.abs(right), initial=0) + jnp.max(jnp.abs(apply(now.x)), initial=0)
        left = jnp.where(left <= small * size, 0, left)
        return now._replace(residual=left, steps=now.steps + BLOCK)

    still = jnp.zeros_like(right)
    begin = _Moving(still, still, still, jnp.asarray(jnp.inf, kind), jnp.zeros((), jnp.int32))
    going = lambda now: (now.residual > 0) & (now.steps < max_steps)
    return jax.lax.while_loop(going, block, begin).x
