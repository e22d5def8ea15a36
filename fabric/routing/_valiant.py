"""Valiant routing: by way of a random intermediate switch or group."""

from fabric._errors import raise_faults
from fabric.network import Flows, Network, Routes, whole_or_fault
from fabric.routing._blend import blend, in_pairs
from fabric.routing._detours import detours, via_of
from fabric.routing._graph import Trip
from fabric.routing._servers import RAILS, has_servers, routed


def valiant(
    network: Network,
    flows: Flows,
    *,
    intermediates: int | str = "all",
    via: str | None = None,
    seed: int = 0,
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes that lead every flow to random intermediates first, and from there on.

    Valiant: every packet takes a shortest way to an intermediate drawn at random, and a shortest
    way from there to its destination, so that any traffic loads the network like a uniform one.

    Groups are intermediates where switches have a tag `group`, as in a dragonfly: a packet goes to
    the switch of that group that is nearest to it, and its own group and that of its destination
    are left out. Else the switches that endpoints hang on are, all of them. Both legs are split as
    in `spray`. What a flow cannot reach, or cannot go on from to its destination, is
    no intermediate of it: what failures cut off, or another plane or rail.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        intermediates: "all": the even split over all of them, which is what many packets do; or how
            many are drawn for each flow, with repetition.
        via: "group" or "switch". Default: groups where there are any.
        seed: Of the draw; whole number from 0.
        queue_pairs: As in `spray`: all of a flow go the same way.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        Two-level `Routes`, a row per queue pair. A link that both legs cross counts twice.

    Raises:
        ModelError: If an end of a flow is no endpoint or is out of range, a flow goes from a node
            to itself, an option is out of range, or there is no group besides those of both ends.
        UnreachableError: If a destination cannot be reached; the flows are named.
        InfeasibleError: If the routes would not fit in memory; give a number of `intermediates`
            then.

    Cost: As `spray` for the pairs of ends and intermediates, and a sort of the hops, a few for
        every flow and intermediate.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.full_mesh(4)
        >>> routes = valiant(net, fb.Flows([0], [1]))
        >>> routes.n_flows, routes.hop_use.tolist()
        (1, [0.25, 0.25, 0.25, 0.25, 0.25, 0.25])

    References:
        L. G. Valiant and G. J. Brebner, Universal Schemes for Parallel Communication, STOC 1981.
        J. Kim, W. J. Dally, S. Scott and D. Abts, Technology-Driven, Highly-Scalable Dragonfly
        Topology, ISCA 2008, section 4.
    """
    faults: list[str] = []
    drawn = drawn_of(intermediates, faults)
    number = whole_or_fault("seed", seed, faults, 0, 2**64 - 1)
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    raise_faults(faults)
    through = via_of(network, via)

    def walk(trip: Trip) -> Routes:
        what = f"`valiant` of {trip.flows.n_flows:,} flows with `intermediates={intermediates!r}`"
        found = detours(trip, through, drawn, number, what)
        return in_pairs(blend(what, trip.flows, found.ways(found.share)), pairs)

    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="valiant",
        intermediates=intermediates,
        via=through,
        seed=number,
        queue_pairs=pairs,
        **rule,
    )


def drawn_of(intermediates: int | str, faults: list[str]) -> int | None:
    """Return how many intermediates are drawn, None for all of them."""
    if intermediates == "all":
        return None
    if isinstance(intermediates, str):
        faults.append(
            f"`intermediates` needs 'all' or a whole number from 1, but got {intermediates!r}."
        )
        return 1
    return whole_or_fault("intermediates", intermediates, faults)
