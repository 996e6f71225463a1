"""Reads images: files, and folders of images of one size, one image per row, sorted by name; white is 1."""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from darn.data._raw import WHOLE, Part, Raw, RawParts
from darn.errors import DarnError
from darn.files import read_bytes

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".pbm", ".pgm", ".jpg", ".jpeg", ".gif", ".bmp")
FORMATS = ("PNG", "PPM", "JPEG", "GIF", "BMP")  # no others, whatever a file is called: some of PIL's run programs
MAX_PIXELS = 1 << 27  # of one image
PART = 1 << 23  # pixels read at once


@dataclass(frozen=True)
class GreyImage:
    """One image as grey levels."""

    grey: np.ndarray  # uint8 (height, width)
    plain: bool  # whether the file had only grey levels: no colour, no transparency
    data: bytes  # of the file


def _alike(files: list[Path], what: str) -> Iterator[GreyImage]:
    """The images, if they are all of one size."""
    first = None
    for f in files:
        image = read_image(f)
        first = first or image.grey.shape
        if image.grey.shape != first:
            a, b = ("x".join(map(str, s[::-1])) for s in (image.grey.shape, first))
            raise DarnError(f"{what}: {f.name} is {a} pixels but {files[0].name} is {b}: give images of one size")
        yield image


def _is_grey(X: np.ndarray) -> bool:
    return bool(((X != 0) & (X != 255)).any())


def image_parts(folder: Path, what: str) -> RawParts:
    """As `read_images`, in parts; all images are read once more, to see whether they are only black and white."""
    files = image_files(folder, what)
    height, width = image_size(files[0])
    grey = any(_is_grey(image.grey) for image in _alike(files, what))
    step = max(PART // (height * width), 1)

    def read() -> Iterator[Part]:
        images = _alike(files, what)
        for start in range(0, len(files), step):
            X = np.stack([image.grey.ravel() for image in islice(images, step)])
            yield Part(X if grey else (X != 0).astype(np.uint8), before=start)

    return RawParts(what, WHOLE, len(files), height * width, read)


def read_images(folder: Path, what: str) -> Raw:
    """Reads a folder: images of only black and white become bits, others grey levels 0..255.

    Colour is reduced to lightness; of an animated GIF, the first frame is used.
    """
    files = image_files(folder, what)
    first = read_image(files[0]).grey.shape
    digest, X = hashlib.sha256(), np.empty((len(files), first[0] * first[1]), np.uint8)
    for i, image in enumerate(_alike(files, what)):
        X[i] = image.grey.ravel()
        digest.update(hashlib.sha256(image.data).digest())
    if not _is_grey(X):
        X = (X != 0).astype(np.uint8)
    source = f"{len(files)} images of the folder {folder.name}"
    return Raw(what, {WHOLE: Part(X)}, shape=first, sha256=digest.hexdigest(), source=source)


def image_files(folder: Path, what: str) -> list[Path]:
    """The images of a folder, sorted by name, without hidden files."""
    try:
        files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    except OSError as e:
        raise DarnError(f"{what} cannot be read: {e.strerror}") from None
    if not files:
        raise DarnError(f"{what} is a folder without images ({' '.join(SUFFIXES)}): give a file, or a folder of images")
    return files


@contextlib.contextmanager
def _opened(f: Path, data: bytes) -> Iterator[Image.Image]:
    """An image whose header has been read, of at most `MAX_PIXELS`."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PIL warns of large images; our own limit follows
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise DarnError(
                        f"{f} has {image.width} x {image.height} pixels: an image may have at most {MAX_PIXELS:,}"
                    )
                yield image
    except DarnError:
        raise
    except Exception as e:  # PIL raises many kinds for a damaged file
        raise DarnError(f"{f} is not a readable image; it may be damaged: {' '.join(str(e).split())[:120]}") from None


def image_size(f: Path) -> tuple[int, int]:
    """(height, width), from the header of the file."""
    with _opened(f, read_bytes(f)) as image:
        return image.height, image.width


def read_image(f: Path) -> GreyImage:
    """One image."""
    data = read_bytes(f)
    with _opened(f, data) as image:
        if image.mode.startswith(("I", "F")):  # PIL would clip these to 255, not scale them
            raise DarnError(f"{f} has more than 8 bits per pixel: save it with 256 grey levels")
        plain = image.mode in ("1", "L") or (image.mode == "P" and "transparency" not in image.info)
        return GreyImage(np.asarray(image.convert("L")), plain, data)
