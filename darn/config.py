"""The fields of a recipe: what to build and how to train it. Plain data, no numerics imported."""

from dataclasses import dataclass, field

LAYERS = ("factorial", "linear", "nade", "eonade", "mixture")


def option(default, text: str, choices: tuple[str, ...] | None = None):
    """A field with its line of help, and its allowed values if they are few."""
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True)
class Architecture:
    """The shape of a stack."""

    n_h: tuple[int, ...] = option((64,), "stochastic units, layer by layer from the bottom; '' for none")
    n_d: tuple[int, ...] = option((100,), "deterministic units between stochastic layers; '' for none")
    encoder_d: tuple[int, ...] | None = option(None, "deterministic units in the encoder, if other than n_d")
    decoder_d: tuple[int, ...] | None = option(None, "deterministic units in the decoder, if other than n_d")
    activation: str = option("tanh", "nonlinearity of deterministic units", ("tanh", "relu"))
    visible: str = option(
        "linear",
        "visible layer p(x|h); 'grid': local autoregression; 'conv': causal convolutions",
        (*LAYERS, "grid", "conv"),
    )
    prior: str = option("linear", "hidden decoder layers p(h^l|h^(l+1)) and the prior on top", LAYERS)
    encoder: str = option("factorial", "encoder layers q(h|x)", ("factorial", "linear", "nade"))
    skip: bool = option(False, "every conditional sees all stochastic layers on its side, not the nearest only")
    n_nade: tuple[int, ...] = option((100,), "hidden units of NADE and EoNADE layers")
    n_orderings: int = option(16, "orderings of an EoNADE layer")
    n_components: int = option(10, "components of a mixture layer")
    # Images only: locally connected layers, section 2.2.
    local: tuple[int, ...] = option((), "deterministic local layers next to x: kernel,stride,filters of each")
    local_h: tuple[int, ...] = option((), "stochastic local layers below n_h: kernel,stride,filters of each")
    period: int = option(8, "period of the weights of local layers; 1: convolution")
    ar: tuple[int, ...] = option((15, 14), "kernel,period of the autoregression of visible=grid")
    ar_h: tuple[int, ...] = option((7, 8), "kernel,period of the autoregression within local_h layers")
    conv_channels: int = option(32, "channels of visible=conv")
    conv_blocks: int = option(4, "residual blocks of visible=conv")
    dropout: float = option(0.0, "fraction of activations that a training step leaves out of visible=conv")
    orders: str = option(
        "one", "orders of visible=conv: row by row, or all turns and reflections of the image", ("one", "symmetries")
    )

    @property
    def is_local(self) -> bool:
        """Whether the stack is over a grid of pixels."""
        return bool(self.local or self.local_h or self.visible in ("grid", "conv"))


@dataclass(frozen=True)
class Training:
    """How a stack is trained."""

    estimator: str = option("darn", "gradient through bits", ("darn", "straight_through", "reinforce", "disarm"))
    log_q: str = option("sampled", "the log q term", ("sampled", "entropy"))
    n_samples: int = option(1, "encodings of each datum in a step")
    weighted: bool = option(False, "the decoder learns from a datum's n_samples encodings by their importance weights")
    sparsity: float = option(0.0, "share of stochastic units to be active, held by a price on activity; 0: free")
    warmup: float = option(0.0, "share of the run over which the cost of the code, L(h), rises to its full weight")
    optimizer: str = option(
        "rmsprop_graves", "rmsprop_graves, or an optax optimiser that takes a learning rate alone, such as adam"
    )
    lr: float = option(2.5e-4, "learning rate")
    momentum: float = option(0.9, "momentum of rmsprop_graves")
    schedule: str = option(
        "constant",
        "learning rate over the run; 'half': constant, then linear to 1% over the second half",
        ("constant", "half", "linear", "cosine"),
    )
    clip: float = option(0.0, "largest norm of a step's gradient; 0: as it is")
    batch: int = option(100, "rows in a minibatch")
    epochs: int = option(200, "passes over the training rows")
    weight_decay: float = option(0.0, "half this times the squared weights is added to the loss; biases are free")
    decay_on: str = option("all", "whose weights decay", ("all", "encoder", "decoder"))
    l1: float = option(0.0, "this times the absolute autoregressive weights is added to the loss")
    noise: str = option(
        "none",
        "adaptive weight noise: a Gaussian for each weight, with one prior for all or one for each weight matrix",
        ("none", "pooled", "matrix"),
    )
    noise_on: str = option("all", "whose weights have noise, and a cost", ("all", "decoder"))
    noise_gradient: str = option(
        "reparametrised",
        "of log sigma: through the weights drawn, or by the squares of each row's gradient",
        ("reparametrised", "squares"),
    )
    noise_sigma: float = option(0.02, "standard deviation of the noise to begin with")
    noise_lr: float = option(1e-4, "learning rate of log sigma: it follows its target within 1/noise_lr steps")
    noise_warmup: float = option(0.0, "share of the run over which the price of the weights' description rises to 1")
    average: float = option(0.0, "decay of the averaged weights that are kept; 0: keep the last weights")
    validate_every: int = option(1, "epochs between looks at the validation bound")
    patience: int = option(0, "looks without improvement before stopping; 0: train to the end")
    checkpoint_every: float = option(60.0, "seconds between checkpoints")
    seed: int = option(0, "everything random follows from this")

    @property
    def bound_name(self) -> str:
        """What the choice between weights goes by, in words."""
        return f"validation bound of {self.n_samples} encodings" if self.weighted else "validation bound"
