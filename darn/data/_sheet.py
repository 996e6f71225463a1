"""A sheet of images: rows of a data set drawn side by side in one PNG."""

import math
from pathlib import Path

import numpy as np

from darn.files import atomic


def square_shape(n: int) -> tuple[int, int]:
    """The shape nearest to a square in which n units fit exactly: how rows that are no images are drawn."""
    height = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return height, n // height


def sheet(x: np.ndarray, shape: tuple[int, int], path: str | Path, *, columns: int | None = None) -> None:
    """Draws rows (N, n) of values in [0,1] as white-on-black images of `shape`, in a near-square grid."""
    from PIL import Image

    height, width = shape
    columns = columns or max(1, math.ceil(math.sqrt(len(x) * height / width)))
    lines = math.ceil(len(x) / columns)
    gap = max(1, min(height, width) // 14)
    page = np.full((lines * (height + gap) + gap, columns * (width + gap) + gap), 64, np.uint8)
    for i, image in enumerate(np.asarray(x, np.float32).reshape(-1, height, width)):
        top, left = gap + i // columns * (height + gap), gap + i % columns * (width + gap)
        page[top : top + height, left : left + width] = np.round(255 * image)
    scale = max(1, round(800 / page.shape[1]))
    picture = Image.fromarray(page).resize((page.shape[1] * scale, page.shape[0] * scale), Image.Resampling.NEAREST)
    with atomic(path) as temporary:
        picture.save(temporary, format="PNG")
