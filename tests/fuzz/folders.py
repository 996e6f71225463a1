"""Run folders, with one of their files damaged, or forged with its checksum computed anew."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import darn
from darn.cli import main
from darn.model_file import checksum
from darn.runs import folder as runs
from darn.runs.recipe import Recipe, override
from fuzz.drive import SilentChange
from fuzz.mutate import damaged, nasty

BITS = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(np.uint8)
KINDS = ("recipe", "recipe JSON", "metrics", "metrics JSON", "checkpoint", "checkpoint JSON", "checkpoint arrays")
KINDS += ("model", "model JSON")


def recipe(folder: Path, **fields) -> Recipe:
    """A small recipe on data in the folder."""
    np.save(folder / "own.npy", BITS)
    usual = {"source": str(folder / "own.npy"), "n_h": (2,), "n_d": (), "epochs": 4, "validate_every": 2}
    return override(Recipe(), usual | {"checkpoint_every": 0.0} | fields)


class Folders:
    """Resumes, loads and reports a mutated run folder that was interrupted half way."""

    def __init__(self, folder: Path):
        self.recipe = recipe(folder)
        runs.train(self.recipe, folder / "whole", progress=False)
        self.wanted = load_file(folder / "whole" / "model.safetensors")
        self.seed = folder / "half"
        save = darn.training.Loop.save

        def stop(loop, path, **notes):
            save(loop, path, **notes)
            if loop.epoch == 3:
                raise KeyboardInterrupt

        darn.training.Loop.save = stop
        try:
            runs.train(self.recipe, self.seed, progress=False)
        except KeyboardInterrupt:
            pass
        finally:
            darn.training.Loop.save = save
        assert (self.seed / "checkpoint.safetensors").exists()

    def __call__(self, rng: np.random.Generator, folder: Path) -> str:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.seed, run)
        kind = str(rng.choice(KINDS))
        name, _, how = kind.partition(" ")
        ending = {"recipe": "json", "metrics": "jsonl"}.get(name, "safetensors")
        self.harm(rng, run / f"{name}.{ending}", how)
        report = ["report", str(run), "--rows", "4", "--samples", "2", "--repeats", "1"]
        for words in (report, ["compare", str(run), str(self.seed.with_name("whole"))]):
            assert main([*words, "--out", str(folder / "r.html")]) in (0, 2)
        runs.train(self.recipe, run, resume=True, progress=False)
        found = load_file(run / "model.safetensors")
        if found.keys() == self.wanted.keys() and all((found[k] == self.wanted[k]).all() for k in found):
            return "same"
        if how and name == "checkpoint":  # another state of training, as if there had been another history
            return "another run"
        raise SilentChange(f"other weights, changed by {kind}")

    def harm(self, rng: np.random.Generator, path: Path, how: str) -> None:
        if not how:
            path.write_bytes(damaged(rng, path.read_bytes()))
        elif path.suffix == ".json":
            path.write_text(json.dumps(nasty(rng, json.loads(path.read_text()))))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            value = nasty(rng, lines)
            rows = value if isinstance(value, list) else [value]
            path.write_text("".join(json.dumps(line) + "\n" for line in rows))
        else:
            with safe_open(path, framework="np") as f:
                head, arrays = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
            part = "host" if "host" in head else "info"
            if how == "JSON":
                head[part] = json.dumps(nasty(rng, json.loads(head[part])))
            else:
                name = str(rng.choice(sorted(arrays)))
                a = arrays.pop(name)
                ways = (lambda: a.astype("f8"), lambda: a.astype("i4"), lambda: a[None], lambda: np.zeros_like(a))
                new = str(rng.choice([name, name, name, "x"]))
                arrays[new] = np.ascontiguousarray(ways[int(rng.integers(len(ways)))]())
            head["sha256"] = checksum(head.get("structure", "darn-checkpoint"), head[part], arrays)
            save_file(arrays, path, metadata=head)
