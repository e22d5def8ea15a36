"""The demo fabric: 128 servers on rails, with the cabling faults that a survey finds.

`python -m fabric.cli._demo` writes the file that ships.
"""

from pathlib import Path

import numpy as np

from fabric.cli._subject import DEMO
from fabric.network import Network
from fabric.readers import write_ibnetdiscover
from fabric.topologies import rail_optimized

MISSING = (
    *(("unit1-leaf3", f"spine{spine}", 2) for spine in (12, 13, 14)),
    *((f"unit2-leaf{leaf}", "spine5", 2) for leaf in (5, 6, 7)),
    ("unit3-leaf1", "spine9", 1),
)
"""(leaf, spine, cables): a bundle never plugged at a leaf, one at a spine, and a single cable."""


def demo_network() -> Network:
    """Return the demo fabric: 1,024 NICs, 32 leaves, 16 spines, 13 of 1,024 cables missing."""
    whole = rail_optimized(servers=128, rails=8, radix=64, capacity="400Gb/s")
    labels = whole.labels
    gone = np.zeros(whole.n_links, bool)
    for leaf, spine, count in MISSING:
        between = (labels.src == labels.node(leaf)) & (labels.dst == labels.node(spine))
        cables = labels.cable_of[between][:count]
        gone |= np.isin(labels.cable_of, cables)
    return Network(
        np.asarray(whole.capacity)[~gone],
        np.asarray(whole.latency)[~gone],
        np.asarray(whole.alive)[~gone],
        np.asarray(whole.routing_cost)[~gone],
        labels=labels.keep_links(~gone),
    )


def write_demo(path: Path = DEMO) -> Path:
    """Write the demo fabric as `ibnetdiscover` would print it, and return the path."""
    return write_ibnetdiscover(demo_network(), path)


if __name__ == "__main__":
    write_demo()
