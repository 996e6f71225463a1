"""Sampling a bit, with its backward pass: the local gradient estimators `(a, u) -> h`.

`a` is the unit's logit, `u` a uniform number, h = 1[u < sigmoid(a)]. Backpropagation supplies df/dh at the sampled h;
the estimator turns it into an estimate of df/da. Both estimators cost one forward and one backward pass.
"""

from collections.abc import Callable

import jax
from jaxtyping import Array

Estimator = Callable[[Array, Array], Array]


def _threshold(a, u):
    return (u < jax.nn.sigmoid(a)).astype(a.dtype)


@jax.custom_vjp
def bernoulli(a, u):
    """h = 1[u < sigmoid(a)]; backward: the paper's estimator, Eq. (24), its baseline expanded at h' = 1/2.

    Unbiased if f is at most quadratic in each unit. Equal to ReinMax at temperature 1, sample by sample.

    Args:
        a: logits.
        u: uniform numbers, of the same shape.

    Returns:
        Bits, as floats.
    """
    return _threshold(a, u)


def _bernoulli_fwd(a, u):
    h = _threshold(a, u)
    return h, (a, h)


def _bernoulli_bwd(residuals, df_dh):
    a, h = residuals
    # dq/da = q(1-q), so (dq/da) / (2 q(h)) = (1 - q(h)) / 2 = |h - q| / 2: no division, safe at any logit.
    return 0.5 * jax.nn.sigmoid((1 - 2 * h) * a) * df_dh, None


bernoulli.defvjp(_bernoulli_fwd, _bernoulli_bwd)


@jax.custom_vjp
def straight_through(a, u):
    """h = 1[u < sigmoid(a)]; backward: as if h were sigmoid(a). Biased even for quadratic f.

    Args:
        a: logits.
        u: uniform numbers, of the same shape.

    Returns:
        Bits, as floats.
    """
    return _threshold(a, u)


def _straight_through_fwd(a, u):
    return _threshold(a, u), a


def _straight_through_bwd(a, df_dh):
    return jax.nn.sigmoid(a) * jax.nn.sigmoid(-a) * df_dh, None


straight_through.defvjp(_straight_through_fwd, _straight_through_bwd)

LOCAL: dict[str, Estimator] = {"darn": bernoulli, "straight_through": straight_through}
