"""Section 5.3 carried out: trains what is missing, scores it, draws it, and writes down where each number is from."""

import dataclasses
import hashlib
import json
import lzma
import math
import shutil
import time
from pathlib import Path

import numpy as np

from darn import data, report
from darn.config import Window
from darn.data import Splits
from darn.errors import DarnError
from darn.files import atomic, read_record
from darn.inference import likelihood, sampling
from darn.model import Stack
from darn.paper.recipes import RECIPES
from darn.paper.recipes_atari import ATARI_BOUNDS
from darn.runs import folder, provenance
from darn.runs.recipe import Recipe

PERIODS = {  # for one game: plain convolutions beside periods 8 and 14, everywhere
    f"period-{p}": {"period": p, "ar": Window(15, p)} for p in (1, 8, 14)
}


def xz_nats(packed: np.ndarray) -> float:
    """Nats a frame that `xz -9e` takes for packed frames, one after the other in the given order."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    size = len(lzma.compress(np.ascontiguousarray(packed).tobytes(), lzma.FORMAT_XZ, filters=filters))
    return size * 8 * math.log(2) / len(packed)


def independent(splits: Splits) -> float:
    """Test nats a frame of one Bernoulli a pixel, at its mean over the training frames."""
    n, train, test = len(splits.train), splits.train.mean(), splits.test.mean()
    p = (n * train + 1) / (n + 2)
    return float(-(test * np.log(p) + (1 - test) * np.log1p(-p)).sum())


@dataclasses.dataclass(frozen=True)
class Book:
    """The folder of the runs, and that of the results."""

    runs: Path
    results: Path
    tiny: bool = False  # a try: small networks, few epochs
    again: bool = False  # make anew what is there
    progress: bool = True
    _done: set[str] = dataclasses.field(default_factory=set, init=False)  # runs that this book made or found

    def trained(self, name: str, recipe: Recipe) -> tuple[Stack, Recipe]:
        """The model of a recipe, trained into runs/name unless it is there, whole or in part."""
        out = self.runs / name
        recipe = recipe.tiny() if self.tiny else recipe
        if self.again and name not in self._done:
            shutil.rmtree(out, ignore_errors=True)
        self._done.add(name)
        resume = (out / "recipe.json").exists()
        fit = folder.train(recipe, out, resume=resume, progress=self.progress)
        if fit.interrupted:
            raise KeyboardInterrupt
        return fit.model, recipe

    def scored(self, name: str, recipe: Recipe, n_samples: int = 20) -> dict:
        """The record of a trained model: its bound on the test frames, and all that the number depends on."""
        path = self.results / f"{name.replace('/', '-')}.json"
        if (found := self._there(path)) is not None:
            return found
        model, recipe = self.trained(name, recipe)
        splits = folder.load_data(recipe)
        began = time.monotonic()
        x = splits.test.unpack()
        if model.n_layers:
            found = likelihood.importance(model, x, n_samples=n_samples, repeats=1)
        else:
            found = likelihood.exact(model, x)
        run = folder.open_run(self.runs / name)
        with open(self.runs / name / "model.safetensors", "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        record = {
            "recipe": recipe.to_json(),
            "data": run.info["data"],
            "made": run.info["made"],
            "training": run.info["training"],
            "model_sha256": digest,  # too large a file to go with the results: the command makes it again
            **found.summary(),
            "paper_bound": recipe.paper_bound,
            "seconds": round(time.monotonic() - began, 2),
            "device": provenance.device(),
            "precision": provenance.precision(),
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "command": provenance.command(),
        }
        self._write(path, record)
        return record

    def game(self, game: str) -> dict:
        """A game's row: the paper's network on both splits, a local FVSBN, Bernoullis and xz on the same frames."""
        path = self.results / f"{game}.json"
        if (found := self._there(path)) is not None:
            return found
        recipe = RECIPES[f"atari/{game}"]
        plain = recipe.replace(n_h=(), local=(), paper_bound=None)
        episodes = {"source": f"{recipe.data.source}/episodes", "paper_bound": None}
        row = {"paper": ATARI_BOUNDS[game], "bound": self.scored(f"atari/{game}", recipe)["bound"]}
        row["figure"] = self.figure3(game)
        row["by_episode"] = self.scored(f"atari/{game}-episodes", recipe.replace(**episodes))["bound"]
        row["fvsbn"] = self.scored(f"atari/{game}-fvsbn", plain)["bound"]
        row["fvsbn_by_episode"] = self.scored(f"atari/{game}-fvsbn-episodes", plain.replace(**episodes))["bound"]
        if game == "pong":
            for name, fields in PERIODS.items():
                other = recipe.replace(paper_bound=None, **fields)
                row[name] = self.scored(f"atari/{game}-{name}", other)["bound"]
        for split, name in (("", "paper's split"), ("/episodes", "by episode")):
            splits = data.load(f"atari/{game}{split}")
            row[f"independent, {name}"] = independent(splits)
            row[f"xz -9e, {name}"] = xz_nats(splits.test.values)
        self._write(path, row)
        return row

    def figure3(self, game: str, n: int = 4) -> dict:
        """Samples above their nearest training frames."""
        model, recipe = self.trained(f"atari/{game}", RECIPES[f"atari/{game}"])
        splits = folder.load_data(recipe)
        path = self.results / f"fig3-{game}.png"
        found = report.beside_nearest(sampling.sample(model, n, seed=1).x, splits.train, _shape(splits), path)
        return {"png": str(path), **found}

    def figure4(self) -> dict:
        """A frame of Freeway through the layers of the deepest network."""
        model, recipe = self.trained("atari/freeway-3", RECIPES["atari/freeway-3"])
        splits = folder.load_data(recipe)
        path = self.results / "fig4.png"
        code = report.representation(model, splits.test.take(slice(0, 1)).unpack()[0], _shape(splits), path)
        return {"png": str(path), "active_on_top": float(code.sum(axis=1).mean())}

    def figure5(self, n: int = 6) -> dict:
        """Frames of three separately trained networks, from three stochastic layers to one."""
        names = [f"atari/freeway-{k}" for k in (3, 2, 1)]
        bounds = {name: self.scored(name, RECIPES[name])["bound"] for name in names}
        drawn = [sampling.sample(self.trained(name, RECIPES[name])[0], n, seed=1).x for name in names]
        path = self.results / "fig5.png"
        report.by_depth(drawn, _shape(folder.load_data(RECIPES[names[0]])), path)
        return {"png": str(path), "bounds": bounds}

    def _there(self, path: Path) -> dict | None:
        return read_record(path) if path.exists() and not self.again else None

    def _write(self, path: Path, record: dict) -> None:
        with atomic(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n")


def _shape(splits: Splits) -> tuple[int, int]:
    if splits.shape is None:
        raise DarnError(f"{splits.name} has no image shape")
    return splits.shape


COLUMNS = {  # of the table: heading -> key of a game's row
    "paper": "paper",
    "darn": "bound",
    "by episode": "by_episode",
    "local FVSBN": "fvsbn",
    "a Bernoulli a pixel": "independent, paper's split",
    "xz -9e": "xz -9e, paper's split",
}


def rows(results: Path) -> dict[str, dict]:
    """The games' rows that are there."""
    paths = {game: results / "atari" / f"{game}.json" for game in ATARI_BOUNDS}
    return {game: read_record(p) for game, p in paths.items() if p.exists()}


def table(found: dict[str, dict]) -> list[list[str]]:
    """Heading and body: test nats a frame, of every game the paper has."""
    body = []
    for game, paper in ATARI_BOUNDS.items():
        row = {"paper": paper} | found.get(game, {})
        body.append([game, *(f"{row[k]:,.1f}" if k in row else "not yet run" for k in COLUMNS.values())])
    return [["game", *COLUMNS], *body]


def lines(name: str, row: dict):
    """A row for people; bounds, Bernoullis and xz are in nats a frame."""
    yield f"{name}:"
    for key, value in row.items():
        yield f"  {key:28} {value:10.2f}" if isinstance(value, float) else f"  {key:28} {value}"
