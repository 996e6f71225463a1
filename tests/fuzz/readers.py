"""Files of users in every type that is read, damaged; and bombs of each type."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save

import darn
from darn import DarnError, data
from darn.model_file import checksum
from fuzz.mutate import Rng, damaged

BITS = (np.random.default_rng(0).random((40, 12)) < 0.4).astype(np.uint8)


def _npy(a: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, a)
    return out.getvalue()


def _npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # pyright: ignore[reportArgumentType]
    return out.getvalue()


def _image(kind: str, size=(9, 7)) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).random(size) < 0.5).convert("L").save(out, format=kind)
    return out.getvalue()


def _parquet() -> bytes:
    import polars as pl

    out = io.BytesIO()
    pl.DataFrame({"a": ["x", None, "?", "y"] * 10, "b": [1, 0, 1, 1] * 10, "c": [0.5, 2.0] * 20}).write_parquet(out)
    return out.getvalue()


CSV = "a,b,c\n" + "".join(f'{i % 2},"x{i % 3}",{i / 7:.2f}\n' for i in range(40))

FILES: dict[str, Callable[[], bytes]] = {
    ".npy": lambda: _npy(BITS),
    ".npz": lambda: _npz(train=BITS, valid=BITS[:10], test=BITS[:10], y_train=np.arange(40) % 3),
    ".csv": lambda: CSV.encode(),
    ".txt": lambda: "\n".join(" ".join(map(str, row)) for row in BITS).encode(),
    ".tsv": lambda: CSV.replace(",", "\t").encode(),
    ".parquet": _parquet,
    ".png": lambda: _image("PNG"),
    ".pbm": lambda: b"P4\n7 9\n" + bytes(range(9)),
    ".gif": lambda: _image("GIF"),
    ".bmp": lambda: _image("BMP"),
    ".jpg": lambda: _image("JPEG"),
}


class Reader:
    """Reads a mutated file of one type as training, scoring and compressing do."""

    def __init__(self, ending: str):
        self.ending, self.made = ending, FILES[ending]()

    def __call__(self, rng: Rng, folder: Path) -> str:
        path = folder / f"f{self.ending}"
        path.write_bytes(damaged(rng, self.made))
        return read(path, folder)


def read(path: Path, folder: Path) -> str:
    """Every way to read the file; "read" if any of them took it."""
    ways: list[Callable[[], object]] = [lambda: list(data.open_source(str(path), None, None).bits())]
    ways += [lambda: list(data.open_rows(path).read())]
    ways += [lambda: list(data.open_rows(path, labels="label", classes=("0", "1", "2")).read())]
    if data.is_table(path):
        ways += [
            lambda: data.load_rows(path),
            lambda: data.load(path, columns=data.Columns("auto")),
            lambda: data.load(path, labels=0, columns=data.Columns("auto")),
            lambda: data.load(path, labels=0, binarize="threshold"),
            lambda: data.read_table(path),
        ]
    elif path.suffix in (".npy", ".npz"):
        ways += [lambda: data.load(path), lambda: data.load(path, binarize="static", labels="label")]
        ways += [lambda: data.load_rows(path, split="train"), lambda: data.load_rows(path, labels=-1)]
    else:
        alone = folder / "images"
        alone.mkdir(exist_ok=True)
        for old in alone.iterdir():
            old.unlink()
        (alone / path.name).write_bytes(path.read_bytes())
        ways += [lambda: data.load_rows(alone, binarize="threshold")]
        ways += [lambda: list(data.open_source(str(alone), None, None).bits())]
    taken = 0
    for way in ways:
        try:
            way()
            taken += 1
        except DarnError as e:
            if "\n" in str(e) or len(str(e)) > 1000:
                raise ValueError(f"a message of several lines or {len(str(e))} characters: {str(e)[:100]}") from e
    return "read" if taken else "refused"


# ---------------------------------------------------------------- bombs


def _npy_head(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def _zip_bomb(declared: tuple[int, ...], real: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z, z.open("x.npy", "w", force_zip64=True) as f:
        f.write(_npy_head(declared))
        for _ in range(real >> 20):
            f.write(bytes(1 << 20))
    return out.getvalue()


def _png_bomb(height: int, width: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    line, body = bytes(1 + min(width, 1 << 20) // 8), b""
    for _ in range(min(height, (1 << 27) // len(line))):
        body += packer.compress(line)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body + packer.flush()) + chunk(b"IEND", b"")


def _parquet_bomb(rows: int, word: str) -> bytes:
    import polars as pl

    out = io.BytesIO()
    pl.select(pl.repeat(word, rows, dtype=pl.String).alias("a")).with_columns(pl.col("a").alias("b")).write_parquet(out)
    return out.getvalue()


def _list_bomb(length: int) -> bytes:
    import polars as pl

    out = io.BytesIO()
    pl.select(pl.repeat(0, length, dtype=pl.Int8).implode().alias("a")).write_parquet(out)
    return out.getvalue()


def _long_cell(rows: int) -> bytes:
    return ("a,b,c\n" + "y" * 130_000 + ",x,0\n" + "u,v,1\n" * rows).encode()


def _names(metadata: int, arrays: int) -> bytes:
    """A safetensors file of many names."""
    head = '{"__metadata__":{"format":"darn-model"' + "".join(f',"{i:x}":""' for i in range(metadata)) + "}"
    head += "".join(f',"{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(arrays)) + "}"
    return len(head).to_bytes(8, "little") + head.encode()


def _members(count: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for i in range(count):
            z.writestr(f"{i}.npy", _npy_head((1,)) + b"\0")
    return out.getvalue()


def _model_with(info: str) -> bytes:
    """A model file with other info, and the right checksum."""
    path = Path(__file__).parent.parent / "vectors" / "eonade.safetensors"
    with safe_open(path, framework="np") as f:
        head, arrays = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
    head |= {"info": info, "sha256": checksum(head["structure"], info, arrays)}
    return save(arrays, metadata=head)


BOMBS: dict[str, Callable[[], bytes]] = {
    "declared.npy": lambda: _npy_head((1 << 40,)) + bytes(100),
    "declared 2.npy": lambda: _npy_head((1 << 20, 1 << 12)) + bytes(100),
    "nothing wide.npy": lambda: _npy_head((1 << 40, 0)),
    "zip.npz": lambda: _zip_bomb((1 << 9, 1 << 20), 1 << 29),
    "zip declared.npz": lambda: _zip_bomb((1 << 40,), 1 << 20),
    "label.csv": lambda: _long_cell(20_000),
    "names.csv": lambda: ("n" * 100_000 + ",b\n" + "".join(f"w{i % 400},0\n" for i in range(2_000))).encode(),
    "wide.csv": lambda: (",".join(["0"] * 5_000) + "\n").encode() * 11,
    "lines.csv": lambda: b"\n" * 1_000_000,
    "quotes.csv": lambda: b'"' * 500_001,
    "deep.csv": lambda: json.dumps([[[0]]]).encode() * 1000,
    "large.png": lambda: _png_bomb(30_000, 30_000),
    "huge.png": lambda: _png_bomb(2**31 - 1, 2**31 - 1),
    "high.png": lambda: _png_bomb(40_000, 1_000),
    "huge.pbm": lambda: b"P4\n2000000000 2000000000\n" + bytes(100),
    "huge.gif": lambda: b"GIF89a" + b"\xff\xff\xff\xff\x00\x00\x00" + bytes(50),
    "huge.bmp": lambda: b"BM" + bytes(8) + struct.pack("<IIiiHHI", 54, 40, 2**30, 2**30, 1, 1, 0) + bytes(50),
    "script.png": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    "rows.parquet": lambda: _parquet_bomb(9_000_000, "x"),
    "cells.parquet": lambda: _parquet_bomb(3_000, "y" * 100_000),
    "lists.parquet": lambda: _list_bomb(20_000_000),
    "commas.csv": lambda: b"," * 1_000_000 + b"\n",
    "blanks.txt": lambda: (b"0" + b" " * 100_000 + b"1\n") * 200,
    "one line.csv": lambda: b"0" * (1 << 26),
    "open quote.csv": lambda: b'a,b\n"' + b"x,y\n" * 500_000,
    "members.npz": lambda: _members(500),
    "names.safetensors": lambda: _names(500_000, 0),
    "arrays.safetensors": lambda: _names(0, 100_000),
    "values.safetensors": lambda: _model_with('{"x":[' + '{"":{}},' * 400_000 + "0]}"),
}


class Bombs:
    """Small files that ask for much; each of them once."""

    def __init__(self, folder: Path):
        self.paths = []
        for name, made in BOMBS.items():
            self.paths.append(folder / name)
            self.paths[-1].write_bytes(made())

    def __call__(self, _: Rng, folder: Path) -> str:
        path = self.paths.pop(0)
        if path.suffix != ".safetensors":
            return read(path, folder)
        darn.load(path)
        return "read"
