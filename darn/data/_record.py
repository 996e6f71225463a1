"""Records Atari frames with ale-py, like the paper's own script (fidlej/aledataset).

One emulator frame per step, with a uniformly random action from the game's minimal set, no sticky actions and no colour
averaging. Each step's screen of palette indices is kept with probability 0.01. After game over a new game starts.

A recording is made in parts, each with its own emulator and random stream that depend only on seed, game and part: the
frames do not depend on how many parts run in parallel, and an interrupted recording continues with the missing parts. A
part ends with a game, so that all moments of a game are equally likely to be kept.
"""

from __future__ import annotations

import importlib.util
import lzma
import multiprocessing
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from darn.data._atari import BYTES, paths
from darn.data._store import data_dir
from darn.errors import DarnError
from darn.files import atomic

KEEP = 0.01  # of all screens
PART = 500  # the least number of frames in a part


def edges(screen: np.ndarray) -> np.ndarray:
    """1 where the 2x2 window has top-left != bottom-right or top-right != bottom-left: (H, W) to (H-1, W-1)."""
    return (screen[:-1, :-1] != screen[1:, 1:]) | (screen[:-1, 1:] != screen[1:, :-1])


def check_games(games: Sequence[str]) -> None:
    """Refuses a game that the emulator does not have."""
    if importlib.util.find_spec("ale_py") is None:
        raise DarnError("recording needs ale-py: install darn with the extra `atari`")
    from ale_py import roms

    known = roms.get_all_rom_ids()
    for game in games:
        if game not in known:
            raise DarnError(f"ale-py has no game {game!r}: it has {', '.join(sorted(known)[:5])} and others")


def play(game: str, seed: int, part: int) -> tuple[np.ndarray, np.ndarray]:
    """One part: (frames, 4154) uint8 of packed edges, and the number of the game that each is from."""
    from ale_py import ALEInterface, LoggerMode, roms

    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(game.encode()), part]))
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", int(rng.integers(2**31)))
    ale.setInt("frame_skip", 1)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setBool("color_averaging", False)
    ale.loadROM(str(roms.get_rom_path(game)))
    actions = ale.getMinimalActionSet()
    frames, episode, number = [], [], 0
    wait = rng.geometric(KEEP)  # steps to the next screen that is kept, each with probability 0.01
    choices = iter(())
    while len(frames) < PART:
        ale.reset_game()
        while not ale.game_over():
            choice = next(choices, None)
            if choice is None:
                choices = iter(rng.integers(len(actions), size=4096).tolist())
                choice = next(choices)
            ale.act(actions[choice])
            wait -= 1
            if not wait:
                frames.append(np.packbits(edges(ale.getScreen())))
                episode.append(number)
                wait = rng.geometric(KEEP)
        number += 1
    return np.stack(frames), np.asarray(episode, np.int32)


def _record_part(game: str, seed: int, part: int, path: Path) -> tuple[str, int]:
    frames, episode = play(game, seed, part)
    with atomic(path) as temporary, open(temporary, "wb") as f:
        np.savez_compressed(f, frames=frames, episode=episode)
    return game, len(frames)


def record_atari(
    games: Sequence[str],
    n: int,
    *,
    seed: int = 2014,
    processes: int | None = None,
    progress: Callable[[int], object] = lambda count: None,
) -> list[Path]:
    """Records n frames of each game into the data folder; `progress` is called with the number of new frames."""
    check_games(games)
    for game in games:
        path, _ = paths(game)
        if path.exists():
            raise DarnError(f"{path} exists already: move it away to record {game} again")
    parts = -(-n // PART)
    folders = {game: data_dir() / "atari" / f"{game}-{seed}.parts" for game in games}
    files = {(game, k): folders[game] / f"{k:04d}.npz" for k in range(parts) for game in games}
    todo = [key for key in files if not files[key].exists()]
    progress(PART * (len(files) - len(todo)))
    # Fresh processes: a fork would copy locks that other threads, such as JAX's, may hold.
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=start) as pool:
        try:
            for done in as_completed([pool.submit(_record_part, g, seed, k, files[g, k]) for g, k in todo]):
                done.result()
                progress(PART)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for game in games:
        _join(game, [files[game, k] for k in range(parts)], n)
        shutil.rmtree(folders[game])
    return [paths(game)[0] for game in games]


def _join(game: str, parts: Sequence[Path], n: int) -> None:
    """Joins the parts into one compressed array of n frames and one of episodes."""
    path, beside = paths(game)
    episodes, left, last = [], n, 0
    with atomic(path) as temporary, lzma.open(temporary, "wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "|u1", "fortran_order": False, "shape": (n, BYTES)})
        for part in parts:
            with np.load(part) as saved:
                frames, episode = saved["frames"][:left], saved["episode"][:left]
            f.write(np.ascontiguousarray(frames).tobytes())
            episodes.append(episode + last)
            last, left = last + int(episode[-1]) + 1, left - len(frames)
        # Before the frames get their name, so that a recording has both files or neither.
        with atomic(beside) as temporary_beside, open(temporary_beside, "wb") as g:
            np.savez_compressed(g, episode=np.concatenate(episodes).astype(np.int32))
