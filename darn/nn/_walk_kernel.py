"""Linear units that are on where a sum exceeds 0, decided one after another: the same bits in any form.

Weights and inputs are whole numbers so small that every partial sum is exact in float32 (compare `_fixed_point`, whose
grid is the codec's). No order of summation, number of rows or device can then change a bit, and a GPU may take the
products apart in half precision and decide the units in a kernel of its own.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

BITS = 22  # of the sum of a unit's weights; partial sums, with the unit's input, stay below 2^24
DIGIT = 2048  # a weight is DIGIT times one whole number plus another, which half precision holds exactly
BLOCK, ROWS, WARPS, STAGES = 32, 64, 4, 2  # the fastest of those in benchmarks/h200.py


def on_grid(W: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Weights in whole multiples of a unit's own power of two: at least 16 / 2^BITS of it, where the sums allow.

    Args:
        W: row j holds the weights to unit j.

    Returns:
        The whole numbers, and how many of them make 1 in each row.
    """
    most = jnp.maximum(jnp.sum(jnp.abs(W), axis=1), 16.0)  # thresholds, logits of uniform numbers, are up to 16
    scale = jnp.ldexp(jnp.ones_like(most), BITS - jnp.frexp(most)[1])
    return jnp.rint(W * scale[:, None]), scale


def to_grid(s: Float[Array, " n"], scale: Float[Array, " n"]) -> Float[Array, " n"]:
    """Inputs in the same multiples; those beyond the sum of all weights only keep their sign."""
    return jnp.rint(jnp.clip(s * scale, -(2.0 ** (BITS + 1)), 2.0 ** (BITS + 1)))


@lru_cache
def has_kernel() -> bool:
    """Whether this device has the kernel: a GPU, for which this JAX compiles it."""
    if jax.default_backend() != "gpu":
        return False
    try:
        shapes = (jax.ShapeDtypeStruct((rows, BLOCK), jnp.float32) for rows in (BLOCK, ROWS))
        jax.jit(walked).lower(*shapes).compile()
    except Exception:  # whatever a JAX without Triton raises: the plain form gives the same bits
        return False
    return True


def walked(W: Float[Array, "n n"], s: Float[Array, "rows n"], *, interpret: bool = False) -> Float[Array, "rows n"]:
    """y_j = 1 where s_j + W_j y > 0, unit by unit, in one kernel.

    A tile of rows goes through the units in blocks: products with all that it has decided before bring a block's sums
    up to date, then its units follow one by one, in registers.

    Args:
        W: strictly lower-triangular, on the grid.
        s: on the grid.
        interpret: to run anywhere, slowly.

    Returns:
        0 and 1.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (count, n), block, rows = s.shape, BLOCK, ROWS
    wide, tall = -n % block, -count % rows
    W = jnp.pad(W, ((0, wide), (0, wide)))
    s = jnp.pad(s, ((0, tall), (0, wide)), constant_values=-1.0)  # filled-up units are off
    high = jnp.trunc(W / DIGIT)
    low = W - DIGIT * high

    def kernel(s_ref, high_ref, low_ref, w_ref, y_ref):
        own = pl.ds(pl.program_id(0) * rows, rows)
        place = lax.broadcasted_iota(jnp.int32, (rows, block), 1)

        def one_block(k, none):
            start = k * block
            here = pl.ds(start, block)

            def add(earlier, sums):
                source = pl.ds(earlier * block, block)
                y = y_ref[own, source]
                parts = (jnp.dot(y, d[source, here], preferred_element_type=jnp.float32) for d in (high_ref, low_ref))
                return tuple(a + b for a, b in zip(sums, parts))

            zero = jnp.zeros((rows, block), jnp.float32)
            high, low = lax.fori_loop(0, k, add, (zero, zero))
            a = s_ref[own, here] + float(DIGIT) * high + low
            for i in range(block):
                on = jnp.sum(jnp.where(place == i, a, 0.0), axis=1) > 0
                a = a + jnp.where(on[:, None], w_ref[start + i, here][None], 0.0)
            y_ref[own, here] = (a > 0).astype(jnp.float16)  # a unit has no weights to itself and those before it
            if not interpret:
                triton.debug_barrier()  # other threads read these bits for the next block
            return none

        lax.fori_loop(0, s.shape[1] // block, one_block, jnp.int32(0))

    y = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(s.shape, jnp.float16),
        grid=(s.shape[0] // rows,),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        name="walk",
    )(s, high.T.astype(jnp.float16), low.T.astype(jnp.float16), W.T)
    return y[:count, :n].astype(jnp.float32)
