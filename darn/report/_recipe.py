"""What the page says about a run's recipe, data and provenance: the one place that reads them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from darn.config import Architecture, Training
from darn.runs.fields import fields_of, show_field
from darn.runs.folder import Run

# A run folder may come from anybody: what its files say is shown as text, cut at this many characters.
LONGEST = 2000


@dataclass(frozen=True)
class Fact:
    """A name and its value, highlighted where it was `changed` from the default."""

    name: str
    text: str
    changed: bool = False


def text_of(value: Any) -> str:
    """Any value of a file as text."""
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dict(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


class About:
    """A run's recipe and the notes stored with its model, as the page shows them."""

    def __init__(self, run: Run):
        recipe = run.recipe
        self._run = run
        self.description = text_of(recipe.description)
        self.paper_nll, self.paper_bound = _number(recipe.paper_nll), _number(recipe.paper_bound)
        self.weighted, self.sparse = bool(recipe.training.weighted), bool(recipe.training.sparsity)
        self.bound_name = text_of(recipe.training.bound_name)  # of what the kept epoch was chosen by
        notes, training = _dict(run.info.get("data")), _dict(run.info.get("training"))
        self.data_name, self.sha256 = text_of(notes.get("name")), text_of(notes.get("sha256"))
        rows = notes.get("rows")
        self.rows = rows if isinstance(rows, list) and all(_number(n) is not None for n in rows) else []
        self.classes = list(notes["classes"]) if isinstance(notes.get("classes"), list | tuple) else []
        self.binarize = text_of(notes.get("binarize"))
        self.seconds, self.epoch = _number(training.get("seconds")), training.get("epoch")

    def fields(self) -> dict[str, str]:
        """Every field of the recipe as text, the data first."""
        recipe = self._run.recipe
        names = ["source", *(f.name for f in fields_of())]
        return {name: text_of(show_field(recipe.value(name))) for name in names}

    def field_facts(self) -> list[Fact]:
        """The fields of architecture, training and data; those that differ from the defaults marked."""
        recipe = self._run.recipe
        plain = {f.name: f.default for cls in (Architecture, Training) for f in dataclasses.fields(cls)}
        return [
            Fact(f.name, text_of(show_field(v)), f.name in plain and v != plain[f.name])
            for f in fields_of()
            for v in [recipe.value(f.name)]
        ]

    def data_facts(self) -> list[Fact]:
        counts = " / ".join(f"{n:,}" for n in self.rows)
        found = {
            "data": text_of(self._run.recipe.data.source),
            "sha256": self.sha256,
            "rows": f"{counts} (training / validation / test)" if counts else "",
            "binarised by": self.binarize,
            "classes": text_of(", ".join(map(str, self.classes))),
        }
        return [Fact(k, v) for k, v in found.items() if v]

    def made_facts(self, n_weights: int) -> list[Fact]:
        made = _dict(self._run.info.get("made"))
        versions = ", ".join(f"{k} {v}" for k, v in _dict(made.get("versions")).items())
        found = {k: text_of(made.get(k)) for k in ("command", "commit", "device")}
        found |= {"versions": text_of(versions), "weights": f"{n_weights:,}"}
        return [Fact(k, v) for k, v in found.items() if v]
