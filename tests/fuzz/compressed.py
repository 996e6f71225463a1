"""Compressed files, damaged, or forged with their checksums computed anew."""

import bz2
import functools
import io
import json
import lzma
import zlib
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from darn import codec, data
from darn.cli import main
from darn.codec._bytes import varint
from darn.codec._container import Block, End, block_bytes, read_blocks
from darn.config import Architecture
from darn.model_file import save_model
from darn.runs import two_part
from darn.runs.recipe import Recipe
from darn.zoo import build
from fuzz.drive import SilentChange
from fuzz.models import VECTORS
from fuzz.mutate import damaged, nasty

PACK = (zlib.compress, bz2.compress, lzma.compress)
LARGE = (0, 1, 2, 5, 255, 2**16, 2**24, 2**31, 2**40, 2**62)


@functools.cache
def bomb(tag: int) -> bytes:
    """128 MiB of blanks, compressed."""
    return PACK[tag](b" " * (1 << 27))


class Compressed:
    """Reads a mutated .drn by the API and by the commands `inspect` and `decompress`."""

    def __init__(self, folder: Path):
        rng = np.random.default_rng(0)
        for tag in range(len(PACK)):
            bomb(tag)
        self.files: list[tuple[Path, bytes, str, bytes]] = []  # model, file, suffix of its output, that output
        for path in sorted(VECTORS.glob("*.drn")):
            self._add(folder, path.with_suffix(".safetensors"), path.read_bytes(), ".npy")
        model = build(Architecture(n_h=(3,), n_d=(), visible="linear"), 12, key=jax.random.key(0))
        path = folder / "own.safetensors"
        save_model(path, model, {"data": {"shape": [4, 3]}})
        bits = (rng.random((30, 12)) < 0.4).astype(np.uint8)
        np.save(folder / "x.npy", bits.reshape(30, 4, 3).astype(np.float32))
        (folder / "x.csv").write_text(
            "# odd\n"
            + "\n".join(", ".join(f"{b}" + ".0" * (b == i % 2) for b in row) for i, row in enumerate(bits.tolist()))
        )
        (folder / "scans").mkdir()
        for name, size in (("a.png", (4, 3)), ("b.pbm", (9, 7)), ("c.png", (1, 20))):
            Image.fromarray(rng.random(size) < 0.5).save(folder / "scans" / name)
        inside = two_part._rounded(model, 3)
        for name, ending in (("x.npy", ".npy"), ("x.csv", ".csv"), ("scans", ""), ("scans/b.pbm", ".pbm")):
            for made, carried in ((model, b""), inside):
                row = codec.RowCodec(made, batch=8, workers=1)
                given, file = data.open_source(str(folder / name), 12, (4, 3)), io.BytesIO()
                mask = data.unit_mask(given.notes)
                row.write(file, given.bits(), given.rows, notes=given.notes, model=carried, mask=mask)
                self._add(folder, path, file.getvalue(), ending)

        self._add_table(folder, rng)

    def _add_table(self, folder: Path, rng: np.random.Generator) -> None:
        """A table of numbers, dates and texts, with its schema in the model file."""
        path, source = folder / "table.safetensors", folder / "t.csv"
        day = np.datetime64("2014-01-01")
        cells = [[f"{v:.1f}", str(day + i), "ab"[i % 2], f"n {i}"] for i, v in enumerate(rng.normal(0, 9, 60))]
        schema = data.infer(["x", "day", "k", "id"], np.array(cells, object), None, "it")
        cells[7][:3] = ["1e99", "never", "c"]
        source.write_text("x,day,k,id\n" + "\n".join(map(",".join, cells)) + "\n")
        how = Architecture(n_h=(3,), n_d=(), visible="linear")
        model = build(how, sum(schema.sizes), groups=schema.groups, key=jax.random.key(1))
        about = {"name": "", "n": model.n_x, "columns": schema.units, "table": schema.to_json()}
        recipe = Recipe().replace(source="", categorical="auto").to_json()
        save_model(path, model, json.loads(json.dumps({"recipe": recipe, "data": about})))
        given, file = data.open_source(str(source), model.n_x, None, schema=schema), io.BytesIO()
        row = codec.RowCodec(model, batch=8, workers=1)
        assert given.blocks is not None
        row.write(file, given.blocks(), given.rows, notes=given.notes, rest=given.cells)
        self._add(folder, path, file.getvalue(), ".csv")

    def _add(self, folder: Path, model: Path, made: bytes, ending: str) -> None:
        path = folder / "seed.drn"
        path.write_bytes(made)
        inside = bool(codec.read_head(io.BytesIO(made)).model)
        out = self.out(folder, ending)
        words = ["decompress", *([] if inside else [str(model)]), str(path), str(out), "--quiet"]
        assert main(words) == 0
        self.files.append((model, made, ending, self.content(out)))

    def out(self, folder: Path, ending: str) -> Path:
        out = folder / f"out{ending}"
        for f in [*out.glob("*")] if out.is_dir() else [out] * out.exists():
            f.unlink()
        return out

    def content(self, out: Path) -> bytes:
        files = sorted(out.glob("*")) if out.is_dir() else [out]
        return b"".join(f.name.encode() + f.read_bytes() for f in files)

    def __call__(self, rng: np.random.Generator, folder: Path) -> str:
        model, made, ending, wanted = self.files[int(rng.integers(len(self.files)))]
        kind = "bytes" if rng.random() < 0.5 else str(rng.choice(["head", "notes", "inside", "block", "end"]))
        path, forged = folder / "f.drn", damaged(rng, made) if kind == "bytes" else self.forge(rng, kind, made)
        path.write_bytes(forged)
        statuses = {main(["inspect", str(path)]), main(["inspect", str(path), "--verify"])}
        assert statuses <= {0, 2}
        inside = bool(codec.read_head(io.BytesIO(made)).model)
        out = self.out(folder, ending)
        extra = ["--keep-going"] if rng.random() < 0.2 else []
        words = ["decompress", *([] if inside else [str(model)]), str(path), str(out), "--quiet", *extra]
        status = main(words)
        assert status in (0, 2)
        if status == 2:
            if out.is_file():
                raise SilentChange("refused, but it left a file")
            return "refused"
        found = self.content(out)
        if found == wanted:
            return "same"
        if extra and kind in ("bytes", "block"):
            return "part of it"
        if kind in ("notes", "inside"):  # whose content no checksum of the rows vouches for
            return "other notes"
        raise SilentChange(f"other rows, changed by {kind}")

    def forge(self, rng: np.random.Generator, kind: str, made: bytes) -> bytes:
        file = io.BytesIO(made)
        head = codec.read_head(file)
        parts = list(read_blocks(file, head))
        end = parts.pop()
        assert isinstance(end, End)
        blocks = [(b.rows, b.data or b"") for b in parts if isinstance(b, Block)]
        notes = zlib.compress(json.dumps(head.notes).encode()) if head.notes else b""
        fields = [head.n_x, head.rows]
        carried = head.model
        large = lambda: int(LARGE[int(rng.integers(len(LARGE)))])  # noqa: E731
        ends = [0, len(end.q), *end.p, *end.q, end.first]
        if kind == "head":
            fields[int(rng.integers(2))] = large()
        elif kind == "notes":
            value = nasty(rng, head.notes or {"table": {"layout": {}}})
            text = json.dumps(value).encode()
            ways = (lambda: bomb(0), lambda: zlib.compress(damaged(rng, text)), lambda: zlib.compress(text))
            notes = ways[min(int(rng.integers(8)), 2)]()
        elif kind == "inside":
            carried = self.inside(rng, carried)
        elif kind == "block" and blocks:
            i = int(rng.integers(len(blocks)))
            rows, body = blocks[i]
            ways = (
                lambda: (rows, damaged(rng, body)),
                lambda: (rows, varint(1) + varint(2 * large() + 1) + varint(large()) + body[4:]),
                lambda: (large(), body),
                lambda: (rows, b""),
            )
            blocks[i] = ways[int(rng.integers(4))]()
            if blocks[i][0] != rows and rng.random() < 0.8:
                fields[1] = sum(r for r, _ in blocks)
        else:
            ends[int(rng.integers(len(ends)))] = large()
        body = head.fingerprint + varint(fields[0]) + varint(fields[1])
        body += varint(len(notes)) + notes + varint(len(carried)) + carried
        sealed = lambda data: data + zlib.crc32(data).to_bytes(4, "little")  # noqa: E731
        start = sealed(made[:5] + varint(len(body)) + body)
        return start + b"".join(block_bytes(*b) for b in blocks) + sealed(b"".join(map(varint, ends)))

    def inside(self, rng: np.random.Generator, carried: bytes) -> bytes:
        """The model inside, its bytes damaged before or after compression, or a bomb."""
        if not carried or rng.random() < 0.2:
            tag = int(rng.integers(3))
            return bytes([tag]) + (bomb(tag) if rng.random() < 0.3 else PACK[tag](rng.bytes(50)))
        if rng.random() < 0.5:
            return damaged(rng, carried)
        plain = codec.unpack(carried, codec.MAX_MODEL)
        return carried[:1] + PACK[carried[0]](damaged(rng, plain))
