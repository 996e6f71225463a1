"""scikit-learn estimators: `DARN` over rows of 0 and 1, `TableDARN` over the rows of a table."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
