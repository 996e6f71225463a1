"""Sections of numbers: likelihood, learning curves, the cost of rows."""

import numpy as np

from darn.report._document import Cell, Document, Tile
from darn.report._recipe import About, text_of
from darn.report._table import has_texts, read_split
from darn.report._view import LN2, View, histogram
from darn.training import selection_bound


def headline(d: Document, s, about: About, independent: float) -> None:
    """The tiles on top of the page."""
    f, deep = s.found, bool(s.run.model.n_layers)
    how = (
        f"± {f.nll_ci95:.2f} from sampling" if f.method != "exact" else "exact sum over all codes" if deep else "exact"
    )
    d.tiles.append(Tile("−log p, mean over rows", f"{f.nll:.2f}", "nats", how))
    if deep:
        d.tiles.append(Tile("bound", f"{f.bound:.2f}", "nats", f"{f.bound - f.nll:.2f} above −log p"))
    if f.log_density is None:  # a density is no length
        bits = f"{s.run.model.n_x:,} uncompressed"
        d.tiles.append(Tile("ideal code length", f"{f.nll / LN2:.1f}", "bits per row", bits))
    if about.paper_nll is not None and s.split == "test":
        bound = f", bound {about.paper_bound:.2f}" if about.paper_bound else ""
        d.tiles.append(Tile("the paper", f"{about.paper_nll:.2f}", "nats", f"all test rows{bound}"))
    else:
        d.tiles.append(Tile("independent columns", f"{independent:.2f}", "nats", "a Bernoulli for each column"))


def likelihood_section(d: Document, s, about: About, independent: float) -> None:
    """The figures with their intervals, beside the paper's, and how far to trust them."""
    f, deep = s.found, bool(s.run.model.n_layers)
    half = f.rows_ci95 if np.isfinite(f.rows_ci95) else 0.0
    rows = [("this model, −log p", f.nll, "accent"), ("this model, bound", f.bound, "accent")]
    rows = rows if deep else rows[:1]
    if s.split == "test":
        rows += [("paper, −log p", about.paper_nll, "ink"), ("paper, bound", about.paper_bound, "ink")]
    if about.paper_nll is None or s.split != "test":  # beside the paper's figure it would squeeze the others together
        rows.append(("independent columns", independent, "soft"))
    dots = [{"name": name, "value": v, "colour": c} for name, v, c in rows if v is not None]
    dots[0] |= {"lo": f.nll - half, "hi": f.nll + half}
    whole = len(s.index) == s.n_rows
    which = f"all {s.n_rows:,}" if whole else f"{len(s.index):,} of {s.n_rows:,}"
    text = f"Measured on {which} {s.split} rows{'' if whole else ', evenly spaced'}."
    text += f" The mean has a 95% interval of ± {half:.2f} nats over the choice of rows, the bar in the figure."
    if not whole and about.paper_nll is not None and s.split == "test":
        text += " The paper's figure is of all test rows."
    text += f" Independent columns, the baseline that any model should beat, take {independent:.2f} nats."
    if f.log_density is not None:
        text += (
            f" Every figure includes {-f.log_density:.2f} nats for the densities of numbers within their cells; the "
            f"choice of cells and categories takes {f.nll + f.log_density:.2f} nats, which is all that learning curves "
            "show."
        )
    said = "; ".join(f"{row['name']} {row['value']:.2f} nats" for row in dots)
    d.section(
        "likelihood",
        "Likelihood",
        measured=text,
        figure=d.chart("likelihood", {"kind": "dots", "rows": dots}, said, "Nats per row; lower is better."),
        estimate=None if f.method == "exact" else _estimate(d, f),
        deep=deep,
    )


def _estimate(d: Document, f) -> dict:
    """How an importance-sampling estimate converged, and the effective sample size of its rows."""
    edges, (counts,) = histogram(f.ess)
    spec = {
        "kind": "hist",
        "edges": edges,
        "series": [{"name": "rows", "counts": counts, "colour": "accent"}],
        "xlabel": "effective samples" if f.drawn is not None else f"effective samples of {f.n_samples:,}",
    }
    of = f"mean {f.ess.mean():.1f}, least {f.ess.min():.1f}"
    caption = f"Effective sample size of each row: {of}. The estimate of a row near 1 rests on a single code."
    return {
        "at": [[f"{n:,}", f"{v:.3f}"] for n, v in f.at.items()],
        "samples": f"{f.n_samples:,}",
        "repeats": f.repeats,
        "drawn": None if f.drawn is None else f"{f.drawn.min():,} to {f.drawn.max():,}",
        "unsettled": f.unsettled,
        "half": f"{f.nll_ci95:.3f}",
        "ess": d.chart("ess", spec, f"histogram of the effective sample size: {of} of {f.n_samples}", caption),
    }


def learning_section(d: Document, s, about: About) -> None:
    """Training and validation bounds by epoch, and their parts."""
    h = s.history
    x, L = [row["epoch"] for row in h], s.run.model.n_layers
    base = {"kind": "lines", "xlabel": "epoch", "xunit": "epoch", "ylabel": "nats per row", "zoom": len(h) > 6}

    def line(name, values, colour=None):
        return {"name": name, "x": x, "y": list(values), **({"colour": colour} if colour else {})}

    # The model knows its epoch: where the code had to be sparse, it need not be the one with the lowest bound.
    best = next((r for r in h if r["epoch"] == about.epoch), None) or min(h, key=lambda r: selection_bound(r["valid"]))
    kept = f"{selection_bound(best['valid']):.2f} nats at epoch {best['epoch']:,}"
    series = [
        line("validation bound", (r["valid"]["bound"] for r in h), "accent"),
        line("training bound", (r["train"]["bound"] for r in h), "soft"),
    ]
    if about.weighted:
        series.insert(0, line(about.bound_name, (r["valid"]["weighted"] for r in h), "ink"))
    mark = {"x": best["epoch"], "label": f"kept: epoch {best['epoch']:,}"}
    caption = (
        f"The bound over {x[-1]:,} epochs{f' in {about.seconds:,.0f} s of training' if about.seconds else ''}. The "
        f"kept model has the lowest {about.bound_name}"
        f"{' among those as sparse as requested' if about.sparse else ''}: {kept}."
    )
    said = f"training and validation bound over {x[-1]} epochs; the kept model has {kept}"
    charts = [d.chart("bound", base | {"series": series, "mark": mark}, said, caption, controls=True)]
    if L:
        charts.append(_parts(d, base, line, h, L))
    if about.sparse:
        active = [line(f"layer {k + 1}", (r["valid"]["active"][k] for r in h)) for k in range(L)]
        said = "active units by epoch, at the end " + ", ".join(f"{q['y'][-1]:.1f}" for q in active)
        caption = "Active units per row, kept low by a penalty on each."
        charts.append(d.chart("active", base | {"ylabel": "units", "series": active}, said, caption, controls=True))
    d.section("learning", "Learning", "charts", charts=charts)


def _parts(d: Document, base: dict, line, history, L: int):
    """L(x|h) and L(h) on the validation rows, by epoch."""
    if L <= 6:
        names = ["L(h)"] if L == 1 else [f"L(h), layer {k + 1}" for k in range(L)]
        colour = "accent" if L == 1 else None
        code = [line(n, (r["valid"]["h"][k] for r in history), colour) for k, n in enumerate(names)]
    else:
        code = [line("L(h), all layers", (sum(r["valid"]["h"]) for r in history), "accent")]
    pieces = [line("L(x|h)", (r["valid"]["x_given_h"] for r in history), "ink"), *code]
    end = ", ".join(f"{q['name']} {q['y'][-1]:.2f}" for q in pieces)
    caption = (
        "Its parts on the validation rows: L(x|h), the cost of x once its code is known, and L(h), the cost of the "
        f"code after bits-back{', layer by layer' if L > 1 else ''}."
    )
    said = f"parts of the validation bound by epoch, at the end {end} nats"
    return d.chart("parts", base | {"series": pieces}, said, caption, controls=True)


def rows_section(d: Document, s, view: View) -> None:
    """The cost of each row, and of each unit."""
    from darn.report._measure import unit_costs

    f, deep = s.found, bool(s.run.model.n_layers)
    cost = -np.asarray(f.log_p, np.float64)
    gap = np.asarray(f.row_bound, np.float64) - cost
    order = np.argsort(-cost)
    k = min(16 if view.image else 8, len(order))
    shown = [*order[:k], *order[-k:], *(np.argsort(-gap)[:k] if deep else [])]
    shown = list(dict.fromkeys(int(i) for i in shown))
    captions = []
    for i in shown:
        label, names = view.label(None if s.context is None else s.context[i]), view.on(s.x[i])
        words = [f"row {s.index[i] + 1}", label, f"{cost[i]:.1f} nats", f"bound {f.row_bound[i]:.1f}" if deep else ""]
        captions.append(", ".join(filter(None, words)) + (f" · on: {names}" if names else ""))
    rows = [f"{s.index[i] + 1}, {cost[i]:.1f} nats" for i in shown]
    keys = [{"cost": float(cost[i]), "gap": float(gap[i])} for i in shown]
    cards = view.versions([("", s.x[shown], f"{s.split} row")], rows, captions, keys).cards

    def line(i):
        values = [cost[i], cost[i] / LN2]
        values += [f.row_bound[i], s.x_given_h[i], s.h[i].sum()] if deep else []
        return [Cell(str(s.index[i] + 1), float(s.index[i])), *(Cell(f"{v:.2f}", float(v)) for v in values)]

    costs = unit_costs(s.run.model, s.x, s.context)
    d.section(
        "rows",
        "Rows",
        view=view,
        split=s.split,
        deep=deep,
        lengths=_code_lengths(d, f.nll, cost),
        keeps=k,
        cards=cards,
        head=["row", "−log p", "bits"] + (["bound", "L(x|h)", "L(h)"] if deep else []),
        expensive=[line(i) for i in order[:100]],
        blame=_blame(s, costs, order[:20], cost),
        units=_by_unit(d, s, view, costs),
    )


def _blame(s, costs, order, total) -> list | None:
    """The most expensive rows of a table, with the cells that cost most; None where rows are not those of a table."""
    schema = s.run.schema
    if schema is None or costs is None or not has_texts(s.run):
        return None
    table = read_split(s.run, s.split)
    owner = np.repeat(np.arange(len(schema.names)), schema.sizes)
    each = costs @ (owner[:, None] == np.arange(len(schema.names))[None])  # of a column's units
    each[order] -= schema.log_densities(table.names, table.cells[s.index[order]])
    rows = []
    for i in order:
        worst = [j for j in np.argsort(-each[i])[:3] if each[i, j] > 0 or schema.sizes[j]]
        cells = dict(zip(table.names, table.cells[s.index[i]]))
        named = [(text_of(n), text_of(cells[n]) or "(missing)", each[i, j]) for j in worst for n in [schema.names[j]]]
        said = [f"{name} = {cell} ({nats:.1f})" for name, cell, nats in named]
        rows.append(
            [Cell(str(s.index[i] + 1), float(s.index[i])), Cell(f"{total[i]:.2f}", float(total[i])), ", ".join(said)]
        )
    return rows


def _code_lengths(d: Document, mean: float, cost):
    edges, (counts,) = histogram(cost)
    low, mid, high = np.percentile(cost, [5, 50, 95])
    spec = {
        "kind": "hist",
        "edges": edges,
        "series": [{"name": "rows", "counts": counts, "colour": "accent"}],
        "xlabel": "−log p of a row, nats",
        "marks": [{"x": mean, "label": f"mean {mean:.1f}"}],
    }
    caption = (
        f"Half the rows cost less than {mid:.1f} nats ({mid / LN2:.1f} bits), 5% less than {low:.1f} and 5% more than "
        f"{high:.1f}."
    )
    said = f"histogram of -log p by row: median {mid:.1f}, 5% below {low:.1f}, 5% above {high:.1f} nats"
    return d.chart("costs", spec, said, caption)


def _by_unit(d: Document, s, view: View, costs) -> dict | None:
    """The cost of x unit by unit: a map where rows are images, bars where they are not."""
    if costs is None:
        return None
    each = costs.mean(axis=0)
    given = "given the code and the units before it" if s.run.model.n_layers else "given the units before it"
    top = f"{view.name(int(each.argmax()))} costs most, {each.max():.2f} nats"
    if view.image:
        caption = f"Cost of each unit {given}: darker is more, at most {each.max():.2f} nats on average."
        return {
            "picture": view.draw(each / max(each.max(), 1e-9), f"cost of each unit: {each.max():.2f} nats at most"),
            "caption": caption,
        }
    spec = {"kind": "bars", "values": each, "unit": "column", "short": "nats", "ylabel": "nats per row"}
    caption = f"Cost of each column {given}: {top}."
    return {
        "chart": d.chart("columns", spec | {"names": view.columns}, f"nats by column: {top}", caption, controls=True)
    }
