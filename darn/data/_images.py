"""A folder of images of one size: one image a row, by name; white is 1."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from darn.data._raw import WHOLE, Part, Raw
from darn.errors import DarnError

SUFFIXES = (".png", ".pbm", ".pgm", ".jpg", ".jpeg", ".gif", ".bmp")


def read_images(folder: Path, what: str) -> Raw:
    """Images that have only black and white are bits already; others are grey levels 0..255.

    Colour is reduced to its lightness; of an animated GIF the first picture counts.
    """
    try:
        files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    except OSError as e:
        raise DarnError(f"{what} cannot be read: {e.strerror}.") from None
    if not files:
        raise DarnError(
            f"{what} is a folder without images ({' '.join(SUFFIXES)}): give a file, or a folder of images."
        )
    first = read_image(files[0])[0].shape
    digest, X = hashlib.sha256(), np.empty((len(files), first[0] * first[1]), np.uint8)
    for i, f in enumerate(files):
        pixels, data = read_image(f)
        if pixels.shape != first:
            a, b = ("x".join(map(str, s[::-1])) for s in (pixels.shape, first))
            raise DarnError(f"{what}: {f.name} is {a} pixels but {files[0].name} is {b}: give images of one size.")
        X[i] = pixels.ravel()
        digest.update(hashlib.sha256(data).digest())
    if not ((X != 0) & (X != 255)).any():
        X = (X != 0).astype(np.uint8)
    source = f"{len(files)} images of the folder {folder.name}"
    return Raw(what, {WHOLE: Part(X)}, shape=first, sha256=digest.hexdigest(), source=source)


def read_image(f: Path) -> tuple[np.ndarray, bytes]:
    """One image as grey levels (height, width), with the bytes of its file."""
    import io

    from PIL import Image

    try:
        data = f.read_bytes()
    except OSError as e:
        raise DarnError(f"{f} cannot be read: {e.strerror}.") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.mode.startswith(("I", "F")):  # PIL would clip these to 255, not scale them
                raise DarnError(f"{f} has more than 8 bits a pixel: save it with 256 grey levels.")
            return np.asarray(image.convert("L")), data
    except DarnError:
        raise
    except Exception as e:  # PIL raises many kinds for a damaged file
        raise DarnError(f"{f} is not a readable image, it may be damaged: {' '.join(str(e).split())[:120]}.") from None
