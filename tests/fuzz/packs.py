"""Packed sets whose files are damaged, exchanged or forged: the same rows are read, or none."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from unittest import mock

import numpy as np

from darn import data
from darn.data import _pack_rows, _pack_write
from darn.data._pack import signed
from fuzz.drive import SilentChange
from fuzz.mutate import Rng, damaged, nasty

BITS = (np.random.default_rng(0).random((120, 21)) < 0.4).astype(np.uint8)
TABLE = "a,b,kind,w\n" + "".join(f"{'xyz'[i % 3]},{i * 37 % 101 / 4},{'pq'[i % 2]},{1 + i % 4}\n" for i in range(80))
KINDS = ("part", "part", "manifest", "files", "forged", "forged", "forged", "forged part")


class Packs:
    """One of two sets, of bits or of a table with labels and weights, harmed in one way."""

    def __init__(self, folder: Path):
        np.save(folder / "x.npy", BITS)
        (folder / "t.csv").write_text(TABLE)
        self.sets = {"bits": {}, "table": {"labels": "kind"}}
        columns = data.Columns("auto", weights="w")
        with mock.patch.object(_pack_write, "PART", 100):  # many parts
            data.pack_files([folder / "x.npy"], folder / "bits")
            data.pack_files([folder / "t.csv"], folder / "table", labels="kind", columns=columns)
        self.home = folder
        self.wanted = {name: rows(folder / name, how) for name, how in self.sets.items()}

    def __call__(self, rng: Rng, folder: Path) -> str:
        name, kind = str(rng.choice(list(self.sets))), str(rng.choice(KINDS))
        given = folder / "set"
        shutil.rmtree(given, ignore_errors=True)
        shutil.copytree(self.home / name, given)
        harm(rng, given, kind)
        found = rows(given, self.sets[name])
        if found == self.wanted[name]:
            return "same"
        if kind.startswith("forged"):  # checksums are no signatures
            return "another set"
        raise SilentChange(f"other rows, by {kind}")


def rows(folder: Path, how: dict) -> list[bytes]:
    """Everything that is read from a set, by every way of reading."""
    with mock.patch.object(_pack_rows, "HELD", 0):  # as if it did not fit into memory
        splits = data.load(folder, **how)
    held = [getattr(splits, split) for split in ("train", "valid", "test")]
    held = [one.held() if one.in_parts else one for one in held]
    parts = [*data.open_rows(folder, classes=splits.classes, **how).read(), splits.train.take(slice(3, 9)), *held]
    sides = [(p.values, p.context, p.weights, p.log_density) for p in parts]
    found = [np.ascontiguousarray(a).tobytes() for side in sides for a in side if a is not None]
    return [*found, splits.train.mean().tobytes(), repr((splits.columns, splits.classes, splits.shape)).encode()]


def harm(rng: Rng, folder: Path, kind: str) -> None:
    parts = sorted(folder.glob("*.rows"))
    part, other = (parts[int(i)] for i in rng.choice(len(parts), 2, replace=False))
    manifest = folder / "manifest.json"
    if kind == "part":
        part.write_bytes(damaged(rng, part.read_bytes()))
    elif kind == "manifest":
        manifest.write_bytes(damaged(rng, manifest.read_bytes()))
    elif kind == "files":
        ways = (
            part.unlink,
            lambda: os.replace(other, part),
            lambda: shutil.copy(other, part),
            lambda: part.rename(folder / f"{len(parts):05}.rows"),
            lambda: (part.unlink(), part.symlink_to("/dev/zero")),
            lambda: (part.unlink(), os.mkfifo(part)),
            lambda: (part.unlink(), part.mkdir()),
            manifest.unlink,
        )
        ways[int(rng.integers(len(ways)))]()
    else:
        about = json.loads(manifest.read_text())["set"]
        if kind == "forged":
            about = nasty(rng, about)
        else:
            part.write_bytes(damaged(rng, part.read_bytes()))
            about["parts"][parts.index(part)]["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
        manifest.write_text(signed(about))
