"""Sections of pictures: samples, reconstructions, completions, the code."""

import numpy as np

from darn.errors import DarnError
from darn.inference.code import code_use
from darn.report._document import Chart, Document
from darn.report._images import Card, Picture, difference, signed
from darn.report._stack import stack_figure
from darn.report._view import View, counted, histogram

ACROSS = 8  # rows shown in several versions side by side
COMPARED = 500  # samples, and rows, whose nearest training row is looked for


def samples_section(d: Document, s, view: View, train, drawn) -> None:
    """Samples beside their nearest training rows."""
    from darn.data import nearest

    x = drawn.x[:COMPARED]
    held = np.round(s.x[:COMPARED]).astype(np.uint8)  # bits, for a distance to compare with
    where, distance = nearest(train, np.concatenate([x, held]))
    near = train.take(where[: view.many]).unpack()
    cards = _beside(s, view, x[: view.many], near, where, distance)
    distances = _distances(d, s, distance[: len(x)], distance[len(x) :])
    d.section("samples", "Samples", view=view, cards=cards, distances=distances, means=_means(d, s, view, drawn))


def _beside(s, view: View, x, near, where, distance) -> list[Card]:
    """A card for each sample and its nearest training row."""
    labels = ["" if s.context is None else view.label(s.context[i % len(s.context)]) for i in range(len(x))]
    if view.head:
        apart = [sum(a != b for a, b in zip(*pair)) for pair in zip(view.cells(x), view.cells(near))]
        said = [f"{k} of {len(view.head)} columns differ" for k in apart]
        captions = [", ".join(filter(None, words)) for words in zip(labels, said)]
        return view.versions([("sample", x, ""), ("nearest", near, "")], labels, captions).cards
    cards = []
    for i, label in enumerate(labels):
        apart = f"{distance[i]:g} apart" if view.image else f"{distance[i]:g} of {view.n} columns apart"
        names = view.on(x[i])
        caption = ", ".join(t for t in (label, apart) if t) + (f" · on: {names}" if names else "")
        both = [
            view.draw(x[i], f"sample {i + 1} {label}".strip(), difference(x[i], near[i], view.shape)),
            view.draw(near[i], f"training row {where[i] + 1}, the nearest to sample {i + 1}, {apart}"),
        ]
        cards.append(Card(both, caption, "two" if view.image else ""))
    return cards


def _distances(d: Document, s, of_samples, of_rows) -> Chart:
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
        f"Distance to the nearest training row: median {medians}; exact copies {copies}. Samples much closer to the "
        f"training rows than the {s.split} rows are would mean copying."
    )
    return d.chart("distance", spec, f"distance to the nearest training row: median {medians}", caption, legend=True)


def _means(d: Document, s, view: View, drawn) -> Chart:
    """Column by column: how often a unit is on in the data and in the samples."""
    data, samples = s.x.mean(axis=0, dtype=np.float64), drawn.x.mean(axis=0, dtype=np.float64)
    keep = np.linspace(0, view.n - 1, min(view.n, 600)).astype(int)
    varied = len(data) > 1 and data.std() > 0 and samples.std() > 0
    agree = f"; correlation {np.corrcoef(data, samples)[0, 1]:.3f}" if varied else ""
    spec = {
        "kind": "scatter",
        "domain": [0, 1],
        "points": np.stack([data, samples], axis=1)[keep],
        "names": [view.name(j) for j in keep],
        "xlabel": f"fraction of {s.split} rows",
        "ylabel": "fraction of samples",
        "xshort": s.split,
        "yshort": "samples",
    }
    caption = f"How often each unit is on, in {s.split} rows (x axis) and in samples (y axis){agree}."
    return d.chart("means", spec, f"fraction of rows with each unit on, data against samples{agree}", caption)


def _some(s) -> tuple[np.ndarray, list[str]]:
    """(places, names) of a few of the scored rows, far apart."""
    pick = np.linspace(0, len(s.x) - 1, min(ACROSS, len(s.x))).astype(int)
    return pick, [str(s.index[i] + 1) for i in pick]


def reconstruction_section(d: Document, s, view: View, code) -> None:
    """Rows encoded and decoded."""
    from darn.inference import sampling

    pick, names = _some(s)
    context = None if s.context is None else s.context[pick]
    again = sampling.sample(s.run.model, len(pick), seed=3, h=tuple(h[pick] for h in code.h), context=context).x
    wrong = np.abs(np.round(code.x) - np.round(s.x)).sum(axis=1)
    lines = [("row", s.x[pick], f"{s.split} row"), ("sampled", again, "a sample given the code of row")]
    captions = None
    if not view.head:  # the most probable bits of a table need not spell values
        lines.insert(1, ("most probable", code.x[pick], "the most probable reconstruction of row"))
        captions = [f"row {n}: {wrong[i]:g} of {view.n} columns differ" for i, n in zip(pick, names)]
    d.section(
        "reconstructions",
        "Reconstructions",
        view=view,
        split=s.split,
        bits=counted(sum(s.run.model.n_h), "bit"),
        wrong=f"{wrong.mean():.1f}",
        found=view.versions(lines, names, captions),
    )


def completion_section(d: Document, s, view: View) -> None:
    """Rows with their second half removed, and what the model puts there; no section for a model that cannot."""
    from darn.inference.completion import complete

    pick, names = _some(s)
    x = np.round(s.x[pick]).astype(np.float32)
    context = None if s.context is None else s.context[pick]
    first = view.shape[0] // 2 * view.shape[1] if view.image else view.half
    holes = x.copy()
    holes[:, first:] = np.nan
    try:
        found = np.asarray(complete(s.run.model, holes, n=3, context=context, seed=0).x)  # (rows, 3, n_x)
    except DarnError:  # a kind of layer that cannot be completed
        return
    lines = [("known", holes, "what is known of row")]
    lines += [(f"completion {k + 1}", found[:, k], f"completion {k + 1} of row") for k in range(found.shape[1])]
    lines.append(("original", x, f"{s.split} row"))
    d.section("completions", "Completions", view=view, found=view.versions(lines, names))


def code_section(d: Document, s, view: View, code, drawn) -> None:
    """The stack, the cost of its code, and what its units do."""
    model, use = s.run.model, code_use(s.h, code.h)
    L, cost, rest = model.n_layers, s.h.mean(axis=0, dtype=np.float64), float(s.x_given_h.mean())
    by_layer = None
    if L > 1:
        spec = {"kind": "bars", "values": cost, "unit": "layer", "short": "L(h)", "ylabel": "L(h), nats"}
        label = "nats by layer: " + ", ".join(f"{v:.2f}" for v in cost)
        by_layer = d.chart("layers", spec, label, "Layer 1 is next to x.")
    ends = [k for k in range(L) if L <= 4 or k in (0, L - 1)]  # of a deep stack the two ends
    d.section(
        "code",
        "The code",
        view=view,
        warning=use.warning,
        bits=counted(sum(model.n_h), "bit"),
        cost=f"{cost.sum():.2f}",
        percent=f"{100 * cost.sum() / (cost.sum() + rest):.0f}",
        rest=f"{rest:.2f}",
        stack=stack_figure(model),
        by_layer=by_layer,
        layers=[_layer(d, s, view, code, drawn, k) for k in ends],
        shared=_layer_by_layer(s, view, drawn) if view.image else None,
    )


def _layer(d: Document, s, view: View, code, drawn, k: int) -> dict:
    """Activity of a layer's units in codes and in samples, and what they stand for."""
    q, prior = code.q[k].mean(axis=0, dtype=np.float64), drawn.h[k].mean(axis=0, dtype=np.float64)
    which = "" if s.run.model.n_layers == 1 else f" of layer {k + 1}"
    constant = f"{int(((q < 0.02) | (q > 0.98)).sum())} of {counted(len(q), 'unit')} hardly ever change"
    spec = {
        "kind": "bars",
        "values": q,
        "beside": prior,
        "unit": "unit",
        "short": "in codes",
        "besideShort": "in samples",
        "top": 1,
        "ylabel": "fraction of rows with the unit on",
    }
    caption = (
        f"Bars: how often each unit is on in the codes of {s.split} rows; orange lines: in samples from the prior. "
        f"Where they agree, the prior fits the codes. {constant}."
    )
    label = f"activity of the units{which}; {constant}"
    return {
        "number": k + 1,
        "which": which,
        "activity": d.chart(f"activity{k + 1}", spec, label, caption, controls=True),
        "responses": _responses(s, view, code, k, which),
    }


def _responses(s, view: View, code, k: int, which: str) -> list[Card]:
    """The rows that go with each unit of a layer, for the units that make the largest difference."""
    from darn.report._measure import responses

    found = responses(code.h[k], s.x)
    strength = np.linalg.norm(found, axis=1)
    order = [j for j in np.argsort(-strength)[: view.many // 2] if strength[j] > 0]
    top = float(np.abs(found[order]).max()) if order else 1.0
    cards = []
    for j in order:
        strongest = np.argsort(-np.abs(found[j]))[:3]
        named = [f"{'+' if found[j][i] > 0 else '−'}{view.name(i)}" for i in strongest]
        caption = f"unit {j + 1}" + ("" if view.image or not view.columns else f" · {', '.join(named)}")
        picture = Picture(signed(found[j], view.shape, top), f"what unit {j + 1}{which} stands for", "d")
        cards.append(Card([picture], caption))
    return cards


def _layer_by_layer(s, view: View, drawn) -> list[tuple[str, list[Picture]]]:
    """Samples that share all layers from one upwards."""
    from darn.report._measure import from_layer

    L, lines = s.run.model.n_layers, []
    for l, rows in zip(range(L, 0, -1), from_layer(s, drawn, ACROSS)):
        name = "shared: h" if L == 1 else f"shared: layer {l}" + (" and above" if l < L else "")
        lines.append((name, [view.draw(v, f"sample {i + 1} with layer {l} shared") for i, v in enumerate(rows)]))
    return lines
