"""Adaptive weight noise (Graves, 2011): a Gaussian for every weight, and the cost of describing it.

The means mu are the model's own arrays; log sigma is a separate pytree of the same shapes. Training minimises
E[loss of a row] + L_C / N: L_C = KL(posterior || prior) in nats is paid once for the whole training set, so each of its
N rows (not each minibatch) bears an N-th of it. The prior N(a, s2), one for all noisy weights or one for each weight
matrix, is the one that minimises L_C, with a and s2 in closed form. At test time the model uses mu.

Only weight matrices have noise, and only the weights in use. Biases are few and start from the data, and a common prior
would fit neither them nor the weights; the unused triangle of an autoregressive matrix is not part of the model. The
paper does not say whether the encoder has noise. Since decoding needs only the decoder, L_C may also count only the
decoder's weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.nn import causal_maps

PRIORS = ("pooled", "matrix")
GRADIENTS = ("reparametrised", "squares")
PARTS = ("all", "decoder")
_AT_ONCE = 2**26  # the most floats of per-row gradients in memory at once
MAX_STEP = 0.1  # of log sigma: a single outlier minibatch must not blow up the noise


def _in_use(model: Any) -> Any:
    """A mask for every array with noise, None for all others."""
    causal = {id(m) for m in causal_maps(model)}

    def mask(m):
        if id(m) in causal:  # a weight is in use if `weights` depends on it
            return eqx.filter_grad(lambda m: jnp.sum(m.weights()))(m)
        return np.ones(m.shape, bool) if eqx.is_inexact_array(m) and m.ndim > 1 else None

    masks = jax.tree.map(mask, model, is_leaf=lambda m: id(m) in causal)
    masks = jax.tree.map(lambda u: np.asarray(u) != 0, masks)
    return jax.tree.map(lambda u: u if u.any() else None, masks)


class NoisyGradients(NamedTuple):
    """The gradient of E[loss] + L_C / N, estimated with one draw of the weights per minibatch."""

    mu: Any
    log_sigma: Any
    aux: Any  # the mean over the minibatch of the loss's auxiliary output
    cost: Float[Array, ""]  # L_C / N, nats per row


class WeightNoise:
    """The noise on one model's weights: which weights have noise, the prior and N, but not the weights themselves.

    In its methods, `params` are the model's float arrays (`eqx.filter(model, eqx.is_inexact_array)`), and `log_sigma`
    is None for arrays without noise.
    """

    def __init__(self, model: Any, n_train: int, prior: str = "matrix", part: str = "all"):
        if prior not in PRIORS:
            raise ValueError(f"there is no prior {prior!r}: use {' or '.join(PRIORS)}")
        if part not in PARTS:
            raise ValueError(f"there is no part {part!r}: use {' or '.join(PARTS)}")
        self.masks = _in_use(model)
        if part == "decoder":
            quiet = jax.tree.map(lambda _: None, self.masks.encoder)
            self.masks = eqx.tree_at(lambda m: m.encoder, self.masks, quiet)
        self.n_train = n_train
        self.pooled = prior == "pooled"

    def start(self, sigma: float) -> Any:
        """log sigma before training, the same for every weight."""
        return jax.tree.map(lambda u: jnp.full(u.shape, np.log(sigma), jnp.float32), self.masks)

    def noisy(self, params: Any) -> Any:
        """The arrays with noise on them, None in place of the others."""
        return jax.tree.map(lambda u, w: None if u is None else w, self.masks, params, is_leaf=lambda u: u is None)

    def draw(self, log_sigma: Any, *, key: PRNGKeyArray) -> Any:
        """epsilon, a standard normal number for every noisy weight."""
        leaves, tree = jax.tree.flatten(log_sigma)
        # All at once: a separate draw takes several kernels for each matrix.
        ends = np.cumsum([s.size for s in leaves])
        parts = jnp.split(jax.random.normal(key, (int(ends[-1]) if leaves else 0,)), ends[:-1])
        return jax.tree.unflatten(tree, [e.reshape(s.shape) for e, s in zip(parts, leaves)])

    def perturbed(self, params: Any, log_sigma: Any, epsilon: Any) -> Any:
        """The weights mu + sigma epsilon; their gradient with respect to log sigma is the reparametrised one."""
        add = lambda w, s, e: w + jnp.exp(s) * e  # noqa: E731
        return eqx.combine(jax.tree.map(add, self.noisy(params), log_sigma, epsilon), params)

    def cost(self, params: Any, log_sigma: Any) -> Float[Array, ""]:
        """L_C, the nats it takes to describe the weights; divided by `n_train`, each row's part.

        With a = mean(mu) and s2 = mean(sigma^2 + (mu - a)^2), sum[log(s2/sigma^2) + ((mu-a)^2 + sigma^2 - s2)/s2] / 2
        loses its second term, which sums to zero. Differentiating through a and s2 changes nothing, as they are
        optimal.
        """
        leaves = [jax.tree.leaves(t) for t in (self.masks, self.noisy(params), log_sigma)]
        each = list(zip(*leaves))
        groups = [each] if self.pooled else [[one] for one in each]
        return sum((_least_cost(g) for g in groups if g), start=jnp.zeros(()))

    def gradients(
        self,
        loss: Callable,
        params: Any,
        log_sigma: Any,
        rows: Any,
        *,
        key: PRNGKeyArray,
        how: str = "reparametrised",
        cost_weight: Any = 1.0,
        scale: float = 1.0,
    ) -> NoisyGradients:
        """The gradients for a minibatch.

        Args:
            loss: `loss(params, row)` returns (the row's loss in nats, any auxiliary output).
            params: the means mu.
            log_sigma: log standard deviations of the noise.
            rows: the minibatch, a pytree with a leading axis over its rows.
            key: of the noise.
            how: the gradient in log sigma. "reparametrised" is g epsilon sigma, with g the minibatch's gradient:
                unbiased, noisy, free. "squares" is sigma^2 E[g_i^2], with g_i the gradient of one row: the squares
                approximate the curvature, as they do for a well-fitted model. Far less noisy, but each row's gradient
                has to be computed separately.
            cost_weight: factor of the cost of the weights; below 1 during warm-up.
            scale: factor of the means over rows; above 1 if some of the rows have weight 0 and do not count.

        Returns:
            The gradients in mu and log sigma, the mean of the auxiliary output, and the cost of the weights.
        """
        if how not in GRADIENTS:
            raise ValueError(f"there is no gradient {how!r}: use {' or '.join(GRADIENTS)}")
        epsilon = self.draw(log_sigma, key=key)
        cost, of_cost = jax.value_and_grad(lambda mu, s: self.cost(mu, s) / self.n_train, (0, 1))(params, log_sigma)
        of_cost = jax.tree.map(lambda g: cost_weight * g, of_cost)

        def mean_loss(mu, s):
            weights = self.perturbed(mu, s, epsilon)
            losses, aux = jax.vmap(lambda row: loss(weights, row))(rows)
            return jnp.mean(losses), _mean(aux)

        if how == "reparametrised":
            of_data, aux = jax.grad(mean_loss, (0, 1), has_aux=True)(params, log_sigma)
        else:
            g, squares, aux = gradient_and_squares(loss, self.perturbed(params, log_sigma, epsilon), rows)
            of_data = g, jax.tree.map(lambda s, g2: jnp.exp(2 * s) * g2, log_sigma, self.noisy(squares))
        if scale != 1:
            of_data, aux = jax.tree.map(lambda v: scale * v, (of_data, aux))
        in_mu, in_log_sigma = jax.tree.map(jnp.add, of_data, of_cost)
        return NoisyGradients(in_mu, in_log_sigma, aux, cost)

    def descend(self, log_sigma: Any, gradient: Any, rate) -> Any:
        """log sigma after a step along the natural gradient of the whole training set's cost.

        The Fisher information of a Gaussian about log sigma is 2, so the gradient N g is halved. On this scale `rate`
        means the same for any N, layer or optimiser of mu: log sigma reaches its target within about 1/rate steps.
        """

        def step(s, g):
            return s - jnp.clip(rate * (0.5 * self.n_train) * g, -MAX_STEP, MAX_STEP)

        return jax.tree.map(step, log_sigma, gradient)


def _least_cost(group: list[tuple[np.ndarray, Array, Array]]) -> Float[Array, ""]:
    """KL of the weights that share a prior, (mask, mu, log sigma) each, from the prior that minimises it."""

    def total(values) -> Array:
        kept = (v if mask.all() else jnp.where(mask, v, 0) for (mask, _, _), v in zip(group, values))
        return sum((jnp.sum(v) for v in kept), start=jnp.zeros(()))

    n = sum(int(mask.sum()) for mask, _, _ in group)
    a = total(mu for _, mu, _ in group) / n
    s2 = total(jnp.exp(2 * s) + (mu - a) ** 2 for _, mu, s in group) / n
    return 0.5 * n * jnp.log(s2) - total(s for _, _, s in group)


def gradient_and_squares(loss: Callable, weights: Any, rows: Any) -> tuple[Any, Any, Any]:
    """Means over the rows of each row's gradient, its square and its auxiliary output.

    Processes as many rows at once as memory allows. (For a weight that each row uses once, the squared gradient is a
    product of squares. But the weights of NADE, of several samples per row and of log q in closed form are used more
    than once; only a gradient per row is correct for every model.)
    """
    n = len(jax.tree.leaves(rows)[0])
    room = max(1, _AT_ONCE // max(sum(w.size for w in jax.tree.leaves(weights)), 1))
    size = next(k for k in range(min(room, n), 0, -1) if n % k == 0)

    def part(rows):
        g, aux = jax.vmap(lambda row: jax.grad(loss, has_aux=True)(weights, row))(rows)
        return _mean((g, jax.tree.map(jnp.square, g), aux))

    def add(total, rows):
        return jax.tree.map(jnp.add, total, part(rows)), None

    parts = jax.tree.map(lambda v: v.reshape(n // size, size, *v.shape[1:]), rows)
    first, rest = jax.tree.map(lambda v: v[0], parts), jax.tree.map(lambda v: v[1:], parts)
    total = part(first) if size == n else lax.scan(add, part(first), rest)[0]
    return jax.tree.map(lambda v: v * (size / n), total)


def _mean(tree: Any) -> Any:
    return jax.tree.map(lambda v: jnp.mean(v, axis=0), tree)
