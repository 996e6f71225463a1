"""Several runs on one page: figures side by side, row by row where they scored the same rows."""

from pathlib import Path

import numpy as np

from darn.errors import DarnError
from darn.files import atomic
from darn.report._html import Page, esc, img, picture, table, tile
from darn.report._view import n_weights


def compare(paths, out: str | Path, *, progress=None, **options) -> dict:
    """Writes the comparison of the runs at `paths`; returns its figures, the best run first.

    `options` are those of `page`.
    """
    from darn.report._measure import scored
    from darn.runs.folder import open_run

    paths = [Path(path) for path in paths]
    if len(set(paths)) < 2:
        raise DarnError("a comparison takes two runs or more: name them one after the other")
    runs = [open_run(path) for path in dict.fromkeys(paths)]
    every = [scored(run, progress=progress, **options) for run in runs]
    text, found = render(every)
    with atomic(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
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
    data = [s.run.info["data"] for s in every]
    same = len({(d.get("sha256"), d.get("name"), s.found.log_p.shape) for d, s in zip(data, every)}) == 1
    p = Page(" · ".join(names), "darn comparison", _lede(every, same))
    best = every[0]
    p.tiles.append(tile("least −log p", f"{best.found.nll:.2f}", "nats", names[0], main=True))
    least = int(np.argmin([s.found.bound for s in every]))
    p.tiles.append(tile("least bound", f"{every[least].found.bound:.2f}", "nats", names[least]))
    if same:
        d, half = _paired(every[1], best)
        sure = "clear of zero" if abs(d) > half else "within the noise of these rows"
        p.tiles.append(tile("ahead of the next by", f"{d:.2f} ± {half:.2f}", "nats", f"row by row, 95%: {sure}"))
    _figures(p, every, names, same)
    if any(s.history for s in every):
        _curves(p, every, names)
    _samples(p, every, names)
    _fields(p, every, names)
    found = [{"run": str(s.run.path), "split": s.split, **s.found.summary()} for s in every]
    return p.render(), found


def _lede(every, same: bool) -> str:
    if same:
        s = every[0]
        which = f"all {s.n_rows:,}" if len(s.index) == s.n_rows else f"{len(s.index):,} of {s.n_rows:,}"
        return f"{len(every)} runs on {which} {s.split} rows of {s.run.info['data'].get('name')}, the best first."
    return f"{len(every)} runs, the best first. They were trained on different data: do not compare their nats."


def _paired(other, best) -> tuple[float, float]:
    """(mean, half-width of its 95% interval) of how much more a row costs under `other`."""
    d = np.asarray(best.found.log_p, np.float64) - np.asarray(other.found.log_p, np.float64)
    noise = 1.96 * d.std(ddof=1) / len(d) ** 0.5 if len(d) > 1 else 0.0
    return float(d.mean()), float(np.hypot(noise, np.hypot(other.found.nll_ci95, best.found.nll_ci95)))


def _figures(p: Page, every, names, same: bool) -> None:
    rows = []
    for i, (s, name) in enumerate(zip(every, names)):
        f, wide = s.found, s.found.rows_ci95 if np.isfinite(s.found.rows_ci95) else 0.0
        rows.append(
            {"name": name, "value": f.nll, "lo": f.nll - wide, "hi": f.nll + wide, "colour": "soft" if i else "accent"}
        )
    said = "; ".join(f"{r['name']} {r['value']:.2f} nats" for r in rows)
    chart = p.chart(
        "nll", {"kind": "dots", "rows": rows}, said, "−log p in nats a row; bars: 95% over rows. Lower is better."
    )
    head = ["run", "−log p", "bound", "L(x|h)", "L(h)", "units", "weights", "training, s"] + (
        ["behind the best"] if same else []
    )
    lines = []
    for i, (s, name) in enumerate(zip(every, names)):
        deep = bool(s.run.model.n_layers)
        weights = n_weights(s.run.model)
        took = s.run.info.get("training", {}).get("seconds")
        code = float(s.h.sum(axis=1).mean())
        line = [
            name,
            (f"{s.found.nll:.3f}", s.found.nll),
            (f"{s.found.bound:.3f}", s.found.bound),
            (f"{s.x_given_h.mean():.2f}", s.x_given_h.mean()),
            (f"{code:.2f}" if deep else "–", code),
            (str(sum(s.run.model.n_h)), sum(s.run.model.n_h)),
            (f"{weights:,}", weights),
            (f"{took:,.1f}" if took else "–", took or 0),
        ]
        if same:
            d, half = _paired(s, every[0]) if i else (0.0, 0.0)
            line.append((f"{d:.2f} ± {half:.2f}" if i else "–", d))
        lines.append(line)
    text = "Differences are taken row by row, which is far more precise than comparing two means." if same else ""
    p.section(
        "figures",
        "Figures",
        chart,
        table(head, lines, numbers=range(1, len(head)), sortable=True),
        f'<p class="note">{text}</p>',
    )


def _curves(p: Page, every, names) -> None:
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
        "ylabel": "nats a row",
        "zoom": True,
    }
    said = "; ".join(f"{q['name']} ends at {q['y'][-1]:.2f}" for q in series)
    p.section("learning", "Learning", p.chart("bound", spec, said, "Validation bound.", controls=True))


def _samples(p: Page, every, names) -> None:
    from darn.report._measure import draws

    parts = []
    for s, name in zip(every, names):
        x = draws(s).x
        shape = s.run.shape or (1, s.run.model.n_x)
        n = 10 if s.run.shape else 8
        pictures = [img(picture(x[i], shape), f"sample {i + 1} of {name}") for i in range(n)]
        if s.run.shape:
            parts.append(f'<div class="rowset" style="--n:{n}"><span>{esc(name)}</span>{"".join(pictures)}</div>')
        else:
            strips = "".join(f'<div class="card">{q}</div>' for q in pictures)
            parts.append(f'<h3>{esc(name)}</h3><div class="gallery strips" style="gap:3px">{strips}</div>')
    p.section("samples", "Samples", *parts)


def _fields(p: Page, every, names) -> None:
    from darn.runs.fields import fields_of, show_field

    keys = ["source", *(f.name for f in fields_of())]
    values = {k: [show_field(s.run.recipe.value(k)) for s in every] for k in keys}
    apart = {k: v for k, v in values.items() if len(set(v)) > 1}
    if apart:
        inner = table(["field", *names], [[k, *v] for k, v in apart.items()])
    else:
        inner = "<p>All fields of the recipes are the same.</p>"
    p.section("recipes", "What differs in the recipes", inner)
