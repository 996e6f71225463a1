"""Sections of numbers: likelihood, learning curves, the cost of rows."""

import numpy as np

from darn.report._html import Page, esc, img, picture, table, tile
from darn.report._view import LN2, View, histogram
from darn.training import goal


def headline(p: Page, s, alone: float) -> None:
    f, r = s.found, s.run.recipe
    sure = "exact sum over the code" if f.method == "exact" and s.run.model.n_layers else "exact"
    if f.method != "exact":
        sure = f"± {f.nll_ci95:.2f} from the estimate"
    p.tiles.append(tile("−log p, mean of rows", f"{f.nll:.2f}", "nats", sure, main=True))
    if s.run.model.n_layers:
        p.tiles.append(tile("bound", f"{f.bound:.2f}", "nats", f"{f.bound - f.nll:.2f} above −log p"))
    p.tiles.append(
        tile("ideal code length", f"{f.nll / LN2:.1f}", "bits a row", f"of {s.run.model.n_x:,} bits as they come")
    )
    if r.paper_nll is not None and s.split == "test":
        bound = f", bound {r.paper_bound:.2f}" if r.paper_bound else ""
        p.tiles.append(tile("the paper", f"{r.paper_nll:.2f}", "nats", f"all test rows{bound}"))
    else:
        p.tiles.append(tile("independent columns", f"{alone:.2f}", "nats", "one Bernoulli a column"))


def likelihood_section(p: Page, s, alone: float) -> None:
    f, r = s.found, s.run.recipe
    among = f.rows_ci95 if np.isfinite(f.rows_ci95) else 0.0
    rows = [("this model, −log p", f.nll, "accent"), ("this model, bound", f.bound, "accent")]
    rows = rows if s.run.model.n_layers else rows[:1]
    if s.split == "test":
        rows += [("paper, −log p", r.paper_nll, "ink"), ("paper, bound", r.paper_bound, "ink")]
    if r.paper_nll is None or s.split != "test":  # beside the paper's figure it would only take the room
        rows.append(("independent columns", alone, "soft"))
    dots = [{"name": name, "value": v, "colour": c} for name, v, c in rows if v is not None]
    dots[0] |= {"lo": f.nll - among, "hi": f.nll + among}
    whole = len(s.index) == s.n_rows
    which = f"all {s.n_rows:,}" if whole else f"{len(s.index):,} of {s.n_rows:,}"
    text = (
        f"Measured on {which} {s.split} rows{'' if whole else ', evenly spaced'}. Other rows of the same kind would "
        f"move the mean by about ± {among:.2f} nats (95%); that is the bar in the figure."
    )
    if not whole and r.paper_nll is not None and s.split == "test":
        text += " The paper's figure is of all test rows."
    text += f" One Bernoulli a column, the least that a model has to beat, takes {alone:.2f} nats."
    said = "; ".join(f"{d['name']} {d['value']:.2f} nats" for d in dots)
    chart = p.chart("likelihood", {"kind": "dots", "rows": dots}, said, "Nats a row; lower is better.")
    p.section("likelihood", "Likelihood", f"<p>{esc(text)}</p>", chart, _trust(p, s))


def _trust(p: Page, s) -> str:
    """How the figure was computed and what speaks for it."""
    f = s.found
    if f.method == "exact":
        how = "the exact sum over every code" if s.run.model.n_layers else "exact: there is no code to sum over"
        return f'<p class="note">−log p is {how}.</p>'
    at = table(["samples a row", "−log p"], [[f"{n:,}", f"{v:.3f}"] for n, v in f.at.items()], numbers=(1,))
    note = (
        f"Importance sampling with {f.n_samples:,} samples a row, {f.repeats} repeats. It overstates −log p in the "
        "mean, the less the more samples: where the last two lines agree, the figure can be trusted."
    )
    edges, (counts,) = histogram(f.ess)
    spec = {
        "kind": "hist",
        "edges": edges,
        "series": [{"name": "rows", "counts": counts, "colour": "accent"}],
        "xlabel": f"effective samples of {f.n_samples:,}",
    }
    of = f"mean {f.ess.mean():.1f}, least {f.ess.min():.1f}"
    caption = f"Effective sample size of each row: {of}. Rows near 1 rest on a single lucky code."
    right = p.chart("ess", spec, f"histogram of the effective sample size: {of} of {f.n_samples}", caption)
    return (
        f'<div class="pair"><div><h3>As samples grow</h3>{at}<p class="note">{note}</p></div>'
        f"<div><h3>Effective sample size</h3>{right}</div></div>"
    )


def learning_section(p: Page, s) -> None:
    h = s.history
    x, L = [row["epoch"] for row in h], s.run.model.n_layers
    base = {"kind": "lines", "xlabel": "epoch", "xunit": "epoch", "ylabel": "nats a row", "zoom": len(h) > 6}

    def line(name, values, colour=None):
        return {"name": name, "x": x, "y": list(values), **({"colour": colour} if colour else {})}

    trained = s.run.info.get("training", {})
    # The model knows its epoch: where it had to be sparse, too, it need not be the one with the least bound.
    best = next((r for r in h if r["epoch"] == trained.get("epoch")), None) or min(h, key=lambda r: goal(r["valid"]))
    took = trained.get("seconds")
    kept = f"{goal(best['valid']):.2f} nats at epoch {best['epoch']:,}"
    series = [
        line("validation bound", (r["valid"]["bound"] for r in h), "accent"),
        line("training bound", (r["train"]["bound"] for r in h), "soft"),
    ]
    if s.run.recipe.training.weighted:
        series.insert(0, line(s.run.recipe.training.bound_name, (r["valid"]["weighted"] for r in h), "ink"))
    mark = {"x": best["epoch"], "label": f"kept: epoch {best['epoch']:,}"}
    caption = (
        f"The bound over {x[-1]:,} epochs{f' in {took:,.0f} s of training' if took else ''}. The kept model is the "
        f"best by the {s.run.recipe.training.bound_name}"
        f"{' of those as sparse as asked for' if s.run.recipe.training.sparsity else ''}: {kept}."
    )
    said = f"training and validation bound over {x[-1]} epochs; the kept model has {kept}"
    parts = [p.chart("bound", base | {"series": series, "mark": mark}, said, caption, controls=True)]
    if L:
        if L <= 6:
            names = ["L(h)"] if L == 1 else [f"L(h), layer {k + 1}" for k in range(L)]
            code = [line(n, (r["valid"]["h"][k] for r in h), "accent" if L == 1 else None) for k, n in enumerate(names)]
        else:
            code = [line("L(h), all layers", (sum(r["valid"]["h"]) for r in h), "accent")]
        pieces = [line("L(x|h)", (r["valid"]["x_given_h"] for r in h), "ink"), *code]
        end = ", ".join(f"{q['name']} {q['y'][-1]:.2f}" for q in pieces)
        caption = (
            "Its parts on the validation rows: L(x|h), what x costs once its code is known, and L(h), what the code "
            f"costs after bits-back{', layer by layer' if L > 1 else ''}."
        )
        said = f"parts of the validation bound by epoch, at the end {end} nats"
        parts.append(p.chart("parts", base | {"series": pieces}, said, caption, controls=True))
    if s.run.recipe.training.sparsity:
        active = [line(f"layer {k + 1}", (r["valid"]["active"][k] for r in h)) for k in range(L)]
        said = "active units by epoch, at the end " + ", ".join(f"{q['y'][-1]:.1f}" for q in active)
        caption = "Active units a row, held down by a price on each."
        parts.append(p.chart("active", base | {"ylabel": "units", "series": active}, said, caption, controls=True))
    p.section("learning", "Learning", *parts)


def rows_section(p: Page, s, view: View) -> None:
    f, deep = s.found, bool(s.run.model.n_layers)
    cost = -np.asarray(f.log_p, np.float64)
    gap = np.asarray(f.row_bound, np.float64) - cost
    order = np.argsort(-cost)
    k = min(16 if view.image else 8, len(order))
    cards = []
    shown = [*order[:k], *order[-k:], *(np.argsort(-gap)[:k] if deep else [])]
    for i in dict.fromkeys(int(i) for i in shown):
        label, names = view.label(None if s.context is None else s.context[i]), view.on(s.x[i])
        words = [f"row {s.index[i]}", label, f"{cost[i]:.1f} nats", f"bound {f.row_bound[i]:.1f}" if deep else ""]
        caption = ", ".join(filter(None, words)) + (f" · on: {names}" if names else "")
        picture_of = view.draw(s.x[i], f"{s.split} row {s.index[i]}, {cost[i]:.1f} nats")
        cards.append(view.card([picture_of], caption, cost=cost[i], gap=gap[i]))
    options = '<option value="cost down">cost most</option><option value="cost up">cost least</option>'
    options += '<option value="gap down">have the widest gap to the bound</option>' if deep else ""
    select = f'<select data-sorts="rows-list" data-keeps="{k}">{options}</select>'
    p.section(
        "rows",
        "Rows",
        f"<p>What each {s.split} row costs under the model. Dear rows are rare ones, or mistakes in the data.</p>",
        _code_lengths(p, f.nll, cost),
        f'<div class="controls"><label>rows that {select}</label></div>',
        view.cards(cards, "rows-list", grow=1.25),
        _dearest(s, cost, order[:100], deep),
        _by_unit(p, s, view),
    )


def _code_lengths(p: Page, mean: float, cost) -> str:
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
        f"Code lengths: half the rows cost less than {mid:.1f} nats ({mid / LN2:.1f} bits), one in twenty less than "
        f"{low:.1f}, one in twenty more than {high:.1f}."
    )
    said = f"histogram of -log p by row: median {mid:.1f}, 5% below {low:.1f}, 5% above {high:.1f} nats"
    return p.chart("costs", spec, said, caption)


def _dearest(s, cost, order, deep: bool) -> str:
    """The costs of the dearest rows as a table."""
    head = ["row", "−log p", "bits"] + (["bound", "L(x|h)", "L(h)"] if deep else [])

    def line(i):
        values = [cost[i], cost[i] / LN2]
        values += [s.found.row_bound[i], s.x_given_h[i], s.h[i].sum()] if deep else []
        return [(str(s.index[i]), s.index[i]), *((f"{v:.2f}", v) for v in values)]

    rows = table(head, [line(i) for i in order], numbers=range(len(head)), sortable=True)
    return f"<details><summary>The {len(order)} dearest rows as a table</summary>{rows}</details>"


def _by_unit(p: Page, s, view: View) -> str:
    """The cost of x unit by unit: a map where rows are images, bars where they are not."""
    from darn.report._measure import unit_costs

    each = unit_costs(s.run.model, s.x, s.context)
    if each is None:
        return ""
    given = "once the code and those before it are known" if s.run.model.n_layers else "once those before it are known"
    dearest = f"{view.name(int(each.argmax()))} most, {each.max():.2f} nats"
    if view.image:
        heat = img(picture(each / max(each.max(), 1e-9), view.shape), f"nats each unit costs: {dearest}")
        note = (
            f"What each unit costs {given}, stronger where dearer; the dearest costs {each.max():.2f} nats in the mean."
        )
        figure = f'<figure class="small">{heat}<figcaption>{note}</figcaption></figure>'
    else:
        spec = {"kind": "bars", "values": each, "unit": "column", "short": "nats", "ylabel": "nats a row"}
        caption = f"What each column costs {given}: {esc(dearest)}."
        figure = p.chart(
            "columns", spec | {"names": view.columns}, f"nats by column: {dearest}", caption, controls=True
        )
    return f"<h3>Where the nats go</h3>{figure}"
