"""Products that stay fast under `vmap` and in gradients: many of matrices at once, and those of vectors.

`lax.dot_general` would also work, but under `vmap` it gets arrays of more than three axes, and XLA then lays out the
windows of a grid twice, once for the product and once, transposed, for the gradient: a fifth of a step of the Atari
network. Here the examples become additional rows of the same matrices, and transposition is left to the product.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_products = Primitive("products")


def products(a: Float[Array, "G M K"], b: Float[Array, "G K N"]) -> Float[Array, "G M N"]:
    """G products of an M x K with a K x N matrix."""
    return _products.bind(a, b)


def _dot(a, b):
    return lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))


def _batched(args, axes):
    (a, b), (i, j) = args, axes
    if j is None:  # more rows on the left
        a = jnp.moveaxis(a, i, 1)
        (G, n, M, K), N = a.shape, b.shape[2]
        return products(a.reshape(G, n * M, K), b).reshape(G, n, M, N), 1
    if i is None:  # more columns on the right
        b = jnp.moveaxis(b, j, 2)
        (G, K, n, N), M = b.shape, a.shape[1]
        return products(a, b.reshape(G, K, n * N)).reshape(G, M, n, N), 2
    a, b = jnp.moveaxis(a, i, 0), jnp.moveaxis(b, j, 0)  # more products
    (n, G, M, K), N = a.shape, b.shape[3]
    return products(a.reshape(n * G, M, K), b.reshape(n * G, K, N)).reshape(n, G, M, N), 0


def _turn(m):
    return m.transpose(0, 2, 1)


_products.def_impl(_dot)
_products.def_abstract_eval(lambda a, b: ShapedArray((*a.shape[:2], b.shape[2]), a.dtype))
mlir.register_lowering(_products, mlir.lower_fun(_dot, multiple_results=False))
batching.primitive_batchers[_products] = _batched
ad.defbilinear(_products, lambda g, a, b: products(g, _turn(b)), lambda g, a, b: products(_turn(a), g))


_dots = Primitive("dots")


def dot(y: Float[Array, " n"], a: Float[Array, " n"]) -> Float[Array, ""]:
    """y . a in full float32.

    Many rows y with many vectors `a` are one matrix product. On an accelerator, an `a` for every row is multiplied and
    summed in the same pass that computes `a`; the library's product would read all of them once more.
    """
    if jax.default_backend() == "cpu":
        return jnp.dot(y, a, precision=lax.Precision.HIGHEST)
    return dots(y[None], a[None])[0, 0]


def dots(y: Float[Array, "P n"], a: Float[Array, "Q n"]) -> Float[Array, "P Q"]:
    """`dot` of all pairs."""
    return _dots.bind(y, a)


def _each(y, a):
    return lax.dot_general(y, a, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)


def _dots_batched(args, axes):
    y, a = (v if i is None else jnp.moveaxis(v, i, 0) for v, i in zip(args, axes, strict=True))
    (P, n), Q, (i, j) = y.shape[-2:], a.shape[-2], axes
    if j is None:
        return dots(y.reshape(-1, n), a).reshape(-1, P, Q), 0
    if i is None:
        return dots(y, a.reshape(-1, n)).reshape(P, -1, Q), 1
    if min(P, Q) == 1:
        return jnp.sum(y[:, :, None] * a[:, None], axis=-1), 0
    return lax.dot_general(y, a, (((2,), (2,)), ((0,), (0,))), precision=lax.Precision.HIGHEST), 0


_dots.def_impl(_each)
_dots.def_abstract_eval(lambda y, a: ShapedArray((y.shape[0], a.shape[0]), y.dtype))
mlir.register_lowering(_dots, mlir.lower_fun(_each, multiple_results=False))
batching.primitive_batchers[_dots] = _dots_batched
ad.defbilinear(_dots, lambda g, y, a: dots(g, a.T), lambda g, y, a: dots(g.T, y.T))
