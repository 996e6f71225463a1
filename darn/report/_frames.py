"""Figures of section 5.3: frames beside their nearest neighbours, representations layer by layer, sheets by depth."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darn.data import nearest
from darn.files import atomic


def compose(lines: Sequence[Sequence[np.ndarray]], path: str | Path, *, scale: int = 1) -> None:
    """Pictures (H, W) of values in [0,1], line by line from the left, each line centred, as one PNG."""
    from PIL import Image

    gap = 6
    heights = [max(p.shape[0] for p in line) for line in lines]
    widths = [sum(p.shape[1] + gap for p in line) + gap for line in lines]
    page = np.full((sum(heights) + gap * (len(lines) + 1), max(widths)), 64, np.uint8)
    top = gap
    for line, height, width in zip(lines, heights, widths):
        left = gap + (page.shape[1] - width) // 2
        for p in line:
            page[top : top + p.shape[0], left : left + p.shape[1]] = np.round(255 * np.asarray(p, np.float32))
            left += p.shape[1] + gap
        top += height + gap
    size = (page.shape[1] * scale, page.shape[0] * scale)
    with atomic(path) as temporary:
        Image.fromarray(page).resize(size, Image.Resampling.NEAREST).save(temporary, format="PNG")


def beside_nearest(samples: np.ndarray, rows, shape: tuple[int, int], path: str | Path) -> dict:
    """Figure 3: samples (M, n) above the training frames nearest to them. `rows`: a `darn.data.Rows`."""
    where, distance = nearest(rows, samples)
    found = rows.take(where).unpack()
    compose([[v.reshape(shape) for v in samples], [v.reshape(shape) for v in found]], path)
    return {"rows": where.tolist(), "distance_bits": distance.tolist()}


def _enlarged(picture: np.ndarray, times: int) -> np.ndarray:
    return np.kron(picture, np.ones((times, times), np.float32))


def _channels(y: np.ndarray, grid: tuple[int, int, int], times: int) -> list[np.ndarray]:
    return [_enlarged(y.reshape(grid)[..., f], times) for f in range(grid[2])]


def representation(model, x: np.ndarray, shape: tuple[int, int], path: str | Path, *, n: int = 25, seed: int = 0):
    """Figure 4: a frame x (n_x,) at the bottom, above it what it makes of each hidden layer, the channels of a local
    layer side by side; on top n encodings of the fully connected layer, one a line. Returns the encodings (n, n_h)."""
    from darn.inference.sampling import encode

    code = encode(model, np.repeat(x[None], n, axis=0), seed=seed)
    lines = [[x.reshape(shape)]]
    for part, h in zip(model.decoder[1:], code.h):
        grid = getattr(getattr(part.layer, "W", None), "grid", None)
        lines.append([_enlarged(h.astype(np.float32), 4)] if grid is None else _channels(h[0], grid, 3))
    compose(lines[::-1], path)
    return code.h[-1]


def by_depth(samples: Sequence[np.ndarray], shape: tuple[int, int], path: str | Path) -> None:
    """Figure 5: frames of one network in each line."""
    compose([[v.reshape(shape) for v in line] for line in samples], path)
