"""Rows of a data set drawn as a grid of images in one PNG."""

import math
from pathlib import Path

import numpy as np

from darn.errors import DarnError
from darn.files import atomic

MAX_PIXELS = 1 << 28  # of a page, which is drawn in memory


def square_shape(n: int) -> tuple[int, int]:
    """The shape nearest to a square with exactly n cells, for drawing rows that are not images."""
    height = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return height, n // height


def check_sheet(rows: int, shape: tuple[int, int], path: str | Path) -> None:
    """Refuses a page of more than `MAX_PIXELS`."""
    if rows * shape[0] * shape[1] > MAX_PIXELS:
        raise DarnError(
            f"{path}: {rows:,} images of {shape[0]} x {shape[1]} are too many for one picture of at most "
            f"{MAX_PIXELS:,} pixels: write a .npy, or fewer rows"
        )


def sheet(x: np.ndarray, shape: tuple[int, int], path: str | Path, *, columns: int | None = None) -> None:
    """Draws rows as white-on-black images in one PNG.

    Args:
        x: (N, n) of values in [0,1].
        shape: rows and columns of each image.
        path: the PNG to write.
        columns: images per line; by default, the grid is nearly square.
    """
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
