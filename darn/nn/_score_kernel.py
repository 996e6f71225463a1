"""log p of bits whose logits are a matrix product, for a GPU: one kernel, and the logits never reach memory.

Weights and inputs are of half precision (see `halved`), sums and the log-probabilities of float32. Without a gradient.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Float16

from darn.nn._softplus import softplus

ROWS, UNITS, DEPTH, WARPS, STAGES = 128, 128, 64, 4, 3  # the fastest of seven on an H200
OFF = -1e4  # the logit of units that only fill a tile: log p of their being off is 0


@lru_cache
def has_kernel() -> bool:
    """Whether this device has the kernel: a single GPU, for which this JAX compiles it."""
    if jax.default_backend() != "gpu" or jax.device_count() > 1:  # XLA cannot divide a kernel among devices
        return False
    try:
        shapes = ((1, 8), jnp.float32), ((8, 8), jnp.float16), ((8,), jnp.float32), ((ROWS, 8), jnp.float16)
        jax.jit(scored).lower(*(jax.ShapeDtypeStruct(*shape) for shape in shapes)).compile()
    except Exception:  # whatever a JAX without Triton raises: the plain form gives the same but for rounding
        return False
    return True


def _product_log_prob(causal: bool):
    @jax.custom_batching.custom_vmap
    def one(
        y: Float[Array, " n"], W: Float16[Array, "n n_c"], b: Float[Array, " n"], c: Float[Array, " n_c"]
    ) -> Float[Array, ""]:
        """log p of the bits y with logits b + W c.

        Args:
            y: (n,) of 0 and 1, or intensities.
            W: (n, n_c).
            b: (n,).
            c: (n_c,), the context; for a causal map y itself.

        Returns:
            A scalar.
        """
        a = b + (c.astype(W.dtype) @ W.T).astype(b.dtype)
        return jnp.sum(y.astype(b.dtype) * a - softplus(a))

    @one.def_vmap
    def many(size, batched, y, W, b, c):
        if batched[3] and not batched[1] and not batched[2] and has_kernel():
            return rows(y if batched[0] else y[None], W, b, c), True
        return jax.vmap(one.fun, [0 if own else None for own in batched])(y, W, b, c), True

    @jax.custom_batching.custom_vmap
    def rows(
        y: Float[Array, "few n"], W: Float16[Array, "n n_c"], b: Float[Array, " n"], c: Float[Array, "rows n_c"]
    ) -> Float[Array, " rows"]:
        """Of many contexts: as many for each y, one y after the other."""
        return scored(y, W, b, c, causal=causal)

    @rows.def_vmap
    def more_rows(size, batched, y, W, b, c):
        y, W, b, c = (v if own else jnp.broadcast_to(v, (size, *v.shape)) for v, own in zip((y, W, b, c), batched))
        if batched[1] or batched[2]:  # one set of weights after the other
            return lax.map(lambda own: rows(*own), (y, W, b, c)), True
        flat = (v.reshape(-1, v.shape[-1]) for v in (y, c))
        return rows(next(flat), W[0], b[0], next(flat)).reshape(c.shape[:2]), True

    return one


product_log_prob, causal_log_prob = _product_log_prob(causal=False), _product_log_prob(causal=True)


def scored(y: Array, W: Array, b: Array, c: Array, *, causal: bool = False, interpret: bool = False) -> Array:
    """log p of each y with logits b + W c, for as many contexts a y: a tile of rows and units at a time.

    Args:
        y: (few, n).
        W: (n, n_c).
        b: (n,).
        c: (rows, n_c), a multiple of `few`.
        causal: whether W is strictly lower-triangular.
        interpret: to run anywhere, slowly.

    Returns:
        (rows,).
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, n, each = len(c), W.shape[0], len(c) // len(y)
    if each % ROWS:  # a tile of contexts would belong to several y
        y, each = jnp.repeat(y, each, axis=0), 1
    tall, wide, deep = -rows % ROWS, -n % UNITS, -W.shape[1] % DEPTH
    y = jnp.pad(y, ((0, tall if each == 1 else 0), (0, wide)))
    W = jnp.pad(W, ((0, wide), (0, deep))).T
    b = jnp.pad(b, (0, wide), constant_values=OFF)
    c = jnp.pad(c.astype(W.dtype), ((0, tall), (0, deep)))
    exp, log = (jnp.exp, jnp.log) if interpret else (_exp, _log)

    def kernel(y_ref, W_ref, b_ref, c_ref, out_ref):
        unit, row = pl.program_id(0), pl.program_id(1)
        own, to = pl.ds(row * ROWS, ROWS), pl.ds(unit * UNITS, UNITS)

        def add(k, sums):
            source = pl.ds(k * DEPTH, DEPTH)
            return sums + jnp.dot(c_ref[own, source], W_ref[source, to], preferred_element_type=jnp.float32)

        depth = W.shape[0] // DEPTH
        if causal:  # later units have no say
            depth = jnp.minimum((unit + 1) * (UNITS // DEPTH), depth)
        a = lax.fori_loop(0, depth, add, jnp.zeros((ROWS, UNITS), jnp.float32)) + b_ref[to][None]
        bits = (y_ref[own, to] if each == 1 else y_ref[row // (each // ROWS), to][None]).astype(jnp.float32)
        out_ref[unit, own] = jnp.sum(bits * a - jnp.maximum(a, 0.0) - log(1.0 + exp(-jnp.abs(a))), axis=1)

    parts = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((W.shape[1] // UNITS, len(c)), jnp.float32),
        grid=(W.shape[1] // UNITS, len(c) // ROWS),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        name="score",
    )(y, W, b, c)
    return jnp.sum(parts, axis=0)[:rows]


def _exp(z):
    return _fast("ex2.approx.ftz.f32 $0, $1;", z * 1.4426950408889634)


def _log(z):
    return _fast("lg2.approx.ftz.f32 $0, $1;", z) * 0.6931471805599453


def _fast(code: str, z: Array) -> Array:
    """An instruction of the GPU, which is precise to the last two bits or so."""
    from jax.experimental.pallas import triton

    shape = [jax.ShapeDtypeStruct(z.shape, z.dtype)]
    return triton.elementwise_inline_asm(code, args=[z], constraints="=f,f", pack=1, result_shape_dtypes=shape)[0]
