"""Random numbers and orders at the speed that a small model's training asks for on a CPU."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

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


def permutation(key: PRNGKeyArray, n: int) -> Int[Array, " n"]:
    """The numbers below n in random order.

    Each is sorted by random bits in front of its own, as one word. JAX sorts pairs, and twice over, which on a CPU is a
    tenth of a small model's training step and two thirds of an EoNADE's. Words with equal random bits, at most a few
    among a hundred, stand in their old order.
    """
    low = max(n - 1, 1).bit_length()
    if low > 14:  # too few bits would be left to chance, and such a set's epoch is long anyway
        return jax.random.permutation(key, n)
    words = jax.random.bits(key, (n,), jnp.uint32) >> low << low | jnp.arange(n, dtype=jnp.uint32)
    return (jnp.sort(words) & ((1 << low) - 1)).astype(jnp.int32)
