"""Arrays in, arrays out: JAX kernels without jit or records, compiled CPU kernels beside them."""
