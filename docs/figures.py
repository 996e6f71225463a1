"""Pictures of the documentation, from the committed measurements: python docs/figures.py"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from darn.layers import symmetries

HERE = Path(__file__).parent
GREY, TEAL, ORANGE = "#808782", "#118c85", "#ce6c34"  # seen on light paper and on dark
STYLE = {
    "svg.hashsalt": "darn",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def save(figure, name: str) -> None:
    figure.savefig(HERE / "images" / f"{name}.svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def one_unit() -> None:
    """The mean of each estimator for one unit and a cubic f, against the exact derivative."""
    q = np.linspace(0.001, 0.999, 200)
    f, slope = lambda h: h**3, lambda h: 3 * h**2
    exact = q * (1 - q) * (f(1) - f(0))
    darn = 0.5 * q * (1 - q) * (slope(1) + slope(0))
    through = q * (1 - q) * (q * slope(1) + (1 - q) * slope(0))
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    axes.plot(q, exact, color=GREY, lw=2, label="exact: q(1−q)(f(1) − f(0))")
    axes.plot(q, darn, color=TEAL, lw=2, label="the paper's, in the mean")
    axes.plot(q, through, color=ORANGE, lw=2, label="straight-through, in the mean")
    axes.set(xlabel="q, the probability of h = 1", ylabel="derivative by the logit", xlim=(0, 1), ylim=(0, None))
    axes.legend(frameon=False, labelcolor=GREY, loc="lower center", bbox_to_anchor=(0.5, 1))
    save(figure, "one_unit")


def bench() -> None:
    """Bias and variance of the encoder's gradient, as measured."""
    rows = json.loads((HERE.parent / "results/bench/estimators.json").read_text())["rows"]
    rows = [r for r in rows if r["model"] == "two stochastic layers"]
    names = list(dict.fromkeys(r["estimator"] for r in rows))
    figure, (left, right) = plt.subplots(2, 1, figsize=(6.4, 7), sharey=True)
    for shift, weights, colour in ((-0.2, "random", ORANGE), (0.2, "trained", TEAL)):
        found = {r["estimator"]: r["encoder"] for r in rows if r["weights"] == weights}
        y = np.arange(len(names)) + shift
        left.barh(y, [found[n]["relative_bias"] for n in names], 0.36, color=colour, label=f"{weights} weights")
        left.plot([found[n]["floor"] for n in names], y, "|", ms=13, mew=2, color="#404642")
        share = [found[n]["variance"] / found[n]["squared_norm"] for n in names]
        right.barh(y, share, 0.36, color=colour)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlabel("relative bias; the mark is what noise alone would show")
    right.set_xlabel("variance / squared gradient")
    right.set_xscale("log")
    left.legend(frameon=False, labelcolor=GREY, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2)
    save(figure, "estimators")


def one_row() -> None:
    """The way of one row: from a CSV to bits, to nats, to a compressed file."""
    read = [
        ("my.csv", "a line of text"),
        ("data/_text_table", "cells, as they are written"),
        ("data/_schema", "units: 0 and 1"),
        ("data/_rows", "bits packed into bytes"),
    ]
    score = [
        ("batching.map_rows", "many rows, bounded memory"),
        ("inference/likelihood", "h ~ q(h|x), log p(x,h) - log q(h|x)"),
        ("model.Stack", "context of each layer"),
        ("layers/*.log_prob", "log p(y|c) by logits(y, c)"),
        ("nats", "-log p(x), with its interval"),
    ]
    pack = [
        ("codec/_rows", "blocks of rows, several at once"),
        ("codec/_stack", "bits back: pop h, push x, push h"),
        ("layers/*.walk", "the twin's logits, unit by unit"),
        ("codec/_ans", "one number, a stack of bits"),
        ("my.drn", "blocks with checksums"),
    ]
    figure, axes = plt.subplots(figsize=(9.6, 4.6))
    axes.set(xlim=(-0.1, 3.9), ylim=(-4.45, 1.05))
    axes.axis("off")

    def arrow(start, end, colour, style="-"):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "ls": style})

    for column, (title, colour, steps) in enumerate(
        (("score", TEAL, score), ("read", GREY, read), ("compress", ORANGE, pack))
    ):
        axes.text(1.4 * column + 0.5, 0.8, title, color=colour, ha="center", weight="bold")
        for k, (name, what) in enumerate(steps):
            box = {"boxstyle": "round,pad=0.45", "fc": "none", "ec": colour}
            place = {"ha": "center", "va": "center", "fontsize": 9}
            axes.text(1.4 * column + 0.5, -k + 0.1, f"{name}\n{what}", color=GREY, bbox=box, **place)
            if k:
                arrow((1.4 * column + 0.5, -k + 0.8), (1.4 * column + 0.5, -k + 0.4), colour)
    arrow((1.5, -2.8), (1.02, 0.1), TEAL, ":")  # both begin with packed rows
    arrow((2.3, -2.8), (2.78, 0.1), ORANGE, ":")
    save(figure, "one_row")


def orders() -> None:
    """What one pixel of an image knows in each of the eight orders."""
    side, row, column = 7, 2, 4
    figure, axes = plt.subplots(2, 4, figsize=(6.4, 3.4))
    for k, (places, one) in enumerate(zip(symmetries((side, side, 1)), axes.flat)):
        when = np.argsort(places).reshape(side, side)  # the step at which each pixel is drawn
        known = when < when[row, column]
        for (i, j), here in np.ndenumerate(known):
            own = (i, j) == (row, column)
            fill = ORANGE if own else TEAL if here else "none"
            one.add_patch(plt.Rectangle((j, side - 1 - i), 1, 1, fc=fill, ec=GREY, lw=0.6, alpha=1 if own else 0.75))
        first, second = (divmod(int(places[t]), side) for t in (0, 1))
        (y0, x0), (y1, x1) = ((side - 0.5 - i, j + 0.5) for i, j in (first, second))
        reach = {"arrowstyle": "->", "color": "#404642", "lw": 1.4}
        one.annotate("", (x0 + 2.4 * (x1 - x0), y0 + 2.4 * (y1 - y0)), (x0, y0), arrowprops=reach)
        one.set(xlim=(0, side), ylim=(0, side), aspect="equal", title=f"order {k + 1}")
        one.title.set_fontsize(9)
        one.axis("off")
    save(figure, "orders")


def growth() -> None:
    """Processor seconds of training, scoring and sampling as one quantity grows, and those of their products alone."""
    record = json.loads((HERE.parent / "results/bench/cpu-growth.json").read_text())
    base, colours = record["base"], {"an epoch of training": ORANGE, "scoring": TEAL, "sampling": GREY}
    axis_names = {"n_x": "n_x", "n_h": "n_h", "rows": "rows", "samples": "samples of each row, S"}
    figure, axes = plt.subplots(2, 2, figsize=(6.4, 5.6), sharey=True, layout="constrained")
    for (key, name), one in zip(axis_names.items(), axes.flat):
        fixed = {k: v for k, v in base.items() if k != key}
        rows = [r for r in record["rows"] if all(r[k] == v for k, v in fixed.items())]
        for work, colour in colours.items():
            mine = sorted((r for r in rows if r["work"] == work), key=lambda r: r[key])
            if len(mine) > 1:
                at = [r[key] for r in mine]
                one.plot(at, [r["processor_seconds"] for r in mine], "o-", ms=4, color=colour, label=work)
                one.plot(at, [r["seconds_of_products"] for r in mine], ":", color=colour)
        one.set(xscale="log", yscale="log", xlabel=name, xticks=sorted({r[key] for r in rows}))
        one.xaxis.set_major_formatter("{x:,.0f}")
        one.minorticks_off()
    for one in axes[:, 0]:
        one.set_ylabel("processor seconds")
    lines, labels = axes[0, 0].get_legend_handles_labels()
    lines.append(plt.Line2D([], [], ls=":", color=GREY))
    labels.append("its products alone")
    figure.legend(lines, labels, frameon=False, labelcolor=GREY, loc="outside upper center", ncols=2)
    save(figure, "growth")


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        one_unit()
        bench()
        one_row()
        orders()
        growth()
