"""How a run's rows, layers and numbers are put into words and pictures."""

from dataclasses import dataclass

import numpy as np

from darn.report._images import Card, Line, Picture, ink
from darn.report._recipe import About, text_of

LN2 = float(np.log(2))
SHOWN = 64  # samples beside their neighbours, at most
COLUMNS = 30  # of a table, at most


def counted(n: int, word: str) -> str:
    """A number and its noun: 1 bit, 2 bits."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def title_of(run) -> str:
    """The name of the model file or run folder."""
    return run.path.stem if run.path.is_file() and run.path.stem != "model" else run.path.resolve().name


def lede(run) -> str:
    """What the model is, in a sentence."""
    about, n_h = About(run), run.model.n_h
    on = f"trained on {about.rows[0]:,} rows of" if about.rows else "trained on"
    over = counted(run.model.n_x, "binary unit")
    if not n_h:
        title = run.model.decoder[0].layer.title
        article = "An" if title[0] in "aeiouAEIOU" else "A"
        return f"{article} {title} layer over {over}, {on} {about.data_name}."
    layers = f"one stochastic layer of {n_h[0]}" if len(n_h) == 1 else f"{len(n_h)} stochastic layers ({units(n_h)})"
    return f"A DARN with {layers} over {over}, {on} {about.data_name}."


def units(n_h) -> str:
    """Layer sizes in short: 80 x 12, or 200, 100."""
    same = len(set(n_h)) == 1 and len(n_h) > 2
    return f"{n_h[0]} × {len(n_h)}" if same else ", ".join(map(str, n_h))


def n_weights(model) -> int:
    """Trained numbers in a model."""
    import equinox as eqx
    import jax

    return sum(int(np.size(w)) for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


@dataclass(frozen=True)
class Versions:
    """The same rows in several versions: a line of pictures for each version, or a card for each row."""

    lines: list[tuple[str, list[Picture]]]
    cards: list[Card]


class View:
    """How a row of this run is drawn: an image, the cells of a table, or a strip of bits; and its columns' names."""

    def __init__(self, run):
        self.n = run.model.n_x
        shape: tuple[int, int] = run.shape or (0, 0)
        self.image = shape[0] * shape[1] == self.n
        self.shape = shape if self.image else (1, self.n)
        columns = run.columns
        self.columns = [text_of(c) for c in columns] if columns and len(columns) == self.n else None
        self.classes = About(run).classes
        self.many = SHOWN if self.n <= 1024 else 24
        starts = [] if run.schema is None else np.cumsum([0, *run.schema.sizes])[:-1].tolist()
        modelled = [] if run.schema is None else [(c, i) for c, i in zip(run.schema.columns, starts) if c.size]
        self.half = modelled[len(modelled) // 2][1] if modelled else self.n // 2  # the first unit of the second half
        self.more = len(modelled[COLUMNS:])  # columns of a table that are not shown
        self._table = modelled[:COLUMNS]

    @property
    def head(self) -> list[str]:
        """The names of a table's columns that are shown; empty if rows are not those of a table."""
        return [text_of(c.name) for c, _ in self._table]

    def draw(self, values, alt: str, difference: str | None = None) -> Picture:
        """Values in [0, 1] as a picture; grey where they are not known."""
        return Picture(ink(np.where(np.isnan(values), 0.2, values), self.shape), alt, difference=difference)

    def cells(self, x) -> list[list[str]]:
        """Rows of bits as the values of a table's columns: of numbers, the cells they are in."""
        x = np.asarray(x, np.float32)
        found = []
        for c, start in self._table:
            bits = x[:, start : start + c.size]
            names = [*map(text_of, c.value_names()), "(missing)"]
            values = c.from_bits(np.nan_to_num(bits).astype(np.uint8)).tolist()
            found.append(["?" if hidden.any() else names[v] for v, hidden in zip(values, np.isnan(bits))])
        return [list(row) for row in zip(*found)]

    def name(self, j: int) -> str:
        """What a column is called."""
        return self.columns[j] if self.columns else f"column {j + 1}"

    def on(self, x, most: int = 12) -> str:
        """The names of the columns that are on, where columns have names and rows are strips of bits."""
        if self.image or self._table or not self.columns:
            return ""
        names = [c for c, v in zip(self.columns, x) if v >= 0.5]
        return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

    def label(self, context) -> str:
        """The class that a one-hot context stands for."""
        if not self.classes or context is None or len(context) != len(self.classes):
            return ""
        return text_of(self.classes[int(np.argmax(context))])

    def versions(self, lines, names, captions=None, keys=None) -> Versions:
        """Several versions of rows: `lines` holds (version, rows, alt text), `names` the rows' names."""
        captions = captions or [f"row {n}" for n in names]
        keys = keys or [{} for _ in names]
        if self._table:
            cells = [(what, self.cells(rows)) for what, rows, _ in lines]
            cards = [
                Card([], caption, keys=keys[i], lines=[_line(what, rows[i], cells[0][1][i]) for what, rows in cells])
                for i, caption in enumerate(captions)
            ]
            return Versions([], cards)
        drawn = [(what, [self.draw(v, f"{alt} {n}") for v, n in zip(rows, names)]) for what, rows, alt in lines]
        cards = [Card([p[i] for _, p in drawn], caption, keys=keys[i]) for i, caption in enumerate(captions)]
        return Versions(drawn, cards)


def _line(name: str, cells: list[str], first: list[str]) -> Line:
    return Line(name, [(cell, cell != other) for cell, other in zip(cells, first)])


def histogram(*values, bins: int = 30, integer: bool = False) -> tuple[np.ndarray, list[np.ndarray]]:
    """(edges, counts of each) over a common range; whole numbers get bins around whole numbers."""
    everything = np.concatenate([np.asarray(v, np.float64) for v in values])
    low, high = everything.min(), everything.max()
    if integer:
        step = max(1, int(np.ceil((high - low + 1) / bins)))
        edges = np.arange(low - 0.5, high + step + 0.5, step)
    else:
        edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    return edges, [np.histogram(v, edges)[0] for v in values]
