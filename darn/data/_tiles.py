"""Images as rows of one size: cut into tiles and reassembled.

An image of the model's own size is one tile. Where tiles extend beyond the edge of an image, the outside pixels are not
coded.
"""

from collections.abc import Callable

import numpy as np

Size = tuple[int, int]  # height, width


def n_tiles(size: Size, tile: Size) -> Size:
    """The number of tiles down and across."""
    return -(-size[0] // tile[0]), -(-size[1] // tile[1])


def cut(image: np.ndarray, tile: Size) -> np.ndarray:
    """The tiles of an image as rows, line by line of tiles, with zeros beyond the edge."""
    (down, across), (h, w) = n_tiles((image.shape[0], image.shape[1]), tile), tile
    whole = np.zeros((down * h, across * w), image.dtype)
    whole[: image.shape[0], : image.shape[1]] = image
    return whole.reshape(down, h, across, w).swapaxes(1, 2).reshape(-1, h * w)


def paste(rows: np.ndarray, size: Size, tile: Size) -> np.ndarray:
    """The image of `size` from its tiles: undoes `cut`."""
    (down, across), (h, w) = n_tiles(size, tile), tile
    whole = rows.reshape(down, across, h, w).swapaxes(1, 2).reshape(down * h, across * w)
    return whole[: size[0], : size[1]]


def unit_mask(notes: dict) -> Callable[[int, int], np.ndarray] | None:
    """Which units of a row are inside its image.

    Args:
        notes: of a `RowSource`.

    Returns:
        A function from (start, stop), row numbers, to a mask (stop - start, n); None if all units are inside.
    """
    if "images" not in notes:
        return None
    tile = tuple(notes["tile"])
    sizes = [tuple(size) for _, *size in notes["images"]]
    if all(size[0] % tile[0] == 0 and size[1] % tile[1] == 0 for size in sizes):
        return None
    counts = [n_tiles(size, tile) for size in sizes]
    ends = np.cumsum([down * across for down, across in counts])

    def units(start: int, stop: int) -> np.ndarray:
        rows = np.arange(start, stop)
        image = np.searchsorted(ends, rows, side="right")
        size, across = np.array(sizes)[image], np.array(counts)[image, 1]
        place = rows - np.append(0, ends)[image]
        # How much of each tile is inside, down and across: the other pixels are beyond the edge.
        down = (place // across * tile[0])[:, None] + np.arange(tile[0]) < size[:, :1]
        right = (place % across * tile[1])[:, None] + np.arange(tile[1]) < size[:, 1:]
        return (down[:, :, None] & right[:, None, :]).reshape(len(rows), -1)

    return units
