"""Model files: one safetensors file that holds the weights, the structure they fill, and where they came from.

The structure is plain JSON in the file's metadata: the class of every module by name, its sizes, and the name of each
array. Names are looked up among this package's own classes, so that opening a file never runs code from it.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from darn import layers, model, nn
from darn.errors import DarnError
from darn.files import atomic

FORMAT, VERSION = "darn-model", 1


def _classes() -> dict[str, type]:
    found = [v for room in (nn, layers, model) for v in vars(room).values() if isinstance(v, type)]
    return {c.__name__: c for c in found if issubclass(c, eqx.Module)}


def _describe(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, eqx.Module):
        if _classes().get(type(value).__name__) is not type(value):
            raise TypeError(f"{type(value).__name__} is not one of darn's own classes and cannot be saved")
        fields = {
            f.name: _describe(getattr(value, f.name), f"{name}.{f.name}".lstrip("."), arrays)
            for f in dataclasses.fields(value)
        }
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_describe(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]}
    if eqx.is_array_like(value) and not isinstance(value, bool | int | float):
        arrays[name] = np.asarray(value)
        return {"array": name}
    return value


def rebuild(spec: Any, arrays: dict[str, np.ndarray]) -> Any:
    """What `describe` described."""
    if not isinstance(spec, dict):
        return spec
    if "array" in spec:
        a = arrays[spec["array"]]
        return jnp.asarray(a, jnp.float32 if np.issubdtype(a.dtype, np.floating) else a.dtype)
    if "tuple" in spec:
        return tuple(rebuild(v, arrays) for v in spec["tuple"])
    cls = _classes()[spec["class"]]
    if set(spec["fields"]) != {f.name for f in dataclasses.fields(cls)}:
        raise ValueError(f"not the fields of {cls.__name__}")
    module = object.__new__(cls)
    for name, value in spec["fields"].items():
        object.__setattr__(module, name, rebuild(value, arrays))
    return module


def describe(stack: model.Stack) -> tuple[str, dict[str, np.ndarray]]:
    """(the structure as JSON, the arrays it names)."""
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(_describe(stack, "", arrays)), arrays


def save_model(path: str | Path, stack: model.Stack, info: dict | None = None, *, dtype: str = "float32") -> None:
    """Writes a model file; `info` is any JSON (recipe, data, figures) to carry along; weights as `dtype`."""
    structure, arrays = describe(stack)
    floats = {k: v.astype(dtype) if np.issubdtype(v.dtype, np.floating) else v for k, v in arrays.items()}
    head = {"format": FORMAT, "version": str(VERSION), "structure": structure}
    with atomic(path) as temporary:
        save_file(floats, temporary, metadata=head | {"info": json.dumps(info or {})})


def load_model(path: str | Path) -> tuple[model.Stack, dict]:
    """(the stack, the info saved with it), weights as float32."""
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.exists():
        raise DarnError(f"there is no model at {path}: give a run folder or a model file")
    try:
        with safe_open(path, framework="np") as f:
            head = f.metadata() or {}
            if head.get("format") != FORMAT:
                raise DarnError(f"{path} is a safetensors file, but not a darn model")
            if int(head["version"]) > VERSION:
                raise DarnError(
                    f"{path} is of model format {head['version']}, this darn reads up to {VERSION}: upgrade darn"
                )
            arrays = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
        stack, info = rebuild(json.loads(head["structure"]), arrays), json.loads(head["info"])
        if not isinstance(stack, model.Stack):
            raise ValueError("not a stack")
        return stack, info
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as e:
        raise DarnError(f"{path} is not a readable darn model: it is damaged, cut short or another file") from e
