"""The record of a sweep, sweep.json: what was to be trained, how each model went, and which is the best."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darn.errors import DarnError, FormatError
from darn.files import atomic, read_bytes
from darn.jsonable import decode, parse
from darn.runs.dataset import describe_data
from darn.runs.fields import show_field
from darn.runs.info import MAX_JSON, read_info
from darn.runs.provenance import command, commit, device, versions
from darn.runs.recipe import Recipe
from darn.training import Record


def rank(row: dict) -> tuple[float, float]:
    """The criterion for choosing between models, as between the epochs of one model: smaller is better."""
    return (math.inf, math.inf) if row["valid_bound"] is None else (row["excess"], row["valid_bound"])


def plain(grid: dict[str, tuple]) -> dict[str, list]:
    """The grid as JSON has it."""
    return json.loads(json.dumps(grid))


def new_record(recipe: Recipe, grid, members, splits, groups) -> dict:
    """The record of a sweep that has not begun."""
    empty = {
        "valid_bound": None,
        "excess": 0.0,
        "epoch": 0,
        "epochs": 0,
        "seconds": 0.0,
        "diverged": False,
        "done": False,
    }
    return {
        "recipe": recipe.to_json(),
        "grid": plain(grid),
        "data": describe_data(splits),
        "made": {"command": command(), "commit": commit(), "versions": versions(), "device": device()},
        "plan": groups,
        "seconds": 0.0,
        "best": None,
        "models": [
            {"number": i, "fields": {k: show_field(r.value(k)) for k in grid}} | empty for i, r in enumerate(members)
        ],
    }


def how_it_went(record: Record) -> dict[str, Any]:
    """What the record says of a model that was trained."""
    scored = math.isfinite(record.bound)
    return {
        "valid_bound": record.bound if scored else None,
        "excess": record.excess if scored else 0.0,
        "epoch": record.epoch,
        "epochs": record.epochs,
        "seconds": round(record.seconds, 3),
        "diverged": record.diverged,
        "done": True,
    }


def read_record(out: Path) -> dict:
    """The record of the sweep in a folder."""
    path = out / "sweep.json"
    if not path.exists():
        raise DarnError(f"there is no sweep {out} to resume")
    try:
        found = parse(read_bytes(path, MAX_JSON), "it", MAX_JSON)
        read = decode(_Saved, found, "the sweep", strict=False)
        read_info(found)
        if not all(0 <= i < len(read.models) for group in read.plan for i in group.members):
            raise FormatError("its plan names models that it does not have")
        return found
    except DarnError as e:
        raise DarnError(f"{path} is damaged ({e}): start the sweep again in another folder") from e


@dataclass(frozen=True)
class _Model:
    """A model of sweep.json."""

    number: int
    fields: dict[str, str]
    valid_bound: float | None
    excess: float
    epoch: int
    epochs: int
    seconds: float
    diverged: bool
    done: bool


@dataclass(frozen=True)
class _Planned:
    """A group of models in one program."""

    members: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class _Saved:
    """sweep.json, apart from what every run has."""

    recipe: dict[str, Any]
    grid: dict[str, Any]
    data: dict[str, Any]
    made: dict[str, Any]
    plan: tuple[_Planned, ...]
    seconds: float
    models: tuple[_Model, ...]


def write_record(out: Path, record: dict) -> None:
    """Replaces the record in a folder, all or nothing."""
    with atomic(out / "sweep.json") as f:
        f.write_text(json.dumps(record, indent=1) + "\n")


def table(record: dict, limit: int | None = None) -> list[str]:
    """The models as lines of text, best first."""
    names = list(record["grid"])
    rows = sorted(record["models"], key=rank)
    lines = [" ".join([f"{'model':>5}", *(f"{n:>12}" for n in names), " valid bound   best epoch     epochs"])]
    for r in rows[:limit]:
        bound = "diverged" if r["valid_bound"] is None and r["done"] else "-"
        bound = bound if r["valid_bound"] is None else f"{r['valid_bound']:.3f}"
        values = (f"{r['fields'][n]:>12}" for n in names)
        lines.append(" ".join([f"{r['number']:>5}", *values, f"{bound:>12} {r['epoch']:>12} {r['epochs']:>10}"]))
    return lines
