"""The report of a run: one HTML file that explains what was learned."""

from pathlib import Path

from darn.errors import InputError
from darn.files import atomic
from darn.report import _pictures, _scores
from darn.report._document import Document
from darn.report._fidelity import fidelity_sections, tiles
from darn.report._recipe import About
from darn.report._view import View, lede, n_weights, title_of


def page(
    path: str | Path, out: str | Path | None = None, *, target: str | None = None, progress=None, **options
) -> dict:
    """Writes the report of a run as one HTML file.

    Args:
        path: A run folder, a model file or the name of a pretrained model.
        out: The file to write; by default report.html in the run folder, or the model file's name with .html.
        target: Of a table: a column to predict, learned from synthetic and from real rows.
        progress: A tqdm-like bar that counts scored rows.
        **options: `split`, `limit` (rows scored at most), `seed`; `precision`, or `n_samples` and `repeats`, of the
            importance sampling.

    Returns:
        The headline figures, and the file as "out".
    """
    from darn.report._measure import scored
    from darn.runs.run import load

    run = load(path)
    if target is not None and run.schema is None:
        raise InputError("a target is a column of a table, but this model is over bits: leave it out")
    out = Path(out) if out else default_out(run.path)
    s = scored(run, progress=progress, **options)
    text, found = render(s, target)
    with atomic(out) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return {"out": str(out), **found}


def default_out(path: Path) -> Path:
    """Where a report goes by default: into the run folder, or beside the model file."""
    return path / "report.html" if path.is_dir() else path.with_suffix(".html")


def render(s, target: str | None = None) -> tuple[str, dict]:
    """(the file, its headline figures)."""
    from darn.inference import sampling
    from darn.report import _measure
    from darn.report._table import fidelity_of
    from darn.runs.baselines import independent_nll

    run, view, about = s.run, View(s.run), About(s.run)
    document = Document(title_of(run), "darn report", lede(run))
    train = run.rows(split="train")
    independent = independent_nll(train, s.x) - (s.found.log_density or 0.0)
    drawn = _measure.draws(s)
    _scores.headline(document, s, about, independent)
    _scores.likelihood_section(document, s, about, independent)
    if s.history:
        _scores.learning_section(document, s, about)
    _pictures.samples_section(document, s, view, train, drawn)
    beside = None if run.schema is None else fidelity_of(run, target)
    if beside is not None:
        document.tiles += tiles(beside)
        fidelity_sections(document, beside)
    code = sampling.encode(run.model, s.x, context=s.context, seed=0) if run.model.n_layers else None
    if code is not None:
        _pictures.reconstruction_section(document, s, view, code)
    _pictures.completion_section(document, s, view)
    if code is not None:
        _pictures.code_section(document, s, view, code, drawn)
    _scores.rows_section(document, s, view)
    document.section(
        "recipe",
        "Recipe and environment",
        description=about.description,
        data=about.data_facts(),
        made=about.made_facts(n_weights(run.model)),
        fields=about.field_facts(),
    )
    found = s.found.summary() | {"split": s.split, "independent_nll": independent}
    return document.render(), found if beside is None else found | {"synthetic": beside.to_json()}
