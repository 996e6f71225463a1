"""All that exists for the reproduction: the paper's recipes and numbers, tables, claims, costs, figures, games."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
