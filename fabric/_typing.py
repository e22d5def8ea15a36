"""Array types used throughout; axes are links, nodes, flows, hops, parts."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

# Host records hold NumPy arrays, placed ones hold JAX arrays; both go through every function.
AnyArray = jax.Array | np.ndarray

LinkFloats = Float[AnyArray, " links"]
LinkBools = Bool[AnyArray, " links"]
LinkInts = Int[AnyArray, " links"]
FlowFloats = Float[AnyArray, " flows"]
# Weights and caps as a user may give them.
PerFlow = AnyArray | Sequence[Any]
FlowInts = Int[AnyArray, " flows"]
