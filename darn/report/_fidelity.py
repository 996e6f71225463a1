"""Sections on synthetic rows: columns and pairs of columns beside the real ones, a classifier, privacy."""

from dataclasses import dataclass
from pathlib import Path

from darn.fidelity import Fidelity, Marginal
from darn.files import atomic
from darn.report._document import Cell, Document, Tile
from darn.report._recipe import Fact, text_of

SHOWN = 60  # columns drawn, at most: those with the largest difference
PAIRS = 15  # pairs named
MATRIX = 30  # columns of the pictures of all pairs, at most
LABEL = 22  # characters of a category beside its bar


@dataclass(frozen=True)
class Bar:
    """One cell of a column: where its two bars are, and what it says."""

    label: str
    place: float
    real: float
    synthetic: float
    said: str


@dataclass(frozen=True)
class Bars:
    """The distribution of a column as a small figure; `upright` for numbers, whose cells are in order."""

    name: str
    upright: bool
    bars: list[Bar]
    label: str
    caption: str
    width: int
    height: int
    ends: tuple[str, str]


def fidelity_page(found: Fidelity, out: str | Path, *, real: str, synthetic: str) -> None:
    """Writes the figures of `darn.fidelity.evaluate` as one HTML file.

    Args:
        found: the figures.
        out: the file to write.
        real: what the real rows are called.
        synthetic: what the synthetic rows are called.
    """
    lede = f"Synthetic rows beside the real rows of {text_of(real)}."
    d = Document(text_of(synthetic), "darn evaluate-synthetic", lede, in_nats=False)
    d.tiles += tiles(found)
    fidelity_sections(d, found)
    with atomic(out) as temporary:
        temporary.write_text(d.render(), encoding="utf-8", errors="backslashreplace")


def tiles(found: Fidelity) -> list[Tile]:
    """The headline figures."""
    out = [Tile("classifier two-sample AUC", f"{found.auc:.3f}", "", "0.5: cannot tell synthetic from real rows")]
    if found.pairwise_tv is not None:
        chance = f"{found.pairwise_chance:.3f} by chance"
        out.append(Tile("total variation, a pair of columns", f"{found.pairwise_tv:.3f}", "", chance))
    if (u := found.utility) is not None:
        note = f"{u.score} of {text_of(u.target)}; {u.real:.3f} trained on real rows"
        out.append(Tile("trained on synthetic rows", f"{u.synthetic:.3f}", "", note))
    if found.privacy.membership_auc is not None:
        note = "0.5: training rows look like held-out ones"
        out.append(Tile("membership inference AUC", f"{found.privacy.membership_auc:.3f}", "", note))
    return out


def fidelity_sections(d: Document, found: Fidelity) -> None:
    """Appends the sections on columns, pairs and privacy."""
    worst = sorted(found.marginals, key=lambda m: -m.tv)[:SHOWN]
    kept = {m.column for m in worst}
    n = {part: f"{k:,} {part.replace('_', '-')}" for part, k in found.rows.items()}
    d.section(
        "marginals",
        "Columns, real and synthetic",
        rows=" and ".join([n["real"], n["synthetic"]]),
        left_out=", ".join(text_of(c) for c in found.left_out),
        figures=[_bars(m) for m in found.marginals if m.column in kept],
        more=len(found.marginals) - len(worst),
        head=["column", "kind", "total variation", "by chance", "unseen values"],
        table=[
            [
                text_of(m.column),
                m.kind,
                Cell(f"{m.tv:.3f}", m.tv),
                Cell(f"{m.chance:.3f}", m.chance),
                Cell(f"{m.unseen:.1%}", m.unseen),
            ]
            for m in sorted(found.marginals, key=lambda m: -m.tv)
        ],
    )
    if found.associations:
        d.section(
            "associations",
            "Pairs of columns",
            matrices=_matrices(found),
            mean=f"{found.pairwise_tv:.3f}",
            chance=f"{found.pairwise_chance:.3f}",
            head=["columns", "V real", "V synthetic", "difference", "total variation"],
            table=[
                [
                    f"{text_of(a.a)} · {text_of(a.b)}",
                    Cell(f"{a.real:.3f}", a.real),
                    Cell(f"{a.synthetic:.3f}", a.synthetic),
                    Cell(f"{round(a.gap, 3) + 0.0:+.3f}", a.gap),
                    Cell(f"{a.tv:.3f}", a.tv),
                ]
                for a in found.associations[:PAIRS]
            ],
        )
    d.section("privacy", "Telling synthetic rows from real ones, and privacy", facts=_facts(found))


def _bars(m: Marginal) -> Bars:
    upright = m.kind == "number"
    top = max(*m.real, *m.synthetic, 1e-9)
    each, gap = (240 / len(m.cells), 78.0) if upright else (22.0, 150.0)
    bars = [
        Bar(
            c if len(c) <= LABEL else c[: LABEL - 1] + "…",
            round(i * each, 2),
            round(gap * p / top, 2),
            round(gap * q / top, 2),
            f"{100 * q:.1f}%",
        )
        for i, (c, p, q) in enumerate(zip(map(text_of, m.cells), m.real, m.synthetic))
    ]
    height = 100 if upright else round(22 * len(bars)) + 2
    shown = [c for c in m.cells if c != "(missing)"] or list(m.cells)
    ends = shown[0].split(" to ")[0], shown[-1].split(" to ")[-1]
    said = f"distribution of {text_of(m.column)}, real and synthetic: total variation {m.tv:.3f}"
    caption = f"total variation {m.tv:.3f}, {m.chance:.3f} by chance"
    return Bars(text_of(m.column), upright, bars, said, caption, 240 if upright else 330, height, ends)


def _matrices(found: Fidelity) -> list[dict]:
    """Cramér's V of every pair as two pictures of squares; none for a table of very many columns."""
    names = [m.column for m in found.marginals]
    if not 3 <= len(names) <= MATRIX:
        return []
    at = {name: i for i, name in enumerate(names)}
    size = round(320 / len(names), 2)
    out = []
    for what in ("real", "synthetic"):
        squares = []
        for a in found.associations:
            i, j, v = at[a.a], at[a.b], getattr(a, what)
            squares += [(round(x * size, 2), round(y * size, 2), round(max(v, 0.02), 3)) for x, y in ((i, j), (j, i))]
        out.append({"what": what, "size": size, "side": round(size * len(names), 2), "squares": squares})
    return out


def _facts(found: Fidelity) -> list[Fact]:
    p, u = found.privacy, found.utility
    other = "held-out rows" if p.held_out else "real rows, to the nearest other one"
    out = [Fact("classifier AUC", f"{found.auc:.3f} (0.5: synthetic rows cannot be told from real ones; 1: always)")]
    if u is not None:
        tested = f"{u.test_rows:,} {'held-out' if u.held_out else 'real'} rows"
        out.append(
            Fact(
                f"{u.score} of {text_of(u.target)}",
                f"{u.synthetic:.3f} trained on synthetic rows, {u.real:.3f} on as many real, {u.baseline:.3f} for "
                f"a constant; tested on {tested}",
            )
        )
    out.append(
        Fact(
            "nearest training row",
            f"median distance {p.synthetic.median:.3f} for synthetic rows, {p.other.median:.3f} for {other}; "
            f"exact copies {p.synthetic.copies:.1%} and {p.other.copies:.1%}",
        )
    )
    out.append(Fact("nearer", f"a synthetic row is nearer {p.closer:.1%} of the time (50%: no copying; 100%: copies)"))
    guessed = f"{p.disclosed:.1%} of the cells of training rows guessed from the nearest synthetic row"
    if p.membership_auc is not None and p.disclosed_held_out is not None:
        said = f"{p.membership_auc:.3f} (0.5: training rows look like held-out ones; 1: they are given away)"
        out.append(Fact("membership inference", said))
        guessed += f", {p.disclosed_held_out:.1%} of held-out rows; the largest difference, {p.disclosed_gap:+.3f}, in "
        guessed += text_of(p.disclosed_column)
    return [*out, Fact("attribute disclosure", guessed)]
