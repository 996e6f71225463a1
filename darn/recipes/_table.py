"""The recipes by name."""

import dataclasses
import difflib
from pathlib import Path

from darn.errors import DarnError
from darn.recipes._atari import ATARI
from darn.recipes._base import Recipe


def _uci(name, nll: float, n_h: int, n_d: int, lr: float, epochs: int = 1000, validate_every: int = 5) -> Recipe:
    # Section 5.1: one tanh layer, one stochastic layer with an autoregressive prior, autoregressive visible layer,
    # minibatches of 100, RMSprop; units and learning rate from the paper's grid, early stopping on validation.
    return Recipe(
        data=name,
        n_h=(n_h,),
        n_d=(n_d,),
        visible="linear",
        lr=lr,
        epochs=epochs,
        validate_every=validate_every,
        patience=20,
        paper_nll=nll,
        promise=f"Table 1, DARN, {name}: {nll} nats",
    )


RECIPES: dict[str, Recipe] = {
    "digits": Recipe(
        data="digits",
        promise="scikit-learn's 8x8 digits, binarised: the demonstration",
        n_h=(32,),
        n_d=(100,),
        visible="linear",
        lr=5e-4,
        epochs=1500,
        validate_every=5,
        patience=40,
        average=0.998,
        weight_decay=2e-3,
    ),
    "adult": _uci("adult", 13.19, 16, 100, 2.5e-4),
    "connect4": _uci("connect4", 11.91, 64, 500, 2.5e-4, epochs=300),
    "dna": _uci("dna", 81.04, 16, 100, 6.75e-5, validate_every=2),
    "mushrooms": _uci("mushrooms", 9.55, 32, 100, 2.5e-4),
    "nips": _uci("nips", 274.68, 8, 100, 2.5e-4),
    "ocr_letters": _uci("ocr_letters", 28.17, 256, 500, 2.5e-4, epochs=300),
    "rcv1": _uci("rcv1", 46.10, 64, 200, 2.5e-4, epochs=200),
    "web": _uci("web", 28.83, 64, 200, 2.5e-4, epochs=300),
    "mnist-500": Recipe(
        data="binarized_mnist",
        promise="Table 2, DARN n_h=500: -log p 84.71, bound 90.31 nats",
        paper_nll=84.71,
        paper_bound=90.31,
        n_h=(500,),
        n_d=(500,),
        visible="factorial",
        lr=3e-5,
        schedule="half",
        epochs=1200,
        validate_every=50,
        weight_decay=4e-4,  # of 0, 3e-5, 1e-4, 2e-4, 4e-4, 1e-3: validation bound 90.75 without it, 88.58 with
    ),
}

RECIPES |= ATARI

# What an own file is trained with, unless fields say otherwise.
OWN = Recipe(
    promise="your own data",
    n_h=(32,),
    n_d=(100,),
    lr=2.5e-4,
    epochs=1000,
    validate_every=5,
    patience=20,
)


def find(name: str, data: str | None = None) -> tuple[str, Recipe]:
    """(name of the run, recipe) for a recipe's name, or else for `data`, a known set or a file of one's own."""
    if name in RECIPES:
        return name, RECIPES[name]
    if data is not None:
        return Path(data).stem or "own", dataclasses.replace(OWN, data=data)
    near = difflib.get_close_matches(name.lower(), RECIPES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`darn recipes` and `darn data` list what there is"
    raise DarnError(f"there is no recipe, data set or file called {name!r}: {hint}")
