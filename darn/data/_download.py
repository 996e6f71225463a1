"""Downloads the public files of a set, checks them, and packs them into one npz."""

from __future__ import annotations

import gzip
import hashlib
import sys
import tempfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

import numpy as np

from darn.data._arrays import open_arrays
from darn.data._upstream import File, Known
from darn.errors import DarnError
from darn.files import atomic, retrieve

LIMIT = 1 << 28  # bytes of one file, compressed or not: the largest known set has 78 million
TOO_LARGE = f"it is larger than {LIMIT >> 20} MiB"

Arrays = dict[str, np.ndarray]


def download(name: str, known: Known, path: Path) -> Arrays:
    """Downloads a set and also writes it to `path`, atomically; returns its arrays."""
    files = {key: fetch(name, file, path) for key, file in known.files.items()}
    arrays = CONVERT[known.form](known, files)
    if not is_content(known, arrays):
        raise DarnError(f"{name} was downloaded, but its rows are not the expected ones: please report this")
    try:
        with atomic(path) as temporary, open(temporary, "wb") as f:
            np.savez_compressed(f, **arrays)  # pyright: ignore[reportArgumentType]
    except DarnError as e:
        reason = getattr(e.__cause__, "strerror", e)
        raise DarnError(
            f"{name} was downloaded, but cannot be written to {path.parent} ({reason}): set DARN_DATA to "
            "a writable folder"
        ) from None
    return arrays


def fetch(name: str, file: File, path: Path) -> bytes:
    """One file, from the first address that has it with the right checksum."""
    failed = []
    for url in file.urls:
        if not url.startswith("https://"):
            failed.append(f"{url} is not an https address")
            continue
        print(f"darn: downloading {url}", file=sys.stderr)
        try:
            with tempfile.TemporaryDirectory() as folder:
                data = unpacked(retrieve(url, Path(folder, url.rsplit("/", 1)[-1]), LIMIT))
        except (OSError, ValueError, EOFError, HTTPException, zlib.error) as e:
            failed.append(f"{url} failed ({why(e)})")
            continue
        if has_checksum(data, file.check):
            return data
        failed.append(f"{url} sent a file with the wrong checksum")
    raise DarnError(
        f"{name} is not at {path} and could not be downloaded, {'; '.join(failed)}: try again with a "
        "network connection, or set DARN_DATA to a folder that has it"
    )


def why(e: Exception) -> str:
    """The reason of a failed download in a few words."""
    said = e.reason if type(e) is URLError else e
    return " ".join((str(said) or type(e).__name__).split())[:100]


def unpacked(path: Path) -> bytes:
    """The bytes of a file, decompressed if it is a .gz."""
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as f:
        data = f.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise OSError(TOO_LARGE)
    return data


def has_checksum(data: bytes, check: str) -> bool:
    kind, wanted = check.split(":")
    if kind == "git":
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == wanted
    return hashlib.sha256(data).hexdigest() == wanted


def is_content(known: Known, arrays: Arrays) -> bool:
    """Whether the arrays are the set's rows, in any order (see `Known`)."""
    if known.content is not None:
        return content_id(arrays) == known.content
    return all(has_checksum(debd_text(arrays[s], known.n), f.check) for s, f in known.files.items())


def content_id(arrays: Arrays) -> str:
    """sha256 of each split's rows, sorted; a label is appended to its row as a byte."""
    digest = hashlib.sha256()
    for split in ("train", "valid", "test"):
        if split not in arrays:
            continue
        rows = np.asarray(arrays[split], np.uint8)
        if f"{split}_label" in arrays:
            rows = np.column_stack([rows, arrays[f"{split}_label"].astype(np.uint8)])
        rows = np.ascontiguousarray(rows)
        digest.update(f"{split} {rows.shape[0]} {rows.shape[1]}\n".encode())
        digest.update(np.sort(rows.view(np.dtype((np.void, rows.shape[1]))).ravel()).tobytes())
    return digest.hexdigest()


def debd_text(packed: np.ndarray, n: int) -> bytes:
    """Packed rows as the text of the published files: 0/1 with commas between."""
    text = np.full((len(packed), 2 * n), ord(","), np.uint8)
    text[:, ::2] = np.unpackbits(packed, axis=1, count=n) + ord("0")
    text[:, -1] = ord("\n")
    return text.tobytes()


# From files to arrays. The bytes have been checked, so these functions parse without checks.


def pack_splits(known: Known, splits: dict[str, np.ndarray]) -> Arrays:
    return {**{s: np.packbits(bits, axis=1) for s, bits in splits.items()}, "n": np.array(known.n, np.int64)}


def text_bits(data: bytes, n: int) -> np.ndarray:
    cells = np.frombuffer(data, np.uint8)
    return (cells[(cells == ord("0")) | (cells == ord("1"))] - np.uint8(ord("0"))).reshape(-1, n)


def from_text(known: Known, files: dict[str, bytes]) -> Arrays:
    return pack_splits(known, {s: text_bits(data, known.n) for s, data in files.items()})


def from_divided(known: Known, files: dict[str, bytes]) -> Arrays:
    bits = text_bits(files["valid"], known.n)
    cuts = np.split(bits, np.cumsum(known.rows)[:-1])
    return pack_splits(known, dict(zip(("train", "valid", "test"), cuts)))


def from_made(known: Known, files: dict[str, bytes]) -> Arrays:
    arrays = open_arrays(files["all"], "the downloaded file")
    return pack_splits(known, {s: arrays[f"{s}_data"] > 0.5 for s in ("train", "valid", "test")})


def from_libsvm(known: Known, files: dict[str, bytes]) -> Arrays:
    """w6a, shuffled and divided into train and valid, and w6a.t as test. The published split is not used: no checksum
    of it was available."""

    def bits(data: bytes) -> np.ndarray:
        lines = [line.split()[1:] for line in data.decode("ascii").splitlines() if line.strip()]
        X = np.zeros((len(lines), known.n), np.uint8)
        for row, pairs in zip(X, lines):
            row[[int(p.split(":")[0]) - 1 for p in pairs]] = 1
        return X

    X, test = bits(files["w6a"]), bits(files["w6a.t"])
    X = X[np.random.RandomState(1234).permutation(len(X))]
    return pack_splits(known, {"train": X[: known.rows[0]], "valid": X[known.rows[0] :], "test": test})


def from_idx(known: Known, files: dict[str, bytes]) -> Arrays:
    arrays: Arrays = {"n": np.array(known.n, np.int64)}
    for split, stem in (("train", "train"), ("test", "t10k")):
        arrays[split] = np.frombuffer(files[f"{stem}_images_idx3"], np.uint8, offset=16).reshape(-1, known.n)
        arrays[f"{split}_label"] = np.frombuffer(files[f"{stem}_labels_idx1"], np.uint8, offset=8)
    return arrays


CONVERT: dict[str, Callable[[Known, dict[str, bytes]], Arrays]] = {
    "text": from_text,
    "divide": from_divided,
    "made": from_made,
    "libsvm": from_libsvm,
    "idx": from_idx,
}
