"""The values of a recipe's fields: within their ranges, among their choices."""

import dataclasses
import difflib
from typing import Any

from darn.config import LARGEST
from darn.jsonable import FieldError, shown


def check_values(part: Any) -> None:
    """Refuses a value outside the range or the choices of its field.

    Args:
        part: An instance of a dataclass whose fields were made by `darn.config.option`.

    Raises:
        FieldError: With the first wrong value.
    """
    for f in dataclasses.fields(part):
        value, within, choices = getattr(part, f.name), f.metadata.get("within"), f.metadata.get("choices")
        for v in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(v):
                check_values(v)
            elif type(v) is int and abs(v) > LARGEST:
                raise FieldError(f"{f.name} must be at most {LARGEST}", f.name)
            elif within is not None and v is not None and v not in within:
                raise FieldError(f"{f.name} must be {within}, not {v}", f.name)
        if choices and value is not None and value not in choices:
            _check_choice(f, str(value), choices)


def _check_choice(f: dataclasses.Field, value: str, choices: tuple[str, ...]) -> None:
    known, advice = choices, ""
    if f.metadata["open_to_layers"]:
        from darn.zoo import layer_names  # only now: it brings in JAX

        known = (*choices, *(n for n in layer_names() if n not in choices))
        if value in known:
            return
        advice = "; a layer of another package has to be imported first"
    near = difflib.get_close_matches(value[:60], known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise FieldError(f"{f.name} must be one of {', '.join(known)}, not {shown(value)}{hint}{advice}", f.name)
