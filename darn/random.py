"""Random numbers and permutations that are fast enough for training small models on a CPU."""

import math
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from darn.shuffle import MANY, ROUNDS, feistel

FEW_BITS = 14  # of numbers that leave enough random bits in a word of 32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def uniform(key: PRNGKeyArray, n: int) -> Float[Array, " n"]:
    """`jax.random.uniform(key, (n,))`, bit for bit, for a Threefry key.

    On a CPU, JAX compiles Threefry as a loop over its rounds: about fifty small kernels, which cost as much as the
    optimiser in a small model's training step. Unrolled, the rounds are one kernel.

    Args:
        key: any key; other generators than Threefry fall back to JAX.
        n: how many numbers.

    Returns:
        n numbers in [0, 1).
    """
    if jax.random.key_impl(key) != "threefry2x32":
        return jax.random.uniform(key, (n,))
    k0, k1 = jax.random.key_data(key)
    ks = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0 = jnp.broadcast_to(ks[0], (n,))  # the upper half of the counter is 0, since n is below 2^32
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
    """The numbers 0 .. n - 1 in random order.

    Sorts words whose high bits are random and whose low bits are the number. JAX sorts key-value pairs, several times,
    which on a CPU takes a tenth of a small model's training step and two thirds of an EoNADE's. Words with equal random
    bits, at most a few in a hundred, keep their original order.

    Args:
        key: any key.
        n: how many numbers.

    Returns:
        A permutation.
    """
    if n > MANY:
        return permuted(key, jnp.arange(n, dtype=jnp.uint32), n)
    low = max(n - 1, 1).bit_length()
    if low > FEW_BITS:  # too few random bits would be left, and an epoch over so many rows is long anyway
        order = jnp.arange(n)
        for bits in _sorting(key, n):
            _, order = lax.sort_key_val(bits, order)
        return order
    words = jax.random.bits(key, (n,), jnp.uint32) >> low << low | jnp.arange(n, dtype=jnp.uint32)
    return (jnp.sort(words) & ((1 << low) - 1)).astype(jnp.int32)


def _sorting(key: PRNGKeyArray, n: int) -> Iterator[UInt32[Array, " n"]]:
    """The numbers that n numbers are sorted by, one after another, as in `jax.random.permutation`.

    Some of them are equal, so numbers are sorted until it is as good as certain that all of their sequences differ.
    """
    for _ in range(math.ceil(3 * math.log(n) / math.log(2**32 - 1))):
        key, own = jax.random.split(key)
        yield jax.random.bits(own, (n,), jnp.uint32)


@partial(jax.jit, static_argnums=1)
def _all_bits(key: PRNGKeyArray, n: int) -> list[UInt32[Array, " n"]]:
    return list(_sorting(key, n))


def permutation_by_numpy(key: PRNGKeyArray, n: int) -> Int[np.ndarray, " n"]:
    """`permutation` of at most `MANY` numbers, for a processor: NumPy sorts ten times as fast as XLA does there."""
    if (n - 1).bit_length() <= FEW_BITS:
        return np.asarray(jax.jit(permutation, static_argnums=1)(key, n))
    order, places = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.uint64)
    for bits in _all_bits(key, n):
        words = np.asarray(bits).astype(np.uint64) << np.uint64(32) | places
        words.sort()
        order = order[words.astype(np.uint32)]
    return order


def permuted(key: PRNGKeyArray, places: UInt32[Array, " N"], n: int) -> Int[Array, " N"]:
    """`permutation(key, n)[places]` for more than `MANY` numbers, without the list of them.

    Args:
        key: any key.
        places: which numbers to compute.
        n: how many there are.

    Returns:
        The numbers at these places.
    """
    keys, end = jax.random.bits(key, (ROUNDS,), jnp.uint32), jnp.uint32(n)

    def again(x):
        return jnp.where(x < end, x, feistel(x, keys, n))

    return lax.while_loop(lambda x: (x >= end).any(), again, feistel(places, keys, n)).astype(jnp.int32)
