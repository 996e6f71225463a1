"""Arrays as PNG pictures inside the page, and the small records that the templates draw."""

import base64
import io
from dataclasses import dataclass, field

import numpy as np

TEAL, ORANGE = (17, 140, 133), (206, 108, 52)  # readable on light and on dark paper


@dataclass(frozen=True)
class Picture:
    """An image element: a data URI and its description in words."""

    uri: str
    alt: str
    kind: str = "p"  # "p": ink on paper, inverted in the dark; "d": colours
    difference: str | None = None  # a second data URI that the page can swap in


@dataclass(frozen=True)
class Line:
    """A row of a table: its name, and its cells, each with whether it is another than in the first line of its card."""

    name: str
    cells: list[tuple[str, bool]]


@dataclass(frozen=True)
class Card:
    """Pictures, or lines of a table, with a caption; `keys` are numbers that the page sorts cards by."""

    pictures: list[Picture]
    caption: str
    kind: str = ""
    keys: dict[str, float] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


def _png(image) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def ink(values: np.ndarray, shape: tuple[int, int]) -> str:
    """Values in [0,1] as ink on paper, as a data URI; one bit a pixel where all values are bits."""
    from PIL import Image

    v = np.asarray(values, np.float32).reshape(shape)
    image = Image.fromarray(np.round(255 * (1 - np.clip(v, 0, 1))).astype(np.uint8))
    return _png(image.convert("1", dither=Image.Dither.NONE) if np.isin(v, (0, 1)).all() else image)


def signed(values: np.ndarray, shape: tuple[int, int], top: float | None = None) -> str:
    """Values of either sign as a data URI: teal above zero, orange below, full strength at `top`."""
    from PIL import Image

    v = np.asarray(values, np.float32).reshape(shape)
    top = float(np.abs(v).max()) if top is None else top
    out = np.zeros((*shape, 4), np.uint8)
    out[..., :3] = np.where(v[..., None] >= 0, TEAL, ORANGE)
    out[..., 3] = np.round(255 * np.clip(np.abs(v) / (top or 1), 0, 1))
    return _png(Image.fromarray(out))


def difference(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> str:
    """Two rows in one picture: grey where both are on, teal where only `a` is, orange where only `b` is."""
    from PIL import Image

    a, b = (np.round(np.asarray(v, np.float32)).reshape(shape).astype(bool) for v in (a, b))
    out = np.zeros((*shape, 4), np.uint8)
    out[a & b] = (128, 128, 128, 150)
    out[a & ~b], out[b & ~a] = (*TEAL, 255), (*ORANGE, 255)
    return _png(Image.fromarray(out))
