"""Bytes of a number, by what it is of and by the dtype of the products."""

ACTIVATION = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}
"""Of an activation, kept or on the wire; FP8 products keep theirs in BF16."""

WEIGHT = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}
"""Of a weight, kept or gathered; FP8 has copies beside it."""

GRADIENT = {"fp32": 4, "bf16": 2}
"""Of a gradient that is summed and reduced, by `Profile.stack.grad_dtype`."""
