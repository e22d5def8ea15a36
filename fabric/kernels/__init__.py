"""Arrays in, arrays out: JAX kernels without jit or records, and compiled CPU kernels beside them."""
