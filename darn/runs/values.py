"""The values of a recipe's fields: within their ranges, among their choices."""

from typing import Any

from darn import config


def check_values(part: Any) -> None:
    """`darn.config.check_values`, with the names of all registered layers.

    Args:
        part: An architecture, a training or data options.

    Raises:
        FieldError: With the first wrong value.
    """
    config.check_values(part, _layer_names)


def _layer_names() -> tuple[str, ...]:
    from darn.zoo import layer_names  # only now: it brings in JAX

    return layer_names()
