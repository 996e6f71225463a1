"""Edge frames of Atari games: reading recordings, and their two kinds of split."""

from __future__ import annotations

import hashlib
import lzma
import os
import tempfile
from pathlib import Path

import numpy as np

from darn.data._arrays import BROKEN, open_arrays
from darn.data._raw import SPLITS
from darn.data._rows import Rows, Splits
from darn.data._store import data_dir
from darn.errors import DarnError
from darn.files import open_input, read_bytes

GAMES = ("freeway", "pong", "space_invaders", "riverraid", "seaquest")  # the paper's
SHAPE = (209, 159)
N = SHAPE[0] * SHAPE[1]
BYTES = -(-N // 8)
EPISODES = "/episodes"


def names() -> list[str]:
    return [f"atari/{game}{split}" for game in GAMES for split in ("", EPISODES)]


def is_atari(name: str) -> bool:
    return name.startswith("atari/")


def paths(game: str) -> tuple[Path, Path]:
    """The files of a game's frames and episodes."""
    folder = data_dir() / "atari"
    return folder / f"{game}.npy.xz", folder / f"{game}.episode.npz"


def describe(name: str) -> dict:
    game, by_episode = parse(name)
    path, _ = paths(game)
    how = "split by game played" if by_episode else "the paper's split"
    return {
        "name": name,
        "columns": N,
        "rows": (85000, 5000, 10000),
        "present": path.is_file(),
        "where": str(path) if path.is_file() else "to be recorded",
        "about": f"edges of {game} screens under random play, {SHAPE[0]}x{SHAPE[1]}, {how}",
    }


def parse(name: str) -> tuple[str, bool]:
    """Returns (game, whether it is split by episode)."""
    rest = name.removeprefix("atari/")
    return rest.removesuffix(EPISODES), rest.endswith(EPISODES)


def order_of(episode: np.ndarray, by_episode: bool) -> dict[str, np.ndarray]:
    """The frames of each split, by number.

    The paper's: all frames are shuffled, and the last tenth (10,000 of 100,000) is for testing; of the others we keep a
    twentieth (5,000) for validation. Test frames then come from the same games as training frames. By episode: whole
    games are shuffled and assigned until a split has as many frames.
    """
    n = len(episode)
    rng = np.random.RandomState(2014)  # its stream is frozen: the same split under every NumPy
    if not by_episode:
        order = rng.permutation(n)
        held, test = n // 20, n // 10
        return dict(zip(SPLITS, np.split(order, [n - held - test, n - test])))
    games, count = np.unique(episode, return_counts=True)
    deal = rng.permutation(len(games))
    before = np.cumsum(count[deal]) - count[deal]  # frames assigned before each game
    split = np.where(before < n // 10, 2, np.where(before < n // 10 + n // 20, 1, 0))
    of_game = np.empty(len(games), int)
    of_game[deal] = split
    of_frame = of_game[np.searchsorted(games, episode)]
    return {s: np.flatnonzero(of_frame == k) for k, s in enumerate(SPLITS)}


def load(name: str, *, memory: int | None = None) -> Splits:
    """A game's recorded frames in three splits, packed; memory-mapped if they would fill half the memory."""
    game, by_episode = parse(name)
    path, beside = paths(game)
    try:
        with open_input(path) as f:
            sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        episode = open_arrays(read_bytes(beside), str(beside)).get("episode")
    except DarnError as e:
        if not isinstance(e.__cause__, FileNotFoundError):
            raise
        how = f"record them with `darn data atari --game {game}`"
        raise DarnError(f"there are no frames of {game} in {path.parent}: {how}") from None
    if episode is None or episode.ndim != 1 or episode.dtype.kind not in "iu":
        raise DarnError(f"{beside} does not say of which game each frame is: delete it and record {game} again")
    order = order_of(episode, by_episode)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if memory is None else memory
    mapped = len(episode) * BYTES > memory // 2
    parts = {s: _room(len(i), mapped) for s, i in order.items()}
    try:
        _deal(path, order, parts, len(episode))
    except (*BROKEN, lzma.LZMAError):
        raise DarnError(f"{path} is damaged or not a recording: delete it and record {game} again") from None
    if not all(len(p) for p in parts.values()):
        raise DarnError(f"{path} has {len(episode)} frames, too few for train, valid and test: record more")
    source = f"{game}, {len(episode)} frames of {len(np.unique(episode))} games"
    train, valid, test = (Rows(parts[s], N) for s in SPLITS)
    return Splits(name, train, valid, test, None, shape=SHAPE, sha256=sha256, source=source)


def _room(n: int, mapped: bool) -> np.ndarray:
    """Room for n packed frames, in memory or in an unnamed file that disappears with the process."""
    if not mapped or not n:
        return np.empty((n, BYTES), np.uint8)
    with tempfile.TemporaryFile(prefix="darn-") as f:
        f.truncate(n * BYTES)
        return np.memmap(f, np.uint8, "r+", shape=(n, BYTES))


def _deal(path: Path, order: dict[str, np.ndarray], parts: dict[str, np.ndarray], n: int) -> None:
    """Reads the recording from front to back and puts every frame into its position."""
    where = np.empty((n, 2), np.int64)
    for k, s in enumerate(SPLITS):
        where[order[s]] = np.stack([np.full(len(order[s]), k), np.arange(len(order[s]))], axis=1)
    with lzma.open(path) as f:
        version = np.lib.format.read_magic(f)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(f)
        if shape != (n, BYTES) or fortran or dtype != np.uint8:
            raise ValueError("not packed frames")
        for start in range(0, n, 4096):
            count = min(4096, n - start)
            block = np.frombuffer(f.read(count * BYTES), np.uint8).reshape(count, BYTES)
            here = where[start : start + count]
            for k, s in enumerate(SPLITS):
                chosen = here[:, 0] == k
                parts[s][here[chosen, 1]] = block[chosen]
