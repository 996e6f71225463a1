"""Several runs on one page: figures side by side, row by row where they scored the same rows."""

from pathlib import Path

import numpy as np

from darn.errors import DarnError
from darn.files import atomic
from darn.report._document import Cell, Document, Tile
from darn.report._recipe import About
from darn.report._view import View, n_weights


def compare(paths, out: str | Path, *, progress=None, **options) -> dict:
    """Writes the comparison of several runs as one HTML file.

    Args:
        paths: Run folders, model files or names of pretrained models; two or more.
        out: The file to write.
        progress: A tqdm-like bar that counts scored rows.
        **options: Those of `page`.

    Returns:
        The figures of each run, the best first, as "runs", and the file as "out".
    """
    from darn.report._measure import scored
    from darn.runs.run import load

    paths = [Path(path) for path in paths]
    if len(set(paths)) < 2:
        raise DarnError("a comparison takes two runs or more")
    runs = [load(path) for path in dict.fromkeys(paths)]
    every = [scored(run, progress=progress, **options) for run in runs]
    text, found = render(every)
    with atomic(out) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return {"out": str(out), "runs": found}


def names_of(runs) -> list[str]:
    """The last part of each path that tells the runs apart."""
    parts = [run.path.with_suffix("").resolve().parts for run in runs]
    for k in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-k:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in runs]


def render(every) -> tuple[str, list[dict]]:
    """(the file, the figures of each run, best first)."""
    names = names_of([s.run for s in every])
    order = np.argsort([s.found.nll for s in every])
    every, names = [every[i] for i in order], [names[i] for i in order]
    about = [About(s.run) for s in every]
    same = len({(a.sha256, a.data_name, s.found.log_p.shape) for a, s in zip(about, every)}) == 1
    d = Document(" · ".join(names), "darn comparison", _lede(every, about[0], same))
    best = every[0]
    d.tiles.append(Tile("lowest −log p", f"{best.found.nll:.2f}", "nats", names[0]))
    least = int(np.argmin([s.found.bound for s in every]))
    d.tiles.append(Tile("lowest bound", f"{every[least].found.bound:.2f}", "nats", names[least]))
    if same:
        gap, half = _paired(every[1], best)
        sure = "significant" if abs(gap) > half else "not significant on these rows"
        d.tiles.append(Tile("lead over the next", f"{gap:.2f} ± {half:.2f}", "nats", f"row by row, 95%: {sure}"))
    _figures(d, every, names, same)
    if any(s.history for s in every):
        _curves(d, every, names)
    _samples(d, every, names)
    fields = [a.fields() for a in about]
    differ = [[k, *(f[k] for f in fields)] for k in fields[0] if len({f[k] for f in fields}) > 1]
    d.section("recipes", "Differences between the recipes", names=names, rows=differ)
    found = [{"run": str(s.run.path), "split": s.split, **s.found.summary()} for s in every]
    return d.render(), found


def _lede(every, about: About, same: bool) -> str:
    if same:
        s = every[0]
        which = f"all {s.n_rows:,}" if len(s.index) == s.n_rows else f"{len(s.index):,} of {s.n_rows:,}"
        return f"{len(every)} runs on {which} {s.split} rows of {about.data_name}, best first."
    return f"{len(every)} runs, best first. They were scored on different data: do not compare their nats."


def _paired(other, best) -> tuple[float, float]:
    """(mean, half-width of its 95% interval) of how much more a row costs under `other`."""
    d = np.asarray(best.found.log_p, np.float64) - np.asarray(other.found.log_p, np.float64)
    noise = 1.96 * d.std(ddof=1) / len(d) ** 0.5 if len(d) > 1 else 0.0
    return float(d.mean()), float(np.hypot(noise, np.hypot(other.found.nll_ci95, best.found.nll_ci95)))


def _figures(d: Document, every, names, same: bool) -> None:
    dots = []
    for i, (s, name) in enumerate(zip(every, names)):
        f, half = s.found, s.found.rows_ci95 if np.isfinite(s.found.rows_ci95) else 0.0
        look = {"lo": f.nll - half, "hi": f.nll + half, "colour": "soft" if i else "accent"}
        dots.append({"name": name, "value": f.nll, **look})
    said = "; ".join(f"{r['name']} {r['value']:.2f} nats" for r in dots)
    caption = "−log p in nats per row; bars: 95% interval over rows. Lower is better."
    head = ["run", "−log p", "bound", "L(x|h)", "L(h)", "units", "weights", "training, s"]
    rows = []
    for i, (s, name) in enumerate(zip(every, names)):
        weights, took, code = n_weights(s.run.model), About(s.run).seconds, float(s.h.sum(axis=1).mean())
        row = [
            name,
            Cell(f"{s.found.nll:.3f}", s.found.nll),
            Cell(f"{s.found.bound:.3f}", s.found.bound),
            Cell(f"{s.x_given_h.mean():.2f}", float(s.x_given_h.mean())),
            Cell(f"{code:.2f}" if s.run.model.n_layers else "–", code),
            Cell(str(sum(s.run.model.n_h)), sum(s.run.model.n_h)),
            Cell(f"{weights:,}", weights),
            Cell(f"{took:,.1f}" if took else "–", took or 0),
        ]
        if same:
            gap, half = _paired(s, every[0]) if i else (0.0, 0.0)
            row.append(Cell(f"{gap:.2f} ± {half:.2f}" if i else "–", gap))
        rows.append(row)
    d.section(
        "figures",
        "Figures",
        figure=d.chart("nll", {"kind": "dots", "rows": dots}, said, caption),
        head=head + (["behind the best"] if same else []),
        rows=rows,
        paired=same,
    )


def _curves(d: Document, every, names) -> None:
    series = []
    for i, (s, name) in enumerate(zip(every, names)):
        if s.history:
            x, y = zip(*((r["epoch"], r["valid"]["bound"]) for r in s.history))
            look = {"hue": (178 + 137.5 * i) % 360} if i else {"colour": "accent"}  # hues a golden angle apart
            series.append({"name": name, "x": x, "y": y, **look})
    spec = {
        "kind": "lines",
        "series": series,
        "xlabel": "epoch",
        "xunit": "epoch",
        "ylabel": "nats per row",
        "zoom": True,
    }
    said = "; ".join(f"{q['name']} ends at {q['y'][-1]:.2f}" for q in series)
    d.section(
        "learning", "Learning", "charts", charts=[d.chart("bound", spec, said, "Validation bound.", controls=True)]
    )


def _samples(d: Document, every, names) -> None:
    from darn.report._measure import draws

    runs = []
    for s, name in zip(every, names):
        view = View(s.run)
        x = draws(s).x[: 10 if view.image else 8]
        numbers = range(1, len(x) + 1)
        found = view.versions([("", x, f"sample of {name}:")], [str(i) for i in numbers], [""] * len(x))
        runs.append({"name": name, "view": view, "found": found})
    d.section("samples", "Samples", "galleries", runs=runs)
