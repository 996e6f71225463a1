"""The stack as a figure: where the boxes of its layers and the arrows between them stand."""

from typing import Any

from darn.report._view import counted

WIDTH, BOX, GAP = 400, 44, 62  # of the figure, of a layer's box, between two boxes


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


def stack_figure(model) -> dict[str, Any]:
    """Boxes and arrows from the top layer down to x; of a deep stack the two ends."""
    L, sizes = model.n_layers, (model.n_x, *model.n_h)
    shown = list(range(L, -1, -1)) if L <= 5 else [L, L - 1, None, 1, 0]
    boxes, arrows, omitted, y = [], [], None, 4
    for i, l in enumerate(shown):
        if l is None:
            omitted = {"y": y + 4, "layers": L - 3}
            y += 30
            continue
        boxes.append(
            {
                "y": y,
                "letter": "h" if l else "x",
                "index": str(l) if l and L > 1 else "",
                "units": counted(sizes[l], "unit"),
                "kind": model.decoder[l].layer.title,
            }
        )
        y += BOX
        if l and shown[i + 1] is not None:
            nets = {"encoder": net_of(model.encoder[l - 1]), "decoder": net_of(model.decoder[l - 1])}
            arrows.append({"top": y + 5, "bottom": y + GAP - 5, **nets})
            y += GAP
        elif l:
            y += 14
    label = f"stack of {L} stochastic layers over {model.n_x} visible units: encoder q upwards, decoder p downwards"
    figure = {"width": WIDTH, "height": y + 4, "box": BOX, "label": label}
    return figure | {"boxes": boxes, "arrows": arrows, "omitted": omitted}
