"""The same model and training step in PyTorch, as well written as we can, and a check that they agree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.nn import functional as F

from benchmarks import sizes
from darn.gradients import bernoulli
from darn.inference.objective import description_length
from darn.model import Stack
from darn.training import make_optimizer


class Bit(torch.autograd.Function):
    """h = 1[u < sigmoid(a)], backward by Eq. (24): `darn.gradients.bernoulli`."""

    @staticmethod
    def forward(ctx, a, u):
        q = torch.sigmoid(a)
        h = (u < q).to(a.dtype)
        ctx.save_for_backward(0.5 * (h - q).abs())
        return h

    @staticmethod
    def backward(ctx, df_dh):
        (slope,) = ctx.saved_tensors
        return slope * df_dh, None


def weights_of(model: Stack) -> dict[str, jax.Array]:
    """The weights of a stack of one stochastic layer, one tanh layer each way and a linear prior, by name."""
    (encoder,), (visible, prior) = model.encoder, model.decoder
    up, down = encoder.net.maps[0], visible.net.maps[0]
    weights = {
        "up.W": up.W,
        "up.b": up.b,
        "q.U": encoder.layer.U.W,
        "q.b": encoder.layer.b,
        "down.W": down.W,
        "down.b": down.b,
        "x.U": visible.layer.U.W,
        "x.b": visible.layer.b,
        "h.W": prior.layer.W.W,
        "h.b": prior.layer.b,
    }
    if hasattr(visible.layer, "W"):
        weights["x.W"] = visible.layer.W.W
    return weights


class Twin:
    """A stack's weights as torch parameters, and its description length over a batch."""

    def __init__(self, model: Stack, device: str):
        put = lambda w: torch.tensor(np.asarray(w), device=device, requires_grad=True)  # noqa: E731
        self.weights = {name: put(w) for name, w in weights_of(model).items()}
        self.params = list(self.weights.values())
        self.n_h = model.n_h[0]

    def loss(self, x, u):
        """Mean over the batch of log q(h|x) - log p(x,h), the encoder frozen inside log q."""
        w, total = self.weights, {"reduction": "sum"}
        a = F.linear(torch.tanh(F.linear(x, w["up.W"], w["up.b"])), w["q.U"], w["q.b"])
        h = Bit.apply(a, u)
        d = torch.tanh(F.linear(h, w["down.W"], w["down.b"]))
        a_x = F.linear(d, w["x.U"], w["x.b"])
        if "x.W" in w:
            a_x = a_x + F.linear(x, w["x.W"].tril(-1))
        a_h = F.linear(h, w["h.W"].tril(-1), w["h.b"])
        # -log p of bits with logits a is torch's binary cross-entropy: one fused kernel.
        minus_log_q = F.binary_cross_entropy_with_logits(a.detach(), h, **total)
        minus_log_p = F.binary_cross_entropy_with_logits(a_x, x, **total)
        minus_log_p = minus_log_p + F.binary_cross_entropy_with_logits(a_h, h, **total)
        return (minus_log_p - minus_log_q) / len(x)


class RMSprop:
    """The optimiser `rmsprop_graves` with torch's multi-tensor operations."""

    def __init__(self, params, lr: float, decay: float = 0.95, momentum: float = 0.9, eps: float = 1e-4):
        self.params, self.lr, self.decay, self.momentum, self.eps = params, lr, decay, momentum, eps
        self.n, self.m, self.delta = ([torch.zeros_like(p) for p in params] for _ in range(3))

    @torch.no_grad()
    def step(self, grads):
        torch._foreach_mul_(self.n, self.decay)
        torch._foreach_addcmul_(self.n, grads, grads, value=1 - self.decay)
        torch._foreach_lerp_(self.m, grads, 1 - self.decay)
        spread = torch._foreach_addcmul(self.n, self.m, self.m, value=-1)
        torch._foreach_clamp_min_(spread, 0)
        torch._foreach_add_(spread, self.eps)
        torch._foreach_sqrt_(spread)
        torch._foreach_mul_(self.delta, self.momentum)
        torch._foreach_addcdiv_(self.delta, grads, spread, value=-self.lr)
        torch._foreach_add_(self.params, self.delta)


class Trainer:
    """An ordinary training loop: shuffled epochs over float rows on the device.

    `mode`: torch.compile's, "reduce-overhead" being CUDA graphs; None for eager.
    """

    def __init__(self, model: Stack, x: np.ndarray, batch: int, lr: float, *, mode: str | None = None):
        self.device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        torch.set_float32_matmul_precision("high")  # what XLA does unasked: TF32 products on a GPU
        self.twin = Twin(model, self.device)
        self.optimizer = RMSprop(self.twin.params, lr)
        self.x = torch.tensor(x, dtype=torch.float32, device=self.device)
        self.batch = batch
        self.loss, self.update = self.twin.loss, self.optimizer.step
        self.graphs = mode == "reduce-overhead"
        if mode is not None:
            for t in (*self.twin.params, *self.optimizer.n, *self.optimizer.m, *self.optimizer.delta):
                torch._dynamo.mark_static_address(t)  # else a CUDA graph would copy every weight in and out
            # Static shapes: else the second model's sizes are taken for variable ones, and compiled worse.
            self.loss = torch.compile(self.loss, mode=mode, dynamic=False)
            self.update = torch.compile(self.update, mode=mode, dynamic=False)

    def epochs(self, count: int) -> float:
        """Trains; the mean description length."""
        steps = len(self.x) // self.batch
        total = torch.zeros((), device=self.device)
        for _ in range(count):
            order = torch.randperm(len(self.x), device=self.device)
            for i in range(steps):
                if self.graphs:
                    torch.compiler.cudagraph_mark_step_begin()
                x = self.x[order[i * self.batch : (i + 1) * self.batch]]
                loss = self.loss(x, torch.rand(self.batch, self.twin.n_h, device=self.device))
                total += loss.detach()
                self.update(torch.autograd.grad(loss, self.twin.params))
        return float(total) / (count * steps)  # waits for the device


def check(rtol: float = 1e-4, *, seed: int = 0) -> dict[str, float]:
    """Twin against darn on equal weights, rows and uniforms: loss, gradients, weights after RMSprop steps.

    Returns the largest difference of each, relative to the largest entry of its array; raises beyond `rtol`.
    """
    worst = {"loss": 0.0, "gradient": 0.0, "step": 0.0}
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    for size in sizes.SMALL:
        model, x = size.random(seed, 0.3), size.rows(20, seed).astype(np.float32)
        twin = Twin(model, "cuda" if jax.default_backend() == "gpu" else "cpu")
        theirs = RMSprop(twin.params, 1e-2)
        step, weights, state = our_step(model, 1e-2)
        for _ in range(3):
            u = np.random.default_rng(seed).random((len(x), size.n_h), np.float32)
            loss, grads, weights, state = step(weights, state, x, u)

            their_loss = twin.loss(*(torch.tensor(v, device=twin.params[0].device) for v in (x, u)))
            their_grads = torch.autograd.grad(their_loss, twin.params)
            theirs.step(their_grads)
            pairs = [("loss", loss, their_loss)]
            pairs += [("gradient", grads[k], g) for k, g in zip(twin.weights, their_grads)]
            pairs += [("step", weights[k], w) for k, w in twin.weights.items()]
            for what, a, b in pairs:
                a, b = np.asarray(a), b.detach().cpu().numpy()
                worst[what] = max(worst[what], float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-12)))
    torch.set_float32_matmul_precision(before)
    if not max(worst.values()) <= rtol:
        raise AssertionError(f"the PyTorch twin differs from darn: {worst}")
    return worst


def our_step(model: Stack, lr: float):
    """(darn's step with the uniforms given, the weights by name, the optimiser's state)."""
    optimizer = make_optimizer("rmsprop_graves", lr)

    def loss(weights, x, u):
        used = sizes.with_leaves(model, weights_of, weights)

        def one(x, u):
            given = lambda a, _: bernoulli(a, u)  # noqa: E731
            return description_length(used, x, key=jax.random.key(0), bit=given).total

        return jnp.mean(jax.vmap(one)(x, u))

    @sizes.jit_cheaply
    def step(weights, state, x, u):
        with jax.default_matmul_precision("highest"):
            value, grads = jax.value_and_grad(loss)(weights, x, u)
        updates, state = optimizer.update(grads, state)
        return value, grads, optax.apply_updates(weights, updates), state

    weights = weights_of(model)
    return step, weights, optimizer.init(weights)
