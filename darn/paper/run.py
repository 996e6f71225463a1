"""The driver of the reproduction: trains a row, stores the model, scores it on the test rows, writes one JSON."""

import dataclasses
import hashlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import jax

from darn.errors import DarnError
from darn.files import read_record
from darn.inference import likelihood
from darn.model_file import save_model
from darn.paper import rbm, scoring
from darn.paper.recipes import RECIPES
from darn.paper.results import lacking, model_of, path_of, write
from darn.paper.rows import MNIST, NOT_AT_HAND, Row
from darn.paper.scoring import Protocol
from darn.runs import baselines, provenance
from darn.runs.dataset import describe_data, load_data, scored_rows
from darn.runs.folder import train
from darn.runs.recipe import Recipe, override
from darn.runs.run import Run, load
from darn.training import selection_bound


def recipe_of(row: Row) -> Recipe | None:
    """The recipe of a row; None if there is none (yet)."""
    recipe = RECIPES.get(row.base or row.name)
    if recipe is None:
        return None
    fields = dict(row.fields) | ({} if recipe.data.source == row.data else {"source": row.data})
    if not fields:
        return recipe
    return dataclasses.replace(override(recipe, fields), paper_nll=row.nll, paper_bound=row.bound)


def can_run(row: Row) -> str | None:
    """Why a row cannot be run, or None."""
    if row.how == "quoted":
        return "quoted from the paper: not one of our models"
    if row.data in NOT_AT_HAND:
        return "data not at hand"
    if row.how == "recipe" and recipe_of(row) is None:
        return "no recipe yet"
    return None


def made() -> dict:
    """The provenance of a number or a picture."""
    return {
        "command": provenance.command(),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "device": provenance.device(),
    }


@dataclass(frozen=True)
class Driver:
    """Computes rows: records and models under `results`, training in folders under `runs`."""

    results: Path
    runs: Path
    protocol: Protocol
    again: bool = False  # compute rows again that exist already
    tiny: bool = False  # a trial with small networks and few epochs
    progress: bool = True

    def record(self, row: Row) -> dict | None:
        """The row's record, computed and written unless it exists; None if Ctrl-C stopped its training.

        The next call continues an interrupted training. Keys that an older record lacks are filled in from the model.
        """
        if why := can_run(row):
            raise DarnError(f"{row.name} cannot be run: {why}")
        path = path_of(self.results, row)
        if path.exists() and not self.again:
            record = read_record(path)
            return self._completed(row, record) if lacking(record) else record
        if self.again and (self.runs / row.name).exists():
            shutil.rmtree(self.runs / row.name)
        if row.how == "rbm":
            record = _run_rbm(row, self.results)
        else:
            found = self._mixture(row) if row.how == "mixture" else (self._stored(row) or self._trained(row))
            if found is None:
                return None
            record = self._scored(row, *found)
        write(path, record)
        return record

    def model(self, row: Row, *, make: bool = False) -> Run | None:
        """The row's trained model, for figures; None where there is none and `make` does not ask to train it."""
        path = model_of(self.results, row) if row.keep_model else self.runs / row.name
        there = path if row.keep_model else path / "model.safetensors"
        # A folder may hold an interrupted run; resuming a finished one costs nothing.
        if make and not (row.keep_model and there.exists()) and self._trained(row) is None:
            raise KeyboardInterrupt
        return load(path) if there.exists() else None

    def _recipe(self, row: Row) -> Recipe:
        recipe = recipe_of(row)
        if recipe is None:
            raise DarnError(f"{row.name} cannot be run: no recipe yet")
        return recipe.tiny() if self.tiny else recipe

    # ------------------------------------------------------------ models: each gives (seconds, notes on the training)

    def _trained(self, row: Row) -> tuple[float, dict] | None:
        """Trains, or continues training; None if interrupted."""
        out = self.runs / row.name
        fit = train(self._recipe(row), out, resume=(out / "recipe.json").exists(), progress=self.progress)
        if fit.interrupted:
            return None
        if row.keep_model:
            run = load(out)
            save_model(model_of(self.results, row), run.model, run.info, dtype="float16")
        notes = {
            "valid_bound": fit.bound,
            "best_epoch": fit.epoch,
            "epochs": fit.epochs,
            "last_valid_bound": selection_bound(fit.history[-1]["valid"]) if fit.history else None,
            "curve": _curve(fit.history),
        }
        return fit.seconds, notes

    def _stored(self, row: Row) -> tuple[float, dict] | None:
        """The same of a stored model that was never scored; None if there is none, or one of another recipe."""
        file = model_of(self.results, row)
        if self.again or (self.runs / row.name).exists() or not row.keep_model or not file.exists():
            return None
        info = load(file).info
        training = info.get("training")
        recipe, stored = self._recipe(row), Recipe.from_json(info["recipe"])
        # The paper's figures do not affect training.
        stored = dataclasses.replace(stored, paper_nll=recipe.paper_nll, paper_bound=recipe.paper_bound)
        if training is None or stored != recipe:
            return None
        notes = {k: training[k] for k in ("valid_bound", "epochs")} | {"best_epoch": training["epoch"]}
        return training["seconds"], notes | {"made": info["made"], "curve": []}

    def _mixture(self, row: Row) -> tuple[float, dict]:
        recipe = Recipe(description=f"{row.method}, by EM").replace(source=row.data, n_h=(), visible="mixture")
        splits = load_data(recipe)
        x, valid = splits.train.unpack(), splits.valid.unpack()
        began = time.monotonic()
        k, stack = baselines.best_mixture(x, valid, row.components)
        seconds = time.monotonic() - began
        recipe = recipe.replace(n_components=k)
        info = {"recipe": recipe.to_json(), "data": describe_data(splits), "made": made()}
        save_model(model_of(self.results, row), stack, info, dtype="float16")
        return seconds, {"n_components": k, "valid_bound": likelihood.exact(stack, valid).nll}

    # ------------------------------------------------------------ records

    def _scored(self, row: Row, seconds: float, notes: dict) -> dict:
        """Scores the stored weights, so that every figure is of the stored model."""
        run, protocol = self.model(row), self.protocol.of(row)
        assert run is not None
        x, context = scored_rows(run.rows())
        began = time.monotonic()
        found = scoring.score(run.model, x, context, protocol)
        took = time.monotonic() - began
        return _head(row, run.info["data"]["sha256"]) | {
            **found.summary(),
            "ess": found.summary().get("ess"),
            "quick": scoring.quick(run, row, found.method) if row.keep_model else None,
            "parameters": scoring.n_parameters(run.model),
            "seconds_train": round(seconds, 2),
            "seconds_eval": round(took, 2),
            "seed": protocol.seed,
            "training": notes,
            "recipe": run.info["recipe"],
            **({"augmented": True} if run.recipe.data.moved else {}),  # trained on moved images, scored on plain ones
            **({"active": scoring.active_units(run)} if run.recipe.training.sparsity and row.keep_model else {}),
            **({"baselines": scoring.baselines(run.splits())} if row.baselines else {}),
            **made(),
            "precision": provenance.precision(),
            **_file(row, self.results, run),
        }

    def _completed(self, row: Row, record: dict) -> dict:
        """A record of an earlier version, with the keys it lacks computed from the stored model; its figures stay."""
        path = path_of(self.results, row)
        run = self.model(row)
        if run is None:
            raise DarnError(f"{path} lacks {lacking(record)[0]!r}, and there is no model to compute it from")
        quick = record.get("quick")
        if quick is None and row.keep_model:
            quick = scoring.quick(run, row, record.get("method", "auto"))
        new = _head(row, run.info["data"]["sha256"]) | {
            "quick": quick,
            "parameters": scoring.n_parameters(run.model),
            "seconds_train": run.info.get("training", {}).get("seconds"),
            "seconds_eval": record.get("seconds"),
            "ess": None,
            "recipe": run.info["recipe"],
        }
        new |= {k: v for k, v in record.items() if k not in ("data", "seconds", "paper_nll", "paper_bound")}
        if missing := lacking(new):
            raise DarnError(f"{path} lacks {missing[0]!r}, which the model does not hold: compute the row again")
        write(path, new)
        return new


def _curve(history: list[dict], points: int = 100) -> list[list[float]]:
    """[epoch, training bound, validation bound] at about this many epochs."""
    chosen = history[:: max(1, -(-len(history) // points))]
    return [[h["epoch"], round(h["train"]["bound"], 4), round(h["valid"]["bound"], 4)] for h in chosen]


def _head(row: Row, sha256: str | None) -> dict:
    return {
        "row": row.name,
        "table": row.table,
        "label": row.method,
        "paper": row.paper,
        "dataset": row.data,
        "dataset_sha256": sha256,
        "split": "test",
    }


def _file(row: Row, results: Path, run: Run) -> dict:
    """The model's file as a path from the folder that holds results/; of one that is not kept, its checksum."""
    if row.keep_model:
        return {"model": str(Path(results.name) / run.path.relative_to(results))}
    with open(run.path / "model.safetensors", "rb") as f:
        return {"model": None, "model_sha256": hashlib.file_digest(f, "sha256").hexdigest()}


# ---------------------------------------------------------------- RBM


def _rbm_settings(row: Row) -> rbm.Settings:
    """500 units on MNIST as in the paper; it names none for the small sets."""
    return rbm.Settings() if row.data == MNIST else rbm.Settings(n_h=100, epochs=50, looks=10)


def _run_rbm(row: Row, results: Path) -> dict:
    settings = _rbm_settings(row)
    splits = load_data(Recipe().replace(source=row.data))
    x, valid = splits.train.unpack(), splits.valid.unpack()
    began = time.monotonic()
    machine, how = rbm.fit(x, valid, settings)
    seconds = time.monotonic() - began
    file = model_of(results, row)
    info = {
        "settings": dataclasses.asdict(settings),
        "data": describe_data(splits),
        "made": made(),
        "mean": x.mean(axis=0).tolist(),  # where annealing starts
    }
    rbm.save(file, machine, info, dtype="float16")
    began = time.monotonic()
    found = scoring.score_rbm(file, *((100, 1000) if jax.default_backend() == "cpu" else (1000, 20_000)))
    took = time.monotonic() - began
    return _head(row, splits.sha256) | {
        **found,
        "repeats": 1,
        "bound": None,
        "quick": scoring.quick_rbm(file),
        "parameters": scoring.n_parameters(machine),
        "seconds_train": round(seconds, 2),
        "seconds_eval": round(took, 2),
        "seed": 0,
        "training": how,
        "settings": dataclasses.asdict(settings),
        **made(),
        "precision": provenance.precision(),
        "model": str(Path(results.name) / file.relative_to(results)),
    }
