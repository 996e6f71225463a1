"""darn: Deep AutoRegressive Networks (Gregor et al., 2014).

    import darn
    splits = darn.data.load("digits")
    model = darn.zoo.darn(splits.train.n, n_h=64, n_d=100, key=jax.random.key(0))
    fit = darn.fit(model, splits.train, splits.valid, darn.Training(epochs=50))
    darn.evaluate(fit.model, splits.test.unpack())

The stub beside this file lists the API. Everything in it is loaded when first used, so that importing the package
costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
