"""darn: Deep AutoRegressive Networks (Gregor et al., 2014).

    import darn
    splits = darn.data.load("digits")
    model = darn.zoo.darn(splits.train.n, n_h=64, n_d=100, key=jax.random.key(0))
    fit = darn.fit(model, splits.train, splits.valid, darn.Training(epochs=50))
    darn.likelihood.evaluate(fit.model, splits.test.unpack())

Everything below is loaded when first used, so that importing the package costs nothing.
"""

import importlib

_HOMES = {
    "Architecture": "config",
    "Training": "config",
    "DarnError": "errors",
    "DARN": "estimator",
    "Conditional": "model",
    "Stack": "model",
    "DescriptionLength": "objective",
    "description_length": "objective",
    "make_loss": "objective",
    "Recipe": "recipes",
    "RECIPES": "recipes",
    "fit": "training",
    "build": "zoo",
    "evaluate": "likelihood",
    "sample": "sampling",
    "encode": "sampling",
    "load_model": "model_file",
    "save_model": "model_file",
    "open_run": "runs",
    "load": "runs",
    "complete": "completion",
}
_MODULES = (
    "baselines",
    "codec",
    "completion",
    "data",
    "gradients",
    "layers",
    "likelihood",
    "nn",
    "objective",
    "rbm",
    "recipes",
    "report",
    "reproduce",
    "runs",
    "sampling",
    "sparse",
    "sweeps",
    "training",
    "weight_noise",
    "zoo",
)

__all__ = [*_HOMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"darn.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"darn.{name}")
    raise AttributeError(f"module 'darn' has no attribute {name!r}")


def __dir__():
    return __all__
