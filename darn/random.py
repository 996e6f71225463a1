"""Uniform numbers, those of `jax.random.uniform`, in one kernel on a CPU too."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def uniform(key: PRNGKeyArray, n: int) -> Float[Array, " n"]:
    """`jax.random.uniform(key, (n,))`, bit for bit, for a Threefry key.

    JAX compiles Threefry for a CPU as a loop over its rounds: some fifty small kernels, which in a small model's
    training step cost as much as the optimiser. Written out, the rounds are one kernel.
    """
    if jax.random.key_impl(key) != "threefry2x32":
        return jax.random.uniform(key, (n,))
    k0, k1 = jax.random.key_data(key)
    ks = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0 = jnp.broadcast_to(ks[0], (n,))  # the counter's upper half is 0: n is below 2^32
    x1 = jnp.arange(n, dtype=jnp.uint32) + ks[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << r | x1 >> (32 - r)) ^ x0
        x0 = x0 + ks[(i + 1) % 3]
        x1 = x1 + ks[(i + 2) % 3] + jnp.uint32(i + 1)
    # 23 random bits after the binary point of a float in [1, 2)
    return lax.bitcast_convert_type((x0 ^ x1) >> 9 | jnp.uint32(0x3F800000), jnp.float32) - 1
