"""A host-side sampler that counts its work: every weight that is multiplied or added, while it runs.

It walks a stack as the paper tells it (start, read a logit, write a bit) in NumPy, and does no work that a bit which is
off does not ask for. With the same uniform numbers it draws what `Stack.sample` draws.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from darn.layers import NADE, EoNADE, Factorial, LinearAutoregressive
from darn.model import Conditional, Stack
from darn.nn import Dense, ReLU, Sigmoid, Tanh

_ACTIVATIONS = {Tanh: np.tanh, ReLU: lambda a: np.maximum(a, 0), Sigmoid: lambda a: 1 / (1 + np.exp(-a))}


@dataclass
class Counter:
    """Weights used: multiplied with a real value, or added because a bit is on."""

    multiplied: int = 0
    added: int = 0

    @property
    def operations(self) -> int:
        return self.multiplied + self.added

    def product(self, W: np.ndarray, v: np.ndarray) -> np.ndarray:
        """W v: columns added for bits that are on, multiplied where v is not bits."""
        on = np.flatnonzero(v)
        if np.all(v[on] == 1):
            self.added += W.shape[0] * len(on)
            return W[:, on].sum(axis=1)
        self.multiplied += W.size
        return W @ v

    def dot(self, w: np.ndarray, v: np.ndarray) -> float:
        self.multiplied += w.size
        return float(w @ v)

    def add(self, a: np.ndarray, w: np.ndarray) -> None:
        """a += w, in place."""
        self.added += w.size
        a += w


def _map(f, v: np.ndarray, count: Counter) -> np.ndarray:
    if isinstance(f, Dense):
        a = count.product(_host(f.W), v)
        return a if f.b is None else a + _host(f.b)
    return _ACTIVATIONS[type(f)](v)


def _host(w) -> np.ndarray:
    return np.asarray(w, np.float64)


def _start(b, U, c, count: Counter) -> np.ndarray:
    return _host(b).copy() if U is None else _host(b) + _map(U, c, count)


def _bit(a: float, u: float) -> bool:
    return u < 1 / (1 + np.exp(-a))


def _factorial(layer: Factorial, c, u, count):
    return np.array([_bit(a, v) for a, v in zip(_start(layer.b, layer.U, c, count), u)], np.float64)


def _linear(layer: LinearAutoregressive, c, u, count):
    a, W, y = _start(layer.b, layer.U, c, count), _host(layer.W.weights()), np.zeros(layer.n)
    for j in range(layer.n):
        y[j] = _bit(a[j], u[j])
        if y[j]:
            count.add(a[j + 1 :], W[j + 1 :, j])
    return y


def _nade(layer: NADE, c, u, count):
    running, b = _start(layer.e, layer.A, c, count), _start(layer.b, layer.U, c, count)
    V, R, y = _host(layer.V), _host(layer.R), np.zeros(layer.n)
    M = None if layer.M is None else _host(layer.M)
    for j in range(layer.n):
        d = _map(layer.act, running, count)
        for f in layer.net.maps:
            d = _map(f, d, count)
        y[j] = _bit(b[j] + count.dot(R[j], d), u[j])
        if y[j]:
            count.add(running, V[j])
        if M is not None:
            count.add(running, M[j])
    return y


def _layer(layer, c, key, count: Counter) -> np.ndarray:
    if isinstance(layer, EoNADE):
        k_order, key = jax.random.split(key)
        order = layer.orders[jax.random.randint(k_order, (), 0, len(layer.orders))]
        core = layer.core.given(None if c is None else jnp.asarray(c, jnp.float32))
        if c is not None:  # `given` folded the context in: its work is counted here
            count.multiplied += sum(f.W.size for f in (layer.core.U, layer.core.A) if isinstance(f, Dense))
        y = np.zeros(layer.n)
        y[np.asarray(order)] = _nade(
            core.reordered(order), None, np.asarray(jax.random.uniform(key, (layer.n,))), count
        )
        return y
    walk = {Factorial: _factorial, LinearAutoregressive: _linear, NADE: _nade}[type(layer)]
    return walk(layer, c, np.asarray(jax.random.uniform(key, (layer.n,)), np.float64), count)


def _context(part: Conditional, parents, count: Counter):
    if not parents:
        return None
    c = np.concatenate(parents)
    for f in () if part.net is None else part.net.maps:  # type: ignore[attr-defined]
        c = _map(f, c, count)
    return c


def sample(model: Stack, key, count: Counter) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """(x, h) by ancestral sampling, the work added to `count`. For stacks of fully connected maps."""
    keys = jax.random.split(key, model.n_layers + 1)
    known: tuple[np.ndarray, ...] = ()
    for l in range(model.n_layers, -1, -1):
        parents = known if model.skip else known[:1]
        part = model.decoder[l]
        known = (_layer(part.layer, _context(part, parents, count), keys[l], count), *known)
    return known[0], known[1:]


def count(model: Stack, n: int = 20, seed: int = 0) -> dict:
    """The mean work of a sample over n of them, and how many units were on."""
    total, on, hidden = Counter(), 0.0, 0.0
    for key in jax.random.split(jax.random.key(seed), n):
        x, h = sample(model, key, total)
        on += x.sum() / n
        hidden += sum(y.sum() for y in h) / n
    return {
        "operations": total.operations / n,
        "multiplied": total.multiplied / n,
        "added": total.added / n,
        "samples": n,
        "visible_on": float(on),
        "hidden_on": float(hidden),
    }
