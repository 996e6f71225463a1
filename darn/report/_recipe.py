"""What the page says about a run's recipe, data and provenance: the one place that reads them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from darn.config import Architecture, Training
from darn.runs.fields import fields_of, show_field
from darn.runs.run import Run
from darn.runs.search import statement

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


class About:
    """A run's recipe and the notes stored with its model, as the page shows them."""

    def __init__(self, run: Run):
        recipe = run.recipe
        self._run = run
        self.description = text_of(recipe.description)
        self.paper_nll, self.paper_bound = recipe.paper_nll, recipe.paper_bound
        self.weighted, self.sparse = bool(recipe.training.weighted), bool(recipe.training.sparsity)
        self.bound_name = text_of(recipe.training.bound_name)  # of what the kept epoch was chosen by
        data, training = run.about.data, run.about.training
        self.data_name, self.sha256, self.binarize = map(text_of, (data.name, data.sha256, data.binarize))
        self.rows, self.classes = data.rows or (), list(data.classes or ())
        self.seconds, self.epoch = training.seconds, training.epoch

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
            "classes": text_of(", ".join(self.classes)),
        }
        return [Fact(k, v) for k, v in found.items() if v]

    def made_facts(self, n_weights: int) -> list[Fact]:
        made = self._run.about.made
        versions = ", ".join(f"{k} {v}" for k, v in made.versions.items())
        found = {"command": text_of(made.command), "commit": text_of(made.commit), "device": text_of(made.device)}
        found |= {"versions": text_of(versions), "weights": f"{n_weights:,}"}
        chosen = self._run.about.search
        if chosen is not None and chosen.chosen is not None:
            found["recipe"] = text_of(statement(dataclasses.asdict(chosen)))
        return [Fact(k, v) for k, v in found.items() if v]
