"""Many matrix products at once, which remain matrix products under `vmap` and in gradients.

`lax.dot_general` would also work, but under `vmap` it gets arrays of more than three axes, and XLA then lays out the
windows of a grid twice, once for the product and once, transposed, for the gradient: a fifth of a step of the Atari
network. Here the examples become additional rows of the same matrices, and transposition is left to the product.
"""

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
