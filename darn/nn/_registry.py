"""The names of classes in model files, and the fields that are not stored."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

M = TypeVar("M", bound=type[eqx.Module])

REGISTRY: dict[str, type[eqx.Module]] = {}


def register(name: str) -> Callable[[M], M]:
    """Class decorator that names a module class, so that models with it can be saved and loaded.

    Args:
        name: the class's name in model files. Each name belongs to one class; defining the same class again, as when a
            notebook cell is run twice, replaces it.

    Returns:
        The decorator, which returns the class unchanged.
    """

    def decorate(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
            raise TypeError(f"only equinox modules can be registered, and {cls!r} is not one")
        taken = REGISTRY.get(name)
        if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the name {name!r} is already taken by {taken.__module__}.{taken.__qualname__}")
        REGISTRY[name] = cls
        return cls

    return decorate


def tuning_field(**options: Any) -> Any:
    """A static field that affects only the speed of a module, such as a block size.

    It is not stored in model files or part of the codec's fingerprint; a loaded module has the default.

    Args:
        **options: as for `equinox.field`; a `default` is required.

    Returns:
        The dataclass field.
    """
    if "default" not in options and "default_factory" not in options:
        raise TypeError("a tuning field needs a default, which loaded modules have")
    return eqx.field(static=True, metadata={"tuning": True}, **options)
