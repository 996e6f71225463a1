"""What an interrupted run says it was doing, checked against what it is to continue with."""

import os
from collections.abc import Sequence
from pathlib import Path

from darn.errors import DarnError, FormatError
from darn.files import read_bytes
from darn.jsonable import FieldError, parse
from darn.runs import search
from darn.runs.fields import fields_of, show_field
from darn.runs.info import MAX_JSON, read_info
from darn.runs.recipe import Recipe


def read_started(recipe: Recipe, out: Path, candidates: Sequence[Recipe]) -> dict:
    """The recipe.json of the run in `out`, if it was started with this recipe and these candidates."""
    saved = out / "recipe.json"
    if not os.path.lexists(saved):
        if out.exists():
            raise DarnError(f"{out} is not a run folder: there is no recipe.json in it to resume")
        raise DarnError(f"there is no run {out} to resume")
    try:
        read = parse(read_bytes(saved, MAX_JSON), "it", MAX_JSON)
        if not isinstance(read, dict) or not {"recipe", "data", "made"} <= read.keys():
            raise FormatError("it is not the recipe of a run")
    except DarnError as e:
        raise DarnError(f"{saved} is damaged ({e}): start the run again in another folder") from e
    try:
        started = read_info(read)
    except DarnError as e:
        raise DarnError(f"{saved}: {e}") from e
    before = {k: read[k] for k in ("recipe", "data", "made", "search") if k in read}
    _check_same(recipe, started.recipe if started.search is None else started.search.default, out)
    if not search.is_same(started.search, candidates):
        raise DarnError(
            f"{out} was started with other candidates to choose from: resume it with the same fields and budget, or "
            "start another run in another folder"
        )
    return before


def _check_same(recipe: Recipe, before: Recipe, out: Path) -> None:
    """Refuses to resume with a changed field, which would be a different run."""
    if before.data.source != recipe.data.source:
        raise DarnError(
            f"{out} was started on {before.data.source}, not on {recipe.data.source}: choose another folder"
        )
    for f in fields_of():
        old, new = (show_field(r.value(f.name)) for r in (before, recipe))
        if old != new and f.name != "checkpoint_every":
            raise FieldError(
                f"{out} was started with {f.name} {old}, not {new}: resume it with the same fields, "
                "or start another run in another folder",
                f.name,
            )
