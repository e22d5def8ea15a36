"""What is known of the golden instances; `experiments.bench.instances` makes them.

Compare the digest before comparing a rate: another instance has other rates. GB/s.
"""

from pathlib import Path

import numpy as np

from experiments.bench.instances import digest as digest, instance as instance

# First 16 hex digits of SHA-256 over the bytes of capacity, flow_ptr and flow_links.
DIGESTS = {
    "ls-1k": "1eac7c81d4c4257e",
    "ls-1k-het": "70b3f3d81a4dc483",
    "ft-1k": "bd2fab5021a66dff",
    "ft-1k-het": "8b8f98eb3036a06f",
    "ls-10k": "dd210db4b7f8d56b",
    "ls-10k-het": "1b374dcfc91b643a",
    "ft-10k": "48c1ee7cd7c7759f",
    "ft-10k-het": "0495f28828eec042",
    "ls-100k": "9e60d036ba0769b1",
    "ls-100k-het": "ac678a2be6d3498d",
    "ft-100k": "8a0a901a83045775",
    "ft-100k-het": "d90e5772dbb22669",
    "ls-1m": "c92a7cd1ba1d0565",
    "ls-1m-het": "2d21c8de92a42cce",
    "ft-1m": "1a65460ef98fa64d",
    "ft-1m-het": "b83aa4fac7b288c4",
    "chain-1k": "c3483d5b4de19dca",
}

# Sum of the rates, GB/s, found by others with a sequential heap in another language.
SUMS = {
    "ls-1k": 26783.750000000004,
    "ls-1k-het": 23521.1913121014,
    "ft-1k": 21950.833333333332,
    "ft-1k-het": 19342.366824801727,
    "ls-10k": 86064.18491330634,
    "ls-10k-het": 77560.69262635887,
    "ft-10k": 200427.77777777778,
    "ft-10k-het": 177491.05998014836,
    "ls-100k": 101539.39348645715,
    "ls-100k-het": 96488.64654489305,
    "ft-100k": 2016726.1276455026,
    "ft-100k-het": 1798368.192093242,
    "ls-1m": 102394.56824849143,
    "ls-1m-het": 100160.34778531692,
    "ft-1m": 20149444.76438492,
    "ft-1m-het": 18008825.87415944,
    "chain-1k": 1000666.2222222221,
}

SMALL = ("ls-1k", "ls-1k-het", "ft-1k", "ft-1k-het", "chain-1k")
MEDIUM = ("ls-10k", "ls-10k-het", "ft-10k", "ft-10k-het")
LARGE = ("ls-100k", "ls-100k-het", "ft-100k", "ft-100k-het")


def rates(name: str, shared: Path | None) -> np.ndarray | None:
    """Return the rates (flows,) of an instance from the reference data, None where absent."""
    if shared is not None:
        for file in (f"{name}.npz", f"{name}.rate.npz"):
            if (path := shared / "golden" / "maxmin" / file).is_file():
                with np.load(path) as held:
                    return held["rate"]
    return None
