"""The report of a run: one HTML file that explains what was learned."""

import dataclasses
from pathlib import Path

from darn.files import atomic
from darn.report import _pictures, _scores
from darn.report._html import Page, esc, facts
from darn.report._view import View, lede, n_weights, title_of


def page(path: str | Path, out: str | Path | None = None, *, progress=None, **options) -> dict:
    """Writes the report of the run (or model file) at `path`; returns its headline figures.

    `options`: split, limit (rows scored at most), n_samples and repeats of the importance sampling, seed.
    """
    from darn.report._measure import scored
    from darn.runs.folder import open_run

    run = open_run(path)
    out = Path(out) if out else default_out(run.path)
    s = scored(run, progress=progress, **options)
    text, found = render(s)
    with atomic(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return {"out": str(out), **found}


def default_out(path: Path) -> Path:
    """Where a report goes unasked: into the run folder, or beside the model file."""
    return path / "report.html" if path.is_dir() else path.with_suffix(".html")


def render(s) -> tuple[str, dict]:
    """(the file, its headline figures)."""
    from darn.inference import sampling
    from darn.report import _measure

    run, view = s.run, View(s.run)
    p = Page(title_of(run), "darn report", lede(run))
    train = run.rows(split="train")
    alone = _measure.independent_nll(train, s.x)
    drawn = _measure.draws(s)
    _scores.headline(p, s, alone)
    _scores.likelihood_section(p, s, alone)
    if s.history:
        _scores.learning_section(p, s)
    _pictures.samples_section(p, s, view, train, drawn)
    code = sampling.encode(run.model, s.x, context=s.context, seed=0) if run.model.n_layers else None
    if code is not None:
        _pictures.reconstruction_section(p, s, view, code)
    _pictures.completion_section(p, s, view)
    if code is not None:
        _pictures.code_section(p, s, view, code, drawn)
    _scores.rows_section(p, s, view)
    recipe_section(p, s)
    return p.render(), s.found.summary() | {"split": s.split, "independent_nll": alone}


def recipe_section(p: Page, s) -> None:
    from darn.config import Architecture, Training
    from darn.runs.fields import fields_of, show_field

    run = s.run
    recipe, data, made = run.recipe, run.info["data"], run.info.get("made", {})
    plain = {f.name: f.default for cls in (Architecture, Training) for f in dataclasses.fields(cls)}
    fields = [(f.name, show_field(recipe.value(f.name))) for f in fields_of()]
    changed = [k for k, _ in fields if k in plain and recipe.value(k) != plain[k]]
    versions = ", ".join(f"{k} {v}" for k, v in (made.get("versions") or {}).items())
    rows = data.get("rows")
    source = [
        ("data", recipe.data.source),
        ("sha256", data.get("sha256") or ""),
        ("rows", " / ".join(f"{n:,}" for n in rows) + " (training / validation / test)" if rows else ""),
        ("binarised by", data.get("binarize") or ""),
        ("classes", ", ".join(map(str, data.get("classes") or []))),
    ]
    where = [
        ("command", made.get("command") or ""),
        ("commit", made.get("commit") or ""),
        ("device", made.get("device") or ""),
        ("versions", versions),
        ("weights", f"{n_weights(run.model):,}"),
    ]
    description = f"<p>{esc(recipe.description)}</p>" if recipe.description else ""
    p.section(
        "recipe",
        "Recipe and environment",
        description,
        f'<div class="pair"><div><h3>Data</h3>{facts(source)}</div><div><h3>Made by</h3>{facts(where)}</div></div>',
        "<h3>Fields</h3>",
        '<p class="note">Those that differ from the defaults stand out.</p>',
        f'<div class="pair">{facts(fields[::2], changed)}{facts(fields[1::2], changed)}</div>',
    )
