"""Problems with a symmetry that is known: lifts of drawn problems.

Every flow, bundle and link of a drawn problem becomes `n` copies, and every entry between two of
them becomes a matching between their copies, drawn at random. The copies of an item then are
equals, whatever the matchings are, and have the rates of the drawn problem; nothing else about the
lift need be symmetric. All links of a bundle share one matching, so that links that always fill
together do so in every copy or in none.
"""

from dataclasses import replace

import numpy as np

import fabric as fb
from tests.oracle.problems import N_BUNDLES, N_FLOWS, N_LINKS, Drawn


def lift(drawn: Drawn, n: int, rng: np.random.Generator) -> tuple[fb.Network, fb.Routes]:
    """Return `n` copies of a problem, twisted; copy i of flow f has number `f * n + i`."""
    copies = lambda items: np.repeat(items * n, n) + np.tile(np.arange(n), len(items))
    twisted = lambda items, twists: np.repeat(items * n, n) + twists.ravel()
    shuffled = lambda count: np.array([rng.permutation(n) for _ in range(count)])
    hop_twists = shuffled(len(drawn.hop_flow))
    part_twists = shuffled(N_BUNDLES)[drawn.part_bundle]
    hop_flow, hop_bundle = copies(drawn.hop_flow), twisted(drawn.hop_bundle, hop_twists)
    part_bundle, part_link = copies(drawn.part_bundle), twisted(drawn.part_link, part_twists)
    lifted = replace(
        drawn, capacity=np.repeat(drawn.capacity, n),
        hop_flow=hop_flow, hop_bundle=hop_bundle, hop_use=np.repeat(drawn.hop_use, n),
        part_bundle=part_bundle, part_link=part_link, part_use=np.repeat(drawn.part_use, n),
        weights=np.repeat(drawn.weights, n), caps=np.repeat(drawn.caps, n),
    )  # fmt: skip
    routes = fb.Routes.from_bundles(
        lifted.hop_flow, lifted.hop_bundle, lifted.hop_use,
        lifted.part_bundle, lifted.part_link, lifted.part_use,
        n_flows=N_FLOWS * n, n_bundles=N_BUNDLES * n, n_links=N_LINKS * n,
        weights=lifted.weights, caps=lifted.caps,
    )  # fmt: skip
    return fb.Network(lifted.capacity), routes
