"""The file around a model: safetensors, with structure, info and a checksum in its metadata."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from darn.errors import DarnError, FormatError, InputError, NotFoundError
from darn.files import atomic, open_input
from darn.jsonable import parse
from darn.model import Stack
from darn.model_file._check import check
from darn.model_file._structure import MAX_STRUCTURE, TYPES, describe, rebuild

FORMAT, VERSION = "darn-model", "2"
FLOATS = ("float16", "float32")  # the types that weights may be stored as
# What safetensors raises for a damaged file; AttributeError for a type that NumPy does not have.
UNREADABLE = (SafetensorError, OSError, ValueError, TypeError, AttributeError)
MAX_INFO = 32 << 20  # characters of JSON
MAX_TEXTS = 1 << 18  # quotation marks in the header of a safetensors file, which has ten for an array
LONGEST = 300  # characters of a message, which may quote the file


def checksum(structure: str, info: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the file's content, with each piece preceded by its length."""
    digest = hashlib.sha256()

    def add(piece: bytes | memoryview) -> None:
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)

    add(structure.encode())
    add(info.encode())
    for name, a in sorted(arrays.items()):
        a = np.ascontiguousarray(a)
        add(name.encode())
        add(f"{a.dtype.str}{list(a.shape)}".encode())
        add(a.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def save_model(path: str | Path, stack: Stack, info: dict | None = None, *, dtype: str = "float32") -> None:
    """Writes a model file.

    Args:
        path: the file, replaced atomically if it exists.
        stack: the model; all its classes must be registered.
        info: any JSON to store with it, such as recipe, data and figures.
        dtype: the type to store weights as, float32 or float16.

    Raises:
        InputTypeError: if a class is not registered.
        InputError: if a weight is not finite in `dtype`.
    """
    if dtype not in FLOATS:
        raise InputError(f"weights are stored as {' or '.join(FLOATS)}, not as {dtype}")
    structure, arrays = describe(stack)
    check(stack)
    with np.errstate(over="ignore"):
        stored = {k: v.astype(dtype) if v.dtype == np.float32 else v for k, v in arrays.items()}
    for name, a in stored.items():
        if a.dtype == dtype and not np.isfinite(a).all():
            raise InputError(f"the weights {name} have values that are not finite in {dtype}")
    text = json.dumps(info or {})
    if len(structure) > MAX_STRUCTURE or len(text) > MAX_INFO:
        raise InputError(f"a model file holds at most {MAX_STRUCTURE} characters of structure and {MAX_INFO} of info")
    head = {"format": FORMAT, "version": VERSION, "structure": structure, "info": text}
    with atomic(path) as temporary:
        save_file(stored, temporary, metadata=head | {"sha256": checksum(structure, text, stored)})


def load_model(path: str | Path) -> tuple[Stack, dict]:
    """Reads a model file.

    Args:
        path: the file, or the run folder it is in.

    Returns:
        The model, with float32 weights, and the info saved with it.

    Raises:
        NotFoundError: if there is no file.
        FormatError: if the file is damaged or not a model file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise NotFoundError(f"there is no model at {path}: give a run folder or a model file")
    try:
        structure, info, arrays = _read(path)
        return rebuild(structure, arrays), info
    except DarnError as e:
        raise FormatError(f"{path} is not a readable darn model: {str(e)[:LONGEST]}") from e
    except (*UNREADABLE, KeyError, RecursionError) as e:
        raise FormatError(f"{path} is not a readable darn model: it is damaged, truncated or another file") from e


def read_info(path: str | Path) -> dict:
    """Reads only the info of a model file, without verifying it: for lists of models.

    Args:
        path: the file.

    Returns:
        The info saved with the model.
    """
    try:
        check_header(path)
        with safe_open(path, framework="np") as f:
            return _info(_head(f)["info"])
    except (*UNREADABLE, KeyError, RecursionError) as e:
        raise FormatError(f"{path} is not a readable darn model") from e


def check_header(path: str | Path) -> None:
    """Refuses a safetensors file with many more names than any model has: each would become an object in memory.

    Args:
        path: the file.

    Raises:
        FormatError: if there are too many.
    """
    with open_input(path) as f:
        size = int.from_bytes(f.read(8), "little")
        head = f.read(min(size, os.fstat(f.fileno()).st_size))
    # Those inside a text are escaped.
    if head.count(b'"') - head.count(b'\\"') > MAX_TEXTS:
        raise FormatError("its header has more names than any model")


def _head(f) -> dict[str, str]:
    head = f.metadata() or {}
    if head.get("format") != FORMAT:
        raise FormatError("it is a safetensors file of another program")
    if head.get("version") != VERSION:
        raise FormatError(
            f"it has format version {head.get('version')}, but this darn reads version {VERSION}: upgrade darn, or "
            "save the model again"
        )
    return head


def _info(text: str) -> dict:
    info = parse(text, "its info", MAX_INFO)
    if not isinstance(info, dict):
        raise FormatError("its info is not a JSON object")
    return info


def _read(path: Path) -> tuple[str, dict, dict[str, np.ndarray]]:
    check_header(path)
    with safe_open(path, framework="np") as f:
        head = _head(f)
        arrays = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
    for name, a in arrays.items():
        if a.dtype.name not in (*FLOATS, *TYPES):
            raise FormatError(f"the array {name} has type {a.dtype.name}, which a model file cannot hold")
    if head["sha256"] != checksum(head["structure"], head["info"], arrays):
        raise FormatError("its content does not match its checksum")
    return head["structure"], _info(head["info"]), arrays
