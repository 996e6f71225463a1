"""How a run's rows, layers and numbers are put into words and pictures."""

import numpy as np

from darn.report._html import esc, img, picture

LN2 = float(np.log(2))
SHOWN = 64  # samples beside their neighbours, at most


def counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def title_of(run) -> str:
    return run.path.stem if run.path.is_file() and run.path.stem != "model" else run.path.resolve().name


def lede(run) -> str:
    """What the model is, in a sentence."""
    data, n_h = run.info["data"], run.model.n_h
    rows = data.get("rows")
    on = f"trained on {rows[0]:,} rows of {data.get('name')}" if rows else f"trained on {data.get('name')}"
    if not n_h:
        return f"A {kind_of(run.model.decoder[0].layer)} layer over {counted(run.model.n_x, 'binary unit')}, {on}."
    layers = f"one stochastic layer of {n_h[0]}" if len(n_h) == 1 else f"{len(n_h)} stochastic layers ({units(n_h)})"
    return f"A DARN with {layers} over {counted(run.model.n_x, 'binary unit')}, {on}."


def units(n_h) -> str:
    """Layer sizes in short: 80 x 12, or 200, 100."""
    same = len(set(n_h)) == 1 and len(n_h) > 2
    return f"{n_h[0]} × {len(n_h)}" if same else ", ".join(map(str, n_h))


def kind_of(layer) -> str:
    names = {"LinearAutoregressive": "linear autoregressive", "Mixture": "mixture", "Factorial": "factorial"}
    return names.get(type(layer).__name__, type(layer).__name__)


def n_weights(model) -> int:
    """Trained numbers in a model."""
    import equinox as eqx
    import jax

    return sum(int(np.size(w)) for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


class View:
    """How a row of this run is drawn: as an image, or as a strip of cells, and what its columns are called."""

    def __init__(self, run):
        self.n = run.model.n_x
        self.image = run.shape is not None
        self.shape = run.shape or (1, self.n)
        self.columns = run.columns
        self.classes = run.info["data"].get("classes")
        self.many = SHOWN if self.n <= 1024 else 24

    def draw(self, values, alt: str, **more) -> str:
        return img(picture(values, self.shape), alt, **more)

    def name(self, j: int) -> str:
        """What a column is called."""
        return str(self.columns[j]) if self.columns else f"column {j + 1}"

    def on(self, x, most: int = 12) -> str:
        """The names of the columns that are on, where columns have names and rows are no images."""
        if self.image or not self.columns:
            return ""
        names = [c for c, v in zip(self.columns, x) if v >= 0.5]
        return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

    def label(self, context) -> str:
        """The class that a one-hot context stands for."""
        if not self.classes or context is None or len(context) != len(self.classes):
            return ""
        return str(self.classes[int(np.argmax(context))])

    def card(self, pictures, caption: str, kind: str = "", **data) -> str:
        """Pictures with a line under them; `data` are numbers to sort cards by."""
        mark = "".join(f' data-{k}="{float(v)!r}"' for k, v in data.items())
        inner = f'<div class="pictures">{"".join(pictures)}</div><span>{esc(caption)}</span>'
        return f'<div class="card {kind}"{mark}>{inner}</div>'

    def cards(self, cards, name: str = "", grow: float = 1.0) -> str:
        """Cards in as many columns as the screen has room for; rows that are no images take a line each."""
        cell = grow * (4.4 if self.shape[1] <= 32 else 8.5)
        style = f' style="--cell:{cell:.1f}rem"' if self.image else ""
        mark = f' id="{name}"' if name else ""
        return f'<div class="gallery{"" if self.image else " strips"}"{mark}{style}>{"".join(cards)}</div>'

    def side_by_side(self, lines, names, captions=None) -> str:
        """The same rows in several versions: `lines` holds (what, rows, alt text), `names` the rows' names.

        Images stand in a grid with a version a line; other rows take a card each.
        """
        if self.image:
            grid = "".join(
                f"<span>{esc(what)}</span>" + "".join(self.draw(v, f"{alt} {n}") for v, n in zip(rows, names))
                for what, rows, alt in lines
            )
            return f'<div class="rowset" style="--n:{len(names)}">{grid}</div>'
        captions = captions or [f"row {n}" for n in names]
        return self.cards(
            self.card([self.draw(rows[i], f"{alt} {n}") for _, rows, alt in lines], captions[i])
            for i, n in enumerate(names)
        )


def slider(target: str, value: int, most: int, word: str, more: str = "") -> str:
    """A control for how many cards of a gallery are shown, with room for `more` controls beside it."""
    bounds = f'min="{min(4, most)}" max="{most}" value="{min(value, most)}"'
    inner = f'<label>{esc(word)} <input type="range" data-shows="{target}" {bounds}> <output></output></label>'
    return f'<div class="controls">{inner}{more}</div>'


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
