"""The fields of a recipe: data, architecture and training. Plain dataclasses, without importing JAX."""

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from darn.jsonable import FieldError, shown

LAYERS = ("factorial", "linear", "nade", "eonade", "mixture")
BINARIZE = ("threshold", "static", "dynamic", "intensity")
LARGEST = 2**31 - 1  # the largest integer in a recipe, so that all fit into 32 bits


@dataclass(frozen=True)
class Range:
    """The numbers that a field accepts."""

    low: float = 0
    high: float | None = None
    low_excluded: bool = False
    high_excluded: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.low_excluded else self.low <= value
        if self.high is None:
            return above and value < math.inf
        return above and (value < self.high if self.high_excluded else value <= self.high)

    def __str__(self) -> str:
        low = f"above {self.low}" if self.low_excluded else f"at least {self.low}"
        return low if self.high is None else f"{low} and {'below' if self.high_excluded else 'at most'} {self.high}"


AT_LEAST_0, AT_LEAST_1, ABOVE_0 = Range(0), Range(1), Range(0, low_excluded=True)
FRACTION, BELOW_1 = Range(0, 1), Range(0, 1, high_excluded=True)


def option(
    default: Any,
    text: str,
    choices: tuple[str, ...] | None = None,
    *,
    within: Range | None = None,
    open_to_layers: bool = False,
    repeatable: bool = False,
) -> Any:
    """A field with its line of help.

    Args:
        default: The field's default.
        text: What the field is, in one line.
        choices: The allowed values, if they are few.
        within: The numbers it takes; for a tuple, each of its entries.
        open_to_layers: Besides the choices, the field takes the name of any registered layer.
        repeatable: The command line may give the field several times: a tuple of texts, or names in one text.

    Returns:
        A dataclass field.
    """
    metadata = {
        "help": text,
        "choices": choices,
        "within": within,
        "open_to_layers": open_to_layers,
        "repeatable": repeatable,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class LocalLayer:
    """A locally connected layer of an image model; as text, kernel/stride/filters such as 8/4/32."""

    kernel: int = option(3, "cells on a side that a unit sees", within=AT_LEAST_1)
    stride: int = option(1, "cells from one unit to the next", within=AT_LEAST_1)
    filters: int = option(1, "units at each position", within=AT_LEAST_1)


@dataclass(frozen=True)
class Window:
    """The reach of a local autoregression; as text, kernel/period such as 15/14."""

    kernel: int = option(3, "cells on a side, an odd number", within=AT_LEAST_1)
    period: int = option(1, "cells after which the weights repeat", within=AT_LEAST_1)


@dataclass(frozen=True)
class Start:
    """What the first causal convolutions see of the pixels; as text, rows/columns/left such as 2/7/3."""

    rows: int = option(2, "rows above a cell", within=AT_LEAST_1)
    columns: int = option(7, "columns of these rows, an odd number", within=AT_LEAST_1)
    left: int = option(3, "cells to the left", within=AT_LEAST_1)


@dataclass(frozen=True)
class Architecture:
    """The shape of a stack."""

    n_h: tuple[int, ...] = option(
        (64,), "stochastic units, layer by layer from the bottom; '' for none", within=AT_LEAST_1
    )
    n_d: tuple[int, ...] = option(
        (100,), "deterministic units between stochastic layers; '' for none", within=AT_LEAST_1
    )
    encoder_d: tuple[int, ...] | None = option(
        None, "deterministic units in the encoder, if other than n_d", within=AT_LEAST_1
    )
    decoder_d: tuple[int, ...] | None = option(
        None, "deterministic units in the decoder, if other than n_d", within=AT_LEAST_1
    )
    activation: str = option("tanh", "nonlinearity of deterministic units", ("tanh", "relu"))
    visible: str = option(
        "linear",
        "visible layer p(x|h); for images also 'grid' (local autoregression) and 'conv' (causal convolutions)",
        (*LAYERS, "grid", "conv"),
        open_to_layers=True,
    )
    prior: str = option(
        "linear", "hidden decoder layers p(h^l|h^(l+1)) and the prior on top", LAYERS, open_to_layers=True
    )
    encoder: str = option("factorial", "encoder layers q(h|x)", ("factorial", "linear", "nade"), open_to_layers=True)
    skip: bool = option(False, "every conditional sees all stochastic layers above it (encoder: below it)")
    n_nade: tuple[int, ...] = option((100,), "hidden units of NADE and EoNADE layers", within=AT_LEAST_1)
    n_orderings: int = option(16, "orderings of an EoNADE layer", within=AT_LEAST_1)
    n_components: int = option(10, "components of a mixture layer", within=AT_LEAST_1)
    # Images only: locally connected layers, section 2.2.
    local: tuple[LocalLayer, ...] = option((), "deterministic local layers next to x; '' for none")
    local_h: tuple[LocalLayer, ...] = option((), "stochastic local layers below n_h; '' for none")
    period: int = option(8, "period of the weights of local layers; 1: convolution", within=AT_LEAST_1)
    ar: Window = option(Window(15, 14), "autoregression of visible=grid")  # noqa: RUF009  (immutable)
    ar_h: Window = option(Window(7, 8), "autoregression within local_h layers")  # noqa: RUF009
    conv_channels: int = option(32, "channels of visible=conv", within=AT_LEAST_1)
    conv_blocks: int = option(4, "residual blocks of visible=conv", within=AT_LEAST_1)
    conv_dilations: tuple[int, ...] = option(
        (1,), "dilations of the residual blocks of visible=conv, in turn", within=AT_LEAST_1
    )
    conv_start: Start = option(Start(), "what the first convolutions of visible=conv see")  # noqa: RUF009
    conv_places: bool = option(False, "visible=conv learns what is particular to every row and column of the image")
    conv_again: bool = option(
        False, "a training step computes the blocks of visible=conv twice, for a fraction of the memory"
    )
    dropout: float = option(
        0.0, "fraction of the activations of conv and eonade layers dropped in a training step", within=BELOW_1
    )
    orders: str = option(
        "one", "orders of visible=conv: row by row, or all rotations and reflections", ("one", "symmetries")
    )

    @property
    def is_local(self) -> bool:
        """Whether the stack is over a grid of pixels."""
        return bool(self.local or self.local_h or self.visible in ("grid", "conv"))

    @property
    def is_stochastic(self) -> bool:
        """Whether there is a stochastic hidden layer."""
        return bool(self.n_h or self.local_h)


@dataclass(frozen=True)
class Training:
    """How a stack is trained."""

    estimator: str = option("darn", "gradient through bits", ("darn", "straight_through", "reinforce", "disarm"))
    log_q: str = option("sampled", "the log q term", ("sampled", "entropy"))
    n_samples: int = option(1, "encodings of each row in a step", within=AT_LEAST_1)
    weighted: bool = option(False, "the decoder weights a row's n_samples encodings by their importance weights")
    sparsity: float = option(
        0.0, "target fraction of active stochastic units, reached by a penalty; 0: no target", within=BELOW_1
    )
    warmup: float = option(
        0.0, "fraction of the run over which the cost of the code, L(h), rises to its full weight", within=FRACTION
    )
    warmup_steps: int = option(0, "the same in steps, for a run of few epochs", within=AT_LEAST_0)
    optimizer: str = option(
        "rmsprop_graves", "rmsprop_graves, or an optax optimiser that needs only a learning rate, such as adam"
    )
    lr: float = option(2.5e-4, "learning rate", within=ABOVE_0)
    momentum: float = option(0.9, "momentum of rmsprop_graves", within=BELOW_1)
    schedule: str = option(
        "constant",
        "learning rate over the run; 'half': constant, then linear to 1% over the second half",
        ("constant", "half", "linear", "cosine"),
    )
    clip: float = option(0.0, "largest norm of a step's gradient; 0: no limit", within=AT_LEAST_0)
    batch: int = option(100, "rows in a minibatch", within=AT_LEAST_1)
    epochs: int = option(200, "passes over the training rows", within=AT_LEAST_1)
    weight_decay: float = option(
        0.0, "half this times the squared weights is added to the loss, without biases", within=AT_LEAST_0
    )
    decay_on: str = option("all", "which weights decay", ("all", "encoder", "decoder"))
    l1: float = option(0.0, "this times the absolute autoregressive weights is added to the loss", within=AT_LEAST_0)
    noise: str = option(
        "none",
        "adaptive weight noise: a Gaussian for each weight, with one prior for all or one for each weight matrix",
        ("none", "pooled", "matrix"),
    )
    noise_on: str = option("all", "which weights have noise", ("all", "decoder"))
    noise_gradient: str = option(
        "reparametrised",
        "gradient of log sigma: through the drawn weights, or from the squares of each row's gradient",
        ("reparametrised", "squares"),
    )
    noise_sigma: float = option(0.02, "initial standard deviation of the noise", within=ABOVE_0)
    noise_lr: float = option(
        1e-4, "learning rate of log sigma, which reaches its target within about 1/noise_lr steps", within=BELOW_1
    )
    noise_warmup: float = option(
        0.0, "fraction of the run over which the cost of describing the weights rises to 1", within=FRACTION
    )
    average: float = option(
        0.0, "decay of the averaged weights that are kept; 0: keep the last weights", within=BELOW_1
    )
    validate_every: int = option(1, "epochs from one validation to the next", within=AT_LEAST_1)
    patience: int = option(0, "validations without improvement before stopping; 0: train to the end", within=AT_LEAST_0)
    checkpoint_every: float = option(60.0, "seconds between checkpoints", within=AT_LEAST_0)
    seed: int = option(0, "seed of everything random", within=Range(0, LARGEST))

    @property
    def bound_name(self) -> str:
        """The criterion by which weights are chosen, in words."""
        return f"validation bound of {self.n_samples} encodings" if self.weighted else "validation bound"


@dataclass(frozen=True)
class DataOptions:
    """Which data, and how they become rows of bits."""

    source: str = option("digits", "a data set's name, or your own file or folder")
    binarize: str | None = option(None, "how non-binary data become binary", BINARIZE)
    threshold: float = option(
        0.5,
        "with binarize=threshold: the intensity from which a unit is on",
        within=Range(0, 1, low_excluded=True),
    )
    labels: str | None = option(None, "the column of class labels, given to every conditional as context")
    categorical: str | None = option(None, "for tables: 'auto', or the names of categorical columns", repeatable=True)
    column: tuple[str, ...] = option(
        (),
        "for tables: what a column is: category, ordered, number, decimal-comma, decimal-point (numbers, too), "
        "boolean, date, id or auto; others are recognised",
        repeatable=True,
    )
    drop: str | None = option(None, "for tables: names of columns to leave out", repeatable=True)
    weights: str | None = option(None, "for tables: the column of row weights for training")
    delimiter: str | None = option(
        None, "for text tables: the character between cells, or tab or blank; detected by default"
    )
    moved: float = option(
        0.0,
        "fraction of the training images that a step moves a little; rows are always scored as they are",
        within=FRACTION,
    )
    shift: float = option(1.0, "with moved: up to so many pixels to any side; bits by whole pixels", within=AT_LEAST_0)
    turn: float = option(0.0, "with moved: turned by up to so many degrees", within=Range(0, 180))
    stretch: float = option(0.0, "with moved: larger or smaller by up to this fraction", within=BELOW_1)
    n_rows: int = option(
        0, "train and validate on at most this many rows each, drawn at random; 0: on all", within=AT_LEAST_0
    )


def check_values(part: Any, layer_names: Callable[[], Iterable[str]] = tuple) -> None:
    """Refuses a value outside the range or the choices of its field.

    Args:
        part: An instance of a dataclass whose fields were made by `option`.
        layer_names: Returns the names of registered layers; called only if a field has none of its choices.

    Raises:
        FieldError: With the first wrong value.
    """
    for f in dataclasses.fields(part):
        value, within, choices = getattr(part, f.name), f.metadata.get("within"), f.metadata.get("choices")
        for v in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(v):
                check_values(v, layer_names)
            elif type(v) is int and abs(v) > LARGEST:
                raise FieldError(f"{f.name} must be at most {LARGEST}", f.name)
            elif within is not None and v is not None and v not in within:
                raise FieldError(f"{f.name} must be {within}, not {v}", f.name)
        if choices and value is not None and value not in choices:
            _check_choice(f, str(value), choices, layer_names)


def _check_choice(f: dataclasses.Field, value: str, choices: tuple[str, ...], layer_names) -> None:
    known, advice = choices, ""
    if f.metadata["open_to_layers"]:
        known = (*choices, *(n for n in layer_names() if n not in choices))
        if value in known:
            return
        advice = "; a layer of another package has to be imported first"
    near = difflib.get_close_matches(value[:60], known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise FieldError(f"{f.name} must be one of {', '.join(known)}, not {shown(value)}{hint}{advice}", f.name)
