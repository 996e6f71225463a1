"""Sections of pictures: samples, reconstructions, completions, the code."""

import numpy as np

from darn.errors import DarnError
from darn.report._html import Page, difference, esc, img, signed
from darn.report._stack import stack_figure
from darn.report._view import View, counted, histogram, slider

ACROSS = 8  # rows shown in several versions side by side
COMPARED = 500  # samples, and rows, whose nearest training row is looked for


def samples_section(p: Page, s, view: View, train, drawn) -> None:
    from darn.data import nearest

    x = drawn.x[:COMPARED]
    held = np.round(s.x[:COMPARED]).astype(np.uint8)  # bits, for a distance to compare with
    where, distance = nearest(train, np.concatenate([x, held]))
    near = train.take(where[: view.many]).unpack()
    cards = []
    for i in range(min(view.many, len(x))):
        label = view.label(None if s.context is None else s.context[i % len(s.context)])
        apart = f"{distance[i]:g} apart" if view.image else f"{distance[i]:g} of {view.n} columns apart"
        names = view.on(x[i])
        caption = ", ".join(t for t in (label, apart) if t) + (f" · on: {names}" if names else "")
        both = [
            view.draw(x[i], f"sample {i + 1} {label}".strip(), difference=difference(x[i], near[i], view.shape)),
            view.draw(near[i], f"training row {where[i]}, the nearest to sample {i + 1}, {apart}"),
        ]
        cards.append(view.card(both, caption, "two" if view.image else ""))
    mark = '<button type="button" aria-pressed="false" data-marks="samples-list">mark the differences</button>'
    far = _distances(p, s, distance[: len(x)], distance[len(x) :])
    p.section(
        "samples",
        "Samples",
        "<p>Each sample, drawn exactly from the model, beside the training row nearest to it: a model that copies "
        "would show twins.</p>",
        slider("samples-list", 24 if view.image else 10, len(cards), "samples", mark),
        view.cards(cards, "samples-list", grow=1.65),
        '<p class="note">With differences marked: teal only in the sample, orange only in the training row, grey in '
        "both.</p>",
        f'<div class="pair">{far}{_means(p, s, view, drawn)}</div>',
    )


def _distances(p: Page, s, of_samples, of_rows) -> str:
    """Samples and held-out rows by their distance to the nearest training row."""
    edges, counts = histogram(of_samples, of_rows, integer=True)
    medians = f"{np.median(of_samples):g} for samples, {np.median(of_rows):g} for {s.split} rows"
    copies = f"{100 * np.mean(of_samples == 0):.1f}% and {100 * np.mean(of_rows == 0):.1f}%"
    spec = {
        "kind": "hist",
        "edges": edges,
        "integer": True,
        "xlabel": "units that differ from the nearest training row",
        "series": [
            {"name": "samples", "counts": counts[0], "colour": "accent"},
            {"name": f"{s.split} rows", "counts": counts[1], "colour": "other"},
        ],
    }
    caption = (
        f"Distance to the nearest training row: median {medians}; exact copies {copies}. Samples well to the left of "
        f"the {s.split} rows would mean copying."
    )
    return p.chart("distance", spec, f"distance to the nearest training row: median {medians}", caption, legend=True)


def _means(p: Page, s, view: View, drawn) -> str:
    """Column by column: how often a unit is on in the data and in the samples."""
    mine, theirs = s.x.mean(axis=0, dtype=np.float64), drawn.x.mean(axis=0, dtype=np.float64)
    keep = np.linspace(0, view.n - 1, min(view.n, 600)).astype(int)
    varied = len(mine) > 1 and mine.std() > 0 and theirs.std() > 0
    agree = f"; correlation {np.corrcoef(mine, theirs)[0, 1]:.3f}" if varied else ""
    spec = {
        "kind": "scatter",
        "domain": [0, 1],
        "points": np.stack([mine, theirs], axis=1)[keep],
        "names": [view.name(j) for j in keep],
        "xlabel": f"share of {s.split} rows",
        "ylabel": "share of samples",
        "xshort": s.split,
        "yshort": "samples",
    }
    caption = f"How often each unit is on: {s.split} rows across, samples up. On the line they agree{agree}."
    return p.chart("means", spec, f"share of rows with each unit on, data against samples{agree}", caption)


def _some(s) -> tuple[np.ndarray, list[str]]:
    """(places, names) of a few of the scored rows, far apart."""
    pick = np.linspace(0, len(s.x) - 1, min(ACROSS, len(s.x))).astype(int)
    return pick, [str(s.index[i]) for i in pick]


def reconstruction_section(p: Page, s, view: View, code) -> None:
    from darn.inference import sampling

    pick, names = _some(s)
    context = None if s.context is None else s.context[pick]
    again = sampling.sample(s.run.model, len(pick), seed=3, h=tuple(h[pick] for h in code.h), context=context).x
    wrong = np.abs(np.round(code.x) - np.round(s.x)).sum(axis=1)
    lines = [
        ("row", s.x[pick], f"{s.split} row"),
        ("most probable", code.x[pick], "the most probable reconstruction of row"),
        ("drawn again", again, "a draw from the code of row"),
    ]
    captions = [f"row {n}: {wrong[i]:g} of {view.n} columns differ" for i, n in zip(pick, names)]
    text = (
        f"Rows of the {s.split} split through a code of {counted(sum(s.run.model.n_h), 'bit')} and back: the row, then "
        f"p(x = 1 | h) unit by unit, then a draw from p(x | h). Between a row and its most probable reconstruction "
        f"{wrong.mean():.1f} of {view.n} units differ in the mean."
    )
    p.section("reconstructions", "Reconstructions", f"<p>{esc(text)}</p>", view.side_by_side(lines, names, captions))


def completion_section(p: Page, s, view: View) -> None:
    """Rows with their second half taken away, and what the model puts there; where this darn can complete rows."""
    try:
        from darn.inference.completion import complete  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    pick, names = _some(s)
    x = np.round(s.x[pick]).astype(np.float32)
    context = None if s.context is None else s.context[pick]
    first = view.shape[0] // 2 * view.shape[1] if view.image else view.n // 2
    holes = x.copy()
    holes[:, first:] = np.nan
    try:
        found = np.asarray(complete(s.run.model, holes, n=3, context=context, seed=0).x)  # (rows, 3, n_x)
    except DarnError:  # a kind of layer that cannot be completed
        return
    lines = [("seen", np.where(np.isnan(holes), 0.2, holes), "what is left of row")]
    lines += [(f"completion {k + 1}", found[:, k], f"completion {k + 1} of row") for k in range(found.shape[1])]
    lines.append(("truth", x, f"{s.split} row"))
    where = "The lower half" if view.image else "The second half of the columns"
    text = f"{where} is taken away (grey) and drawn again from the model given the rest, three times; then the truth."
    p.section("completions", "Completions", f"<p>{text}</p>", view.side_by_side(lines, names))


def code_section(p: Page, s, view: View, code, drawn) -> None:
    model = s.run.model
    L, cost = model.n_layers, s.h.mean(axis=0, dtype=np.float64)
    text = (
        f"The encoder turns a row into {counted(sum(model.n_h), 'bit')}. At {cost.sum():.2f} nats the code carries "
        f"{100 * cost.sum() / (cost.sum() + s.x_given_h.mean()):.0f}% of the bound; the rest, {s.x_given_h.mean():.2f} "
        "nats, is said about x once the code is known."
    )
    parts = [f"<p>{esc(text)}</p>", f'<figure class="stack">{stack_figure(s.run)}</figure>']
    if L > 1:
        spec = {"kind": "bars", "values": cost, "unit": "layer", "short": "L(h)", "ylabel": "L(h), nats"}
        label = "nats by layer: " + ", ".join(f"{v:.2f}" for v in cost)
        parts.append("<h3>What each layer costs</h3>" + p.chart("layers", spec, label, "Layer 1 lies next to x."))
    for k in range(L):
        if L <= 4 or k in (0, L - 1):  # of a deep stack the two ends
            parts += [_activity(p, s, code, drawn, k), _responses(s, view, code, k)]
    if view.image:
        parts.append(_layer_by_layer(s, view, drawn))
    p.section("code", "The code", *parts)


def _activity(p: Page, s, code, drawn, k: int) -> str:
    """How often the units of a layer are on, in codes and in samples of the prior."""
    q, prior = code.q[k].mean(axis=0, dtype=np.float64), drawn.h[k].mean(axis=0, dtype=np.float64)
    which = "" if s.run.model.n_layers == 1 else f" of layer {k + 1}"
    still = f"{int(((q < 0.02) | (q > 0.98)).sum())} of {counted(len(q), 'unit')} hardly ever change"
    spec = {
        "kind": "bars",
        "values": q,
        "beside": prior,
        "unit": "unit",
        "short": "in codes",
        "besideShort": "in samples",
        "top": 1,
        "ylabel": "share of rows with the unit on",
    }
    caption = (
        f"Bars: how often each unit is on in the codes of {s.split} rows; orange lines: in samples from the prior. "
        f"Where they agree, the prior has learned the codes. {still}."
    )
    chart = p.chart(f"activity{k + 1}", spec, f"activity of the units{which}; {still}", caption, controls=True)
    return f"<h3>Activity of the units{which}</h3>{chart}"


def _responses(s, view: View, code, k: int) -> str:
    """What goes with each unit of a layer in x, for the units with the strongest say."""
    from darn.report._measure import responses

    found = responses(code.h[k], s.x)
    strength = np.linalg.norm(found, axis=1)
    order = [j for j in np.argsort(-strength)[: view.many // 2] if strength[j] > 0]
    if not order:
        return ""
    top = float(np.abs(found[order]).max())
    which = "" if s.run.model.n_layers == 1 else f" of layer {k + 1}"
    cards = []
    for j in order:
        strongest = np.argsort(-np.abs(found[j]))[:3]
        named = [f"{'+' if found[j][i] > 0 else '−'}{view.name(i)}" for i in strongest]
        caption = f"unit {j + 1}" + ("" if view.image or not view.columns else f" · {', '.join(named)}")
        cards.append(
            view.card([img(signed(found[j], view.shape, top), f"what goes with unit {j + 1}{which}", "d")], caption)
        )
    return (
        f"<h3>What goes with a unit{which}</h3>"
        '<p class="note">Mean of the rows with the unit on less the mean with it off: teal where x is more often on, '
        "orange where less. The most telling units first.</p>"
        + slider(f"units{k + 1}", 16 if view.image else 6, len(cards), "units")
        + view.cards(cards, f"units{k + 1}")
    )


def _layer_by_layer(s, view: View, drawn) -> str:
    """Draws that share all layers from one upwards."""
    from darn.report._measure import from_layer

    L, lines = s.run.model.n_layers, []
    for l, rows in zip(range(L, 0, -1), from_layer(s, drawn, ACROSS)):
        what = "shared: h" if L == 1 else f"shared: layer {l}" + (" and above" if l < L else "")
        lines.append((what, rows, f"draw from one fixed layer {l}, number"))
    return (
        "<h3>Layer by layer</h3>"
        '<p class="note">Draws that share the named layer and every layer above it, with the rest drawn anew: what '
        "stays the same along a line is what those layers decide.</p>"
        + view.side_by_side(lines, [str(i + 1) for i in range(ACROSS)])
    )
