"""The stack, drawn: layers from the top down to x, with the nets between them."""

from darn.report._html import esc
from darn.report._view import kind_of


def net_of(conditional) -> str:
    """The deterministic layers of a conditional in short: 500 tanh."""
    if conditional.net is None:
        return ""
    out, maps = [], getattr(conditional.net, "maps", (conditional.net,))
    for f in maps:
        b = getattr(f, "b", None)
        if b is not None:
            out.append(f"{len(b)}")
        elif not hasattr(f, "W"):
            out.append(type(f).__name__.lower())
    return " ".join(out)


def stack_figure(run) -> str:
    """An SVG of the layers from the top down to x: encoder up on the left, decoder down on the right."""
    model = run.model
    L, sizes = model.n_layers, (model.n_x, *model.n_h)
    shown = list(range(L, -1, -1)) if L <= 5 else [L, L - 1, None, 1, 0]
    width, high, gap, parts, y = 400, 44, 62, [], 4

    def text(x, y, words, anchor="start", quiet=True):
        mark = ' class="quiet"' if quiet else ""
        parts.append(f'<text{mark} x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>')

    for i, l in enumerate(shown):
        if l is None:
            text(width / 2, y + 4, f"⋮ {L - 3} layers more", "middle")
            y += 30
            continue
        index = "" if L == 1 else f'<tspan dy="-5" font-size="9">{l}</tspan><tspan dy="5">&#8203;</tspan>'
        parts.append(f'<rect x="1" y="{y}" width="{width - 2}" height="{high}" rx="6"/>')
        text(18, y + 27, f"h{index}" if l else "x", quiet=False)
        text(52, y + 27, f"{sizes[l]:,} units", quiet=False)
        text(width - 18, y + 27, esc(kind_of(model.decoder[l].layer)), "end")
        y += high
        if l and shown[i + 1] is not None:
            a, b, right = y + 5, y + gap - 5, width - 60
            parts.append(f'<path d="M60 {b}V{a + 6}"/><path class="head" d="M55 {a + 8}h10l-5 -8z"/>')
            parts.append(f'<path d="M{right} {a}V{b - 6}"/><path class="head" d="M{right - 5} {b - 8}h10l-5 8z"/>')
            text(72, y + gap / 2 + 4, f"q &#160;{esc(net_of(model.encoder[l - 1]))}")
            text(right - 12, y + gap / 2 + 4, f"p &#160;{esc(net_of(model.decoder[l - 1]))}", "end")
            y += gap
        elif l:
            y += 14
    words = f"stack of {L} stochastic layers over {model.n_x} visible units: encoder q upwards, decoder p downwards"
    return f'<svg viewBox="0 0 {width} {y + 4}" role="img" aria-label="{esc(words)}">{"".join(parts)}</svg>'
