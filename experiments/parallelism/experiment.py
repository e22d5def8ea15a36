"""Do data, tensor and pipeline parallelism send, hold and wait as the papers and the rules say?

A20 to A34, without experts (A26). Bytes are sums over the flows that a step puts on the fabric,
and how often they flow is read from the seconds of a step; times are those of the step model.
"""

from experiments.parallelism import footprint, trade_offs, volumes
from experiments.rows import Result

BANDWIDTHS = (1e9, 2e9, 5e9, 10e9, 20e9, 40e9)
"""byte/s of all-reduce at which the curve of A30 is shown."""


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` the searches of A31 to A33 are small."""
    rows = [*volumes.rows(), *footprint.rows()]
    summary: dict[str, object] = {
        "A28 message of 50 MB there sooner by": volumes.faster_by(),
        "A29 GPUs that hold 260B parameters": footprint.least_gpus(),
    }
    for more, found in (
        trade_offs.scaling(BANDWIDTHS[2:5] if smoke else BANDWIDTHS),
        trade_offs.cliff(smoke),
        trade_offs.optimum(smoke),
        trade_offs.overlap(smoke),
    ):
        rows += more
        summary |= found
    summary["A34 side by side"] = volumes.table(volumes.shown())
    notes = [
        "A26 (expert parallelism) is not modelled: models are dense.",
        "A31: a ring over whole servers leaves each through all its adapters. The cliff is as high "
        "as NVLink over all of them together: none at 8 x 400 Gb/s, where throughput falls as it "
        "does in a domain of 256, and 8 at 8 x 50 Gb/s or on one adapter.",
        "A33: only the last backward pass of a stage hides a reduction, so larger microbatches let "
        "slower NICs pass.",
    ]
    return Result(sorted(rows, key=lambda row: row.id.partition(" ")[0]), summary, notes)
