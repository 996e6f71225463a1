"""Carrying out a row: train, store as float16, score the stored weights on the test rows, write one JSON."""

import dataclasses
import shutil
import time
from pathlib import Path

import jax
import numpy as np

from darn import data
from darn.errors import DarnError
from darn.files import read_record
from darn.inference import likelihood, sampling
from darn.model import Stack
from darn.model_file import save_model
from darn.paper import rbm
from darn.paper.recipes import RECIPES
from darn.paper.results import QUICK_EVERY, QUICK_SAMPLES, lacking, model_of, path_of, write
from darn.paper.rows import MNIST, NOT_AT_HAND, Row
from darn.runs import baselines, provenance
from darn.runs.folder import Run, describe_data, load_data, open_run, scored_rows, train
from darn.runs.recipe import Recipe, override
from darn.training import goal


def recipe_of(row: Row) -> Recipe | None:
    """What a row is trained with; None where there is none (yet)."""
    recipe = RECIPES.get(row.base or row.name)
    if recipe is None:
        return None
    return override(recipe, dict(row.fields)) if row.fields else recipe


def can_run(row: Row) -> str | None:
    """Why a row cannot be run, or None."""
    if row.how == "quoted":
        return "quoted from the paper: not one of our models"
    if row.data in NOT_AT_HAND:
        return "data not at hand"
    if row.how == "recipe" and recipe_of(row) is None:
        return "no recipe yet"
    return None


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How a row is scored: the paper's 100,000 samples, ten times, where there is an accelerator for it."""

    n_samples: int
    repeats: int
    seed: int = 0
    method: str = "auto"

    @staticmethod
    def default(n_samples: int | None = None, repeats: int = 10, method: str = "auto") -> "Protocol":
        if n_samples is None:
            n_samples = 1000 if jax.default_backend() == "cpu" else 100_000
        return Protocol(n_samples, repeats, method=method)


def run_row(
    row: Row, results: Path, runs: Path, protocol: Protocol, *, again: bool = False, progress: bool = True
) -> dict | None:
    """The row's record, written to results/; None if Ctrl-C stopped its training (the next call goes on with it).

    A record that is there is kept unless `again`; keys that it lacks are filled in as far as the stored model tells.
    """
    if why := can_run(row):
        raise DarnError(f"{row.name} cannot be run: {why}")
    path = path_of(results, row)
    if path.exists() and not again:
        record = read_record(path)
        return _complete(row, record, results, path) if lacking(record) else record
    if again and (runs / row.name).exists():
        shutil.rmtree(runs / row.name)
    if row.how == "rbm":
        record = _run_rbm(row, results)
    else:
        if row.how == "mixture":
            found = _train_mixture(row, results)
        else:
            stored = None if again or (runs / row.name).exists() else _stored(row, results)
            found = stored or _train_recipe(row, results, runs, progress)
        if found is None:
            return None
        record = _record(row, *found, results, protocol)
    write(path, record)
    return record


def _train_recipe(row: Row, results: Path, runs: Path, progress: bool) -> tuple[float, dict] | None:
    """(seconds, training notes) of the stored model; None if interrupted."""
    recipe = recipe_of(row)
    assert recipe is not None
    out = runs / row.name
    fit = train(recipe, out, resume=(out / "recipe.json").exists(), progress=progress)
    if fit.interrupted:
        return None
    run = open_run(out)
    save_model(model_of(results, row), run.model, run.info, dtype="float16")
    notes = {
        "valid_bound": fit.bound,
        "best_epoch": fit.epoch,
        "epochs": fit.epochs,
        "last_valid_bound": goal(fit.history[-1]["valid"]) if fit.history else None,
        "curve": _curve(fit.history),
    }
    return fit.seconds, notes


def _stored(row: Row, results: Path) -> tuple[float, dict] | None:
    """The same of a model that lies there since a run that ended before scoring it; None if of another recipe."""
    file, recipe = model_of(results, row), recipe_of(row)
    if not file.exists() or recipe is None:
        return None
    info = open_run(file).info
    training = info.get("training")
    if training is None or Recipe.from_json(info["recipe"]) != recipe:
        return None
    notes = {k: training[k] for k in ("valid_bound", "epochs")} | {"best_epoch": training["epoch"]}
    return training["seconds"], notes | {"made": info["made"], "curve": []}


def _curve(history: list[dict], points: int = 100) -> list[list[float]]:
    """[epoch, training bound, validation bound] at about so many looks."""
    chosen = history[:: max(1, -(-len(history) // points))]
    return [[h["epoch"], round(h["train"]["bound"], 4), round(h["valid"]["bound"], 4)] for h in chosen]


def _train_mixture(row: Row, results: Path) -> tuple[float, dict]:
    recipe = Recipe().replace(source=row.data, n_h=(), visible="mixture", description=f"{row.method}, by EM")
    splits = load_data(recipe)
    x, valid = splits.train.unpack(), splits.valid.unpack()
    began = time.monotonic()
    k, stack = baselines.best_mixture(x, valid, row.components)
    seconds = time.monotonic() - began
    recipe = recipe.replace(n_components=k)
    info = {"recipe": recipe.to_json(), "data": describe_data(splits), "made": _made()}
    save_model(model_of(results, row), stack, info, dtype="float16")
    return seconds, {"n_components": k, "valid_bound": likelihood.exact(stack, valid).nll}


def _made() -> dict:
    return {
        "command": provenance.command(),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "device": provenance.device(),
    }


# ---------------------------------------------------------------- scoring


def n_parameters(model) -> int:
    """Weights that training may change; of a triangle, those below the diagonal."""
    total = 0
    for path, w in jax.tree_util.tree_leaves_with_path(model):
        if np.issubdtype(w.dtype, np.floating):
            names = [getattr(k, "name", None) for k in path]
            total += w.shape[0] * (w.shape[0] - 1) // 2 if names[-2:] == ["W", "W"] else w.size
    return total


def score(model: Stack, x, context, protocol: Protocol) -> likelihood.Likelihood:
    """By the method that suits the model, or the one asked for."""
    method = likelihood.method_for(model) if protocol.method == "auto" else protocol.method
    if method == "exact":
        return likelihood.exact(model, x, context=context)
    S, R = protocol.n_samples, protocol.repeats
    return likelihood.importance(model, x, context=context, n_samples=S, repeats=R, seed=protocol.seed)


def quick(run: Run, method: str = "auto", seed: int = 0) -> dict:
    """The figure that anyone can have again in minutes on a CPU: `darn eval MODEL --quick`.

    By the method of the whole figure: 2^16 codes under a NADE are minutes on a GPU and hours on a CPU.
    """
    x, context = scored_rows(run.rows().take(slice(None, None, QUICK_EVERY)))
    found = score(run.model, x, context, Protocol(QUICK_SAMPLES, 1, seed, method))
    exact = found.method == "exact"
    return {
        "rows": len(x),
        "every": QUICK_EVERY,
        "n_samples": 0 if exact else QUICK_SAMPLES,
        "seed": seed,
        "nll": found.nll,
        "nll_ci95": found.nll_ci95,
    }


def _record(row: Row, seconds: float, notes: dict, results: Path, protocol: Protocol) -> dict:
    """Scores the stored float16 weights: every figure is theirs."""
    run = open_run(model_of(results, row))
    x, context = scored_rows(run.rows())
    began = time.monotonic()
    found = score(run.model, x, context, protocol)
    took = time.monotonic() - began
    return _head(row, run.info["data"]["sha256"]) | {
        **found.summary(),
        "ess": found.summary().get("ess"),
        "quick": quick(run, found.method),
        "parameters": n_parameters(run.model),
        "seconds_train": round(seconds, 2),
        "seconds_eval": round(took, 2),
        "seed": protocol.seed,
        "training": notes,
        "recipe": run.info["recipe"],
        **({"active": _active(run)} if run.recipe.training.sparsity else {}),
        **_made(),
        "precision": provenance.precision(),
        "model": _short(model_of(results, row), results),
    }


def _active(run: Run, n: int = 10_000) -> dict:
    """How many stochastic units of a sparse model are on, layer by layer: in ancestral samples and in codes of x."""
    x, context = scored_rows(run.rows())
    drawn = sampling.sample(run.model, n, context=None if context is None else context[:n], seed=0).h
    code = sampling.encode(run.model, x, context=context).q
    return {
        "ancestral": [float(h.sum(axis=1).mean()) for h in drawn],
        "encoded": [float(q.sum(axis=1).mean()) for q in code],
        "samples": n,
    }


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


def _short(path: Path, results: Path) -> str:
    """As a path from the folder that holds results/."""
    return str(Path(results.name) / path.relative_to(results))


def _complete(row: Row, record: dict, results: Path, path: Path) -> dict:
    """A record of an earlier version, with the keys it lacks computed from the stored model; its figures stay."""
    run = open_run(model_of(results, row))
    new = _head(row, run.info["data"]["sha256"]) | {
        "quick": record.get("quick") or quick(run, record.get("method", "auto")),
        "parameters": n_parameters(run.model),
        "seconds_train": run.info.get("training", {}).get("seconds"),
        "seconds_eval": record.get("seconds"),
        "ess": None,
        "recipe": run.info["recipe"],
    }
    new |= {k: v for k, v in record.items() if k not in ("data", "seconds", "paper_nll", "paper_bound")}
    if missing := lacking(new):
        raise DarnError(f"{path} lacks {missing[0]!r}, which the model does not tell: make the row again with --again")
    write(path, new)
    return new


# ---------------------------------------------------------------- RBM


def _rbm_settings(row: Row) -> rbm.Settings:
    """500 units on MNIST as in the paper; it names none for the small sets."""
    return rbm.Settings() if row.data == MNIST else rbm.Settings(n_h=100, epochs=50, looks=10)


def score_rbm(file: Path, chains: int, temperatures: int, *, every: int = 1, seed: int = 0) -> dict:
    """-log p of the test rows of a stored RBM's data, with the interval that log Z leaves."""
    machine, info = rbm.load(file)
    test = data.load_rows(info["data"]["name"], split="test").take(slice(None, None, every)).unpack()
    z = rbm.log_z(machine, np.asarray(info["mean"]), chains=chains, temperatures=temperatures, seed=seed)
    return {
        "method": f"annealed importance sampling of log Z, {chains} chains, {temperatures} temperatures",
        "rows": len(test),
        "nll": rbm.mean_free_energy(machine, test) + z.value,
        "nll_ci95": (z.high - z.low) / 2,
        "ess": {"mean": z.ess, "min": z.ess},
        "n_samples": chains,
        "log_z": dataclasses.asdict(z),
    }


def quick_rbm(file: Path, seed: int = 0) -> dict:
    """The RBM's quick figure: every 10th row, log Z by a short annealing."""
    found = score_rbm(file, 100, QUICK_SAMPLES, every=QUICK_EVERY, seed=seed)
    return {"every": QUICK_EVERY, "seed": seed} | {k: found[k] for k in ("rows", "n_samples", "nll", "nll_ci95")}


def _run_rbm(row: Row, results: Path) -> dict:
    settings = _rbm_settings(row)
    splits = load_data(Recipe().replace(source=row.data))
    x, valid = splits.train.unpack(), splits.valid.unpack()
    began = time.monotonic()
    machine, how = rbm.fit(x, valid, settings)
    seconds = time.monotonic() - began
    mean = x.mean(axis=0)  # where annealing starts
    file = model_of(results, row)
    info = {
        "settings": dataclasses.asdict(settings),
        "data": describe_data(splits),
        "made": _made(),
        "mean": mean.tolist(),
    }
    rbm.save(file, machine, info, dtype="float16")
    began = time.monotonic()
    found = score_rbm(file, *((100, 1000) if jax.default_backend() == "cpu" else (1000, 20_000)))
    took = time.monotonic() - began
    return _head(row, splits.sha256) | {
        **found,
        "repeats": 1,
        "bound": None,
        "quick": quick_rbm(file),
        "parameters": n_parameters(machine),
        "seconds_train": round(seconds, 2),
        "seconds_eval": round(took, 2),
        "seed": 0,
        "training": how,
        "settings": dataclasses.asdict(settings),
        **_made(),
        "precision": provenance.precision(),
        "model": _short(file, results),
    }
