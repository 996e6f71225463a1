"""Ready models by name: the trained ones that come with darn."""

import difflib
import json
import sys
from pathlib import Path

from safetensors import SafetensorError, safe_open

from darn.data import data_dir
from darn.errors import DarnError


def folders() -> list[Path]:
    """Where they may lie: the repository, what was installed with the package, the user's data folder."""
    return [
        Path(__file__).parent.parent.parent / "results" / "models",
        Path(sys.prefix) / "share" / "darn" / "models",
        data_dir() / "models",
    ]


def names() -> dict[str, Path]:
    """Name and file of every ready model that is here."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob("*.safetensors")):
            found.setdefault(path.stem, path)
    return found


def find(name: str) -> Path:
    """The file of a ready model."""
    here = names()
    if name in here:
        return here[name]
    near = difflib.get_close_matches(name, here, n=1)
    if near:
        hint = f"did you mean {near[0]}?"
    elif here:
        hint = "`darn models` lists those that are here"
    else:
        hint = f"no ready model is here either: copy results/models of the repository to {folders()[-1]}"
    raise DarnError(f"there is no model at {name}: give a run folder, a model file or a ready model's name; {hint}")


def describe() -> list[dict]:
    """For each: name, what it models, its figures, where it lies."""
    out = []
    for name, path in names().items():
        try:
            with safe_open(path, framework="np") as f:
                info = json.loads((f.metadata() or {}).get("info", "{}"))
        except (SafetensorError, OSError, ValueError):
            continue
        recipe, data = info.get("recipe", {}), info.get("data", {})
        how = recipe.get("training", {})
        out.append(
            {
                "name": name,
                "data": data.get("name"),
                "columns": data.get("n"),
                "n_h": recipe.get("architecture", {}).get("n_h"),
                "valid_bound": info.get("training", {}).get("valid_bound"),
                "encodings": how.get("n_samples", 1) if how.get("weighted") else 1,  # that the bound is of
                "about": recipe.get("description", ""),
                "path": str(path),
                "bytes": path.stat().st_size,
            }
        )
    return out
