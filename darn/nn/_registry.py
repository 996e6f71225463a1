"""Names of the classes that a model file may hold, and the fields that it leaves out."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

M = TypeVar("M", bound=type[eqx.Module])

REGISTRY: dict[str, type[eqx.Module]] = {}


def register(name: str) -> Callable[[M], M]:
    """Names a module class, so that models with it can be saved and loaded; used as a class decorator.

    Args:
        name: what model files call the class. A name is taken once; defining the same class again, as a notebook does
            when a cell is run twice, replaces it.

    Returns:
        The decorator, which returns the class unchanged.
    """

    def decorate(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
            raise TypeError(f"only equinox modules are registered, and {cls!r} is none")
        taken = REGISTRY.get(name)
        if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the name {name!r} is already taken by {taken.__module__}.{taken.__qualname__}")
        REGISTRY[name] = cls
        return cls

    return decorate


def tuning_field(**options: Any) -> Any:
    """A static field that changes the speed of a module and not its result, such as a block size.

    Model files and the codec's fingerprint leave it out, and a loaded module has its default.

    Args:
        **options: as of `equinox.field`; a `default` is required.
    """
    if "default" not in options and "default_factory" not in options:
        raise TypeError("a tuning field needs a default: a loaded module has it")
    return eqx.field(static=True, metadata={"tuning": True}, **options)
