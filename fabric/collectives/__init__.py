"""Collective operations: which flows they make, and how long they take on a fabric."""

from fabric.collectives._collective import collective as collective
from fabric.collectives._exchange import (
    Exchange as Exchange,
    merged as merged,
    slope as slope,
)
from fabric.collectives._operations import (
    OPERATIONS as OPERATIONS,
    bus_factor as bus_factor,
    moved as moved,
)
from fabric.collectives._pairs import (
    chain as chain,
    direct as direct,
    mesh as mesh,
    send as send,
)
from fabric.collectives._report import CollectiveReport as CollectiveReport
from fabric.collectives._rings import ring as ring
from fabric.collectives._site import (
    effective as effective,
    path_latency as path_latency,
)
from fabric.collectives._trees import hierarchical as hierarchical, tree as tree
from fabric.collectives._verbs import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    broadcast as broadcast,
    reduce_scatter as reduce_scatter,
    send_recv as send_recv,
)
from fabric.collectives._ways import ALGORITHMS as ALGORITHMS
