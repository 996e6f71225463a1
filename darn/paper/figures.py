"""Figures 2 to 5: pictures of trained models, each made of panels; and training curves."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from darn.data import nearest, sheet, square_shape
from darn.files import atomic, read_record
from darn.paper.recipes_atari import ATARI_BOUNDS
from darn.paper.results import ROWS, write
from darn.paper.rows import Row
from darn.paper.run import Driver, made
from darn.runs.run import Run


@dataclass(frozen=True)
class Panel:
    """One picture, results/<figure>/<name>.png, drawn from the models of some rows."""

    name: str
    rows: tuple[str, ...]
    draw: Callable[[list[Run], Path], dict]  # returns facts about the picture
    caption: str


def draw(
    figure: str, driver: Driver, *, make: bool = False, only: Container[str] | None = None
) -> tuple[dict, list[str]]:
    """Draws the panels whose models are there, all of them if `make` asks to train what is missing.

    Args:
        figure: its name.
        driver: where models are and are trained.
        make: train missing models.
        only: names of rows; panels that show none of them are left as they are.

    Returns:
        The facts by panel, and what to print about them. With `make` the facts are stored as figure.json.
    """
    facts, lines = {}, []
    for panel in PANELS[figure]:
        if only is not None and not any(name in only for name in panel.rows):
            continue
        runs = [driver.model(row, make=make) for row in rows_of(figure, panel)]
        missing = [name for name, run in zip(panel.rows, runs) if run is None]
        if missing:
            lines.append(f"{panel.name}: there is no trained model of {', '.join(missing)} here")
            continue
        path = driver.results / figure / f"{panel.name}.png"
        found = panel.draw([run for run in runs if run is not None], path)
        facts[panel.name] = {"png": str(Path(driver.results.name, figure, path.name)), **found}
        more = "; ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in found.items())
        lines.append(f"{path}: {panel.caption}" + (f"; {more}" if more else ""))
    if make and facts:
        path = driver.results / figure / "figure.json"
        before = read_record(path) if path.exists() else {}
        write(path, before | {name: found | made() for name, found in facts.items()})
    return facts, lines


def rows_of(figure: str, panel: Panel | None = None) -> list[Row]:
    """The rows whose models a figure, or one of its panels, shows."""
    names = [name for p in (PANELS[figure] if panel is None else [panel]) for name in p.rows]
    by_name = {row.name: row for row in ROWS}
    return [by_name[name] for name in dict.fromkeys(names)]


def _short(value) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def compose(lines: Sequence[Sequence[np.ndarray]], path: str | Path, *, scale: int = 1) -> None:
    """Pictures (H, W) of values in [0,1], line by line from the left, each line centred, as one PNG."""
    from PIL import Image

    gap = 6
    heights = [max(p.shape[0] for p in line) for line in lines]
    widths = [sum(p.shape[1] + gap for p in line) + gap for line in lines]
    page = np.full((sum(heights) + gap * (len(lines) + 1), max(widths)), 64, np.uint8)
    top = gap
    for line, height, width in zip(lines, heights, widths):
        left = gap + (page.shape[1] - width) // 2
        for p in line:
            page[top : top + p.shape[0], left : left + p.shape[1]] = np.round(255 * np.asarray(p, np.float32))
            left += p.shape[1] + gap
        top += height + gap
    size = (page.shape[1] * scale, page.shape[0] * scale)
    with atomic(path) as temporary:
        Image.fromarray(page).resize(size, Image.Resampling.NEAREST).save(temporary, format="PNG")


def _shape(run: Run) -> tuple[int, int]:
    return run.shape or square_shape(run.model.n_x)


# ---------------------------------------------------------------- Figure 2


def samples_beside_nearest(runs: list[Run], path: Path, *, n: int = 50, seed: int = 0) -> dict:
    """Left panel: pairs of a sample and its nearest training row, side by side."""
    from darn.inference.sampling import sample

    (run,) = runs
    splits = run.splits()
    x = sample(run.model, n, seed=seed).x
    number, distance = nearest(splits.train, x)
    pairs = np.stack([x, splits.train.take(number).unpack()], axis=1).reshape(2 * n, -1)
    sheet(pairs, _shape(run), path, columns=10)
    # how near rows of the data are to each other, to compare with ("not simple memorisation")
    own = nearest(splits.train, splits.valid.unpack()[:: max(1, len(splits.valid) // n)][:n])[1]
    return {
        "samples": n,
        "seed": seed,
        "mean_distance": float(distance.mean()),
        "least_distance": int(distance.min()),
        "copies": int((distance == 0).sum()),
        "mean_distance_of_validation_rows": float(own.mean()),
    }


def sample_probabilities(runs: list[Run], path: Path, *, n: int = 50, seed: int = 0) -> dict:
    """Right panel: p(x = 1 | h) of ancestral codes, for a model of intensities."""
    import equinox as eqx
    import jax

    from darn.inference.sampling import sample

    (run,) = runs
    h = sample(run.model, n, seed=seed).h

    @eqx.filter_jit
    def means(model, h):
        return jax.vmap(lambda *h: model.decoder[0].layer.most_probable(model.above(0, h))[1])(*h)

    p = np.asarray(means(run.model, tuple(np.asarray(y, np.float32) for y in h)))
    sheet(p, _shape(run), path)
    return {}


# ---------------------------------------------------------------- Figures 3 to 5


def above_nearest(runs: list[Run], path: Path, *, n: int = 4, seed: int = 1) -> dict:
    """Figure 3: samples above the training frames nearest to them."""
    from darn.inference.sampling import sample

    (run,) = runs
    train, x, shape = run.splits().train, sample(run.model, n, seed=seed).x, _shape(run)
    rows, distance = nearest(train, x)
    near = train.take(rows).unpack()
    compose([[v.reshape(shape) for v in x], [v.reshape(shape) for v in near]], path)
    return {"rows": rows.tolist(), "distance_bits": distance.tolist()}


def _enlarged(picture: np.ndarray, times: int) -> np.ndarray:
    return np.kron(picture, np.ones((times, times), np.float32))


def representation(runs: list[Run], path: Path, *, n: int = 25, seed: int = 0) -> dict:
    """Figure 4: the first test frame at the bottom, above it the code of each hidden layer, layer by layer.

    The channels of a local layer are side by side; at the top are n encodings of the fully connected layer, one per
    line.
    """
    from darn.inference.sampling import encode

    (run,) = runs
    x = run.rows().take(slice(0, 1)).unpack()
    code = encode(run.model, np.repeat(x, n, axis=0), seed=seed)
    lines = [[x[0].reshape(_shape(run))]]
    for part, h in zip(run.model.decoder[1:], code.h):
        grid = getattr(getattr(part.layer, "W", None), "grid", None)
        if grid is None:
            lines.append([_enlarged(h.astype(np.float32), 4)])
        else:
            lines.append([_enlarged(h[0].reshape(grid)[..., f], 3) for f in range(grid[2])])
    compose(lines[::-1], path)
    return {"active_on_top": float(code.h[-1].sum(axis=1).mean())}


def by_depth(runs: list[Run], path: Path, *, n: int = 6, seed: int = 1) -> dict:
    """Figure 5: samples of separately trained networks, one network per line."""
    from darn.inference.sampling import sample

    shape = _shape(runs[0])
    compose([[v.reshape(shape) for v in sample(run.model, n, seed=seed).x] for run in runs], path)
    return {}


PANELS: dict[str, tuple[Panel, ...]] = {
    "fig2": (
        Panel("samples", ("mnist-500",), samples_beside_nearest, "samples of mnist-500, each left of its nearest row"),
        Panel("intensity", ("mnist-intensity",), sample_probabilities, "p(x = 1 | h) of codes from mnist-intensity"),
        Panel("fdarn", ("mnist-fdarn",), sample_probabilities, "p(x = 1 | h) of codes from mnist-fdarn"),
    ),
    "fig3": tuple(
        Panel(name, (name,), above_nearest, f"samples of {name} above their nearest training frames")
        for game in ATARI_BOUNDS
        for name in (game, f"{game}-frontier")
    ),
    "fig4": (
        Panel("freeway", ("freeway-3",), representation, "a frame of Freeway and the layers that it is coded in"),
    ),
    "fig5": (
        Panel("freeway", ("freeway-3", "freeway-2", "freeway-1"), by_depth, "samples of Freeway, three layers to one"),
    ),
}


# ---------------------------------------------------------------- training curves


def curves(found: dict[str, dict], path: Path) -> int:
    """Draws training and validation bounds by epoch, a panel for each record that has them; returns how many."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {k: r["training"]["curve"] for k, r in found.items() if r.get("training", {}).get("curve")}
    if not rows:
        return 0
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for panel in panels.flat[len(rows) :]:
        panel.axis("off")
    for panel, (name, curve) in zip(panels.flat, rows.items()):
        epoch, train, valid = np.asarray(curve).T
        panel.plot(epoch, train, label="training")
        panel.plot(epoch, valid, label="validation")
        low = min(train.min(), valid.min())
        panel.set_ylim(low - 0.05 * low, np.median(valid) + 0.2 * low)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("epoch")
        panel.set_ylabel("bound, nats")
        panel.legend(fontsize=7)
    figure.tight_layout()
    with atomic(path) as f:
        figure.savefig(f, dpi=120)
    plt.close(figure)
    return len(rows)
