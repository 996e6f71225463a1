"""The expected description length, Eqs. (11) to (15), and the losses that training minimises."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.errors import InputError
from darn.gradients import LOCAL, Estimator, bernoulli
from darn.model import Stack
from darn.random import uniform

ESTIMATORS = (*LOCAL, "reinforce", "disarm")
LOG_Q = ("sampled", "entropy")
_DECODER = 2**31 - 1  # separates the decoder's key from all keys that `encode` derives from the same one


class DescriptionLength(eqx.Module):
    """The description length of one row in nats, and its parts; on average an upper bound on -log p(x)."""

    x_given_h: Float[Array, ""]  # L(x|h) = -log p(x|h), Eq. (11)
    h: tuple[Array, ...]  # L(h) = log q(h|x) - log p(h) by layer, Eq. (13): the bits-back cost of the code
    active: tuple[Array, ...]  # units of each layer that are on
    weighted: Array | None = None  # the tighter bound of several encodings, if the decoder minimises that one

    @property
    def total(self) -> Array:
        return sum(self.h, start=self.x_given_h)

    def priced(self, price: Float[Array, " L"], warm: Float[Array, ""] | float = 1.0) -> Array:
        """What training minimises: the total plus fDARN's sparsity term.

        Args:
            price: nats charged for each active unit, by layer.
            warm: the weight of the code's cost, see `Training.warmup`.
        """
        start = self.total if isinstance(warm, float) and warm == 1.0 else self.x_given_h + warm * sum(self.h)
        return sum((price[k] * n for k, n in enumerate(self.active)), start=start)


def _frozen(tree):
    return jax.tree.map(lambda w: lax.stop_gradient(w) if eqx.is_array(w) else w, tree)


def _frozen_encoder(model: Stack) -> Stack:
    return eqx.tree_at(lambda m: m.encoder, model, _frozen(model.encoder))


def description_length(
    model: Stack,
    x: Float[Array, " n_x"],
    context: Array | None = None,
    *,
    key: PRNGKeyArray,
    bit: Estimator = bernoulli,
    log_q: str = "sampled",
    validating: bool = False,
) -> DescriptionLength:
    """One sample h ~ q(H|x) of log q(h|x) - log p(x,h), Eq. (15), differentiable through the bits.

    Inside log q the encoder's weights are frozen and only the path through h is kept: the derivation of the estimator
    requires that f depend on q's parameters only through h, and the dropped term has mean zero. A decoder layer that
    trains on an estimate of its log-probability, such as EoNADE, contributes that estimate.

    Args:
        model: any stack.
        x: one row.
        context: one row of context, for a model that was trained with one.
        key: of everything random.
        bit: how bits are drawn and differentiated, see `darn.gradients`.
        log_q: "sampled", or "entropy" to replace log q by the closed form -H(q), with trainable weights (factorial
            encoders only).
        validating: whether to leave out noise that only training uses, such as dropout.

    Returns:
        The description length and its parts.
    """
    h = model.encode(x, context, key=key, bit=bit)
    if log_q == "entropy":
        q = tuple(-e for e in model.entropy_layers(x, h, context))
    else:
        q = _frozen_encoder(model).log_q_layers(x, h, context)
    k_p = jax.random.fold_in(key, _DECODER)
    return _parts(q, model.training_log_p_layers(x, h, context, key=k_p, validating=validating), h)


def _parts(log_q, log_p, h) -> DescriptionLength:
    lengths = tuple(q - p for q, p in zip(log_q, log_p[1:]))
    return DescriptionLength(-log_p[0], lengths, tuple(jnp.sum(y) for y in h))


def _mean(tree):
    return jax.tree.map(lambda v: jnp.mean(v, axis=0), tree)


# What training minimises: (surrogate whose gradient is the estimate, the description length itself).
Loss = Callable[..., tuple[Float[Array, ""], DescriptionLength]]


def make_loss(
    estimator: str = "darn",
    *,
    n_samples: int = 1,
    log_q: str = "sampled",
    weighted: bool = False,
    validating: bool = False,
) -> Loss:
    """The loss of one row, for a named gradient estimator.

    Args:
        estimator: one of `ESTIMATORS`.
        n_samples: encodings per row.
        log_q: see `description_length`.
        weighted: whether the decoder minimises the bound of Burda, Grosse and Salakhutdinov (2016) over n_samples
            encodings.
        validating: whether to leave out noise that only training uses, for the local estimators.

    Returns:
        A function `(model, x, context, price, warm=1.0, *, key)`, with `price` and `warm` as in
        `DescriptionLength.priced`. It returns a surrogate whose gradient is the estimate, and the description length.
    """
    if estimator not in ESTIMATORS or log_q not in LOG_Q or n_samples < 1:
        raise InputError(
            f"the estimator is {', '.join(ESTIMATORS)}, log_q is {' or '.join(LOG_Q)}, and n_samples at least 1: there "
            f"is no estimator {estimator!r} with log_q {log_q!r} and n_samples {n_samples}"
        )
    if log_q != "sampled" and estimator not in LOCAL:
        raise InputError(f"log_q {log_q} needs the estimator {' or '.join(LOCAL)}, not {estimator}")
    if weighted:
        if estimator not in LOCAL or n_samples < 2:
            raise InputError(f"weighted needs at least 2 samples and the estimator {' or '.join(LOCAL)}")
        return _weighted(LOCAL[estimator], n_samples, log_q)
    if estimator in LOCAL:
        bit = LOCAL[estimator]

        def local(model, x, context, price, warm=1.0, *, key):
            def one(k):
                return description_length(model, x, context, key=k, bit=bit, log_q=log_q, validating=validating)

            # Deriving a key costs as much as drawing a layer of bits, so none is derived in vain.
            dl = one(key) if n_samples == 1 else _mean(jax.vmap(one)(jax.random.split(key, n_samples)))
            return dl.priced(price, warm), dl

        return local
    return {"reinforce": _reinforce, "disarm": _disarm}[estimator](n_samples)


def _through(model, x, context, h, *, key) -> DescriptionLength:
    """The description length of x for a given h; only the decoder has a gradient."""
    q = _frozen_encoder(model).log_q_layers(x, h, context)
    return _parts(q, model.training_log_p_layers(x, h, context, key=key), h)


def _weighted(bit: Estimator, n_samples: int, log_q: str) -> Loss:
    """The decoder minimises -log of the mean of p(x,h)/q(h|x) over K encodings, each with its importance weight.

    The encoder still minimises the description length, so that codes remain good for compression. The decoder's
    gradient is unbiased. During warm-up, the importance weights use the full cost of the code.
    """

    def loss(model, x, context, price, warm=1.0, *, key):
        if model.trains_by_estimate:
            raise InputError("weighted needs log p(x, h), but a layer of this model trains on an estimate of it")
        coder = eqx.tree_at(lambda m: m.decoder, model, _frozen(model.decoder))

        def one(k):
            dl = description_length(coder, x, context, key=k, bit=bit, log_q=log_q)
            h = lax.stop_gradient(model.encode(x, context, key=k))  # the same bits: compiled, they are drawn once
            return dl, _through(model, x, context, h, key=jax.random.fold_in(k, _DECODER))

        dl, learned = jax.vmap(one)(jax.random.split(key, n_samples))
        log_w = lax.stop_gradient(-learned.total)
        surrogate = jnp.mean(dl.priced(price, warm)) + jnp.dot(jax.nn.softmax(log_w), learned.priced(price, warm))
        bound = jnp.log(n_samples) - jax.nn.logsumexp(log_w)
        return surrogate, dataclasses.replace(_mean(dl), weighted=bound)

    return loss


def _reinforce(n_samples: int) -> Loss:
    """Score function over K encodings, each with the mean of the others as baseline. Unbiased."""
    K = max(n_samples, 2)

    def loss(model, x, context, price, warm=1.0, *, key):
        k_h, k_p = jax.random.split(key)

        def one(k):
            h = lax.stop_gradient(model.encode(x, context, key=k))
            return _through(model, x, context, h, key=k_p), model.log_q(x, h, context)

        dl, log_q = jax.vmap(one)(jax.random.split(k_h, K))
        f = dl.priced(price, warm)
        advantage = lax.stop_gradient((f - jnp.mean(f)) * K / (K - 1))
        return jnp.mean(f + advantage * log_q), _mean(dl)

    return loss


def _disarm(n_samples: int) -> Loss:
    """DisARM (Dong, Mnih & Tucker, 2020) for factorial encoders of any depth: K/2 antithetic pairs. Unbiased.

    The pair of layer k shares the layers below it and continues upwards independently, so L layers need L pairs.
    """
    n_pairs = max(n_samples // 2, 1)
    no_bits = make_loss("darn", n_samples=n_samples)

    def loss(model, x, context, price, warm=1.0, *, key):
        if not model.n_layers:
            return no_bits(model, x, context, price, warm, key=key)
        k_pairs, k_p = jax.random.split(key)

        def finish(h, k, key):
            """Continues h^1..h^k to the top."""
            for j, key_j in enumerate(jax.random.split(key, model.n_layers - k), start=k):
                h = (*h, model.encoder[j].layer.sample(model.below(j, x, h, context), key=key_j))
            return lax.stop_gradient(h)

        def one(key):
            surrogate, lengths, h = jnp.zeros(()), [], ()
            for k, key_k in enumerate(jax.random.split(key, model.n_layers)):
                layer = model.encoder[k].layer
                if not layer.independent:
                    raise InputError("DisARM is for factorial encoders")
                k_u, k_1, k_2 = jax.random.split(key_k, 3)
                a = layer.start(model.below(k, x, h, context))
                u = uniform(k_u, layer.n)
                first, second = ((v < jax.nn.sigmoid(a)).astype(a.dtype) for v in (u, 1 - u))
                pair = [
                    _through(model, x, context, finish((*h, y), k + 1, k_y), key=k_p)
                    for y, k_y in ((first, k_1), (second, k_2))
                ]
                f1, f2 = (lax.stop_gradient(dl.priced(price, warm)) for dl in pair)
                weight = 0.5 * (f1 - f2) * (first - second) * jax.nn.sigmoid(jnp.abs(a))
                surrogate = surrogate + jnp.dot(lax.stop_gradient(weight), a)
                lengths += pair
                h = (*h, lax.stop_gradient(first))
            dl = _mean(jax.tree.map(lambda *v: jnp.stack(v), *lengths))
            return surrogate + dl.priced(price, warm), dl

        surrogate, dl = jax.vmap(one)(jax.random.split(k_pairs, n_pairs))
        return jnp.mean(surrogate), _mean(dl)

    return loss
