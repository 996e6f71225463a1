"""Laws of the Atari frames: the recorder, the splits, what a compressor makes of them."""

import lzma
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from darn import data
from darn.data import _atari, _record
from darn.errors import DarnError
from darn.paper import scoring


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DARN_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Parts of a few frames, kept often, recorded in this process."""
    pytest.importorskip("ale_py")
    monkeypatch.setattr(_record, "PART", 6)
    monkeypatch.setattr(_record, "KEEP", 0.002)  # a game of Pong lasts for thousands of steps
    monkeypatch.setattr(_record, "ProcessPoolExecutor", lambda n, mp_context: ThreadPoolExecutor(1))


def stored(n=60, n_games=7, seed=0):
    """A recording of random bits in the data folder."""
    rng = np.random.default_rng(seed)
    frames = np.packbits(rng.random((n, _atari.N)) < 0.2, axis=1)
    episode = np.sort(rng.integers(n_games, size=n)).astype(np.int32)
    path, beside = _atari.paths("pong")
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wb") as f:
        np.save(f, frames)
    np.savez(beside, episode=episode)
    return frames, episode


# ---------------------------------------------------------------- recorder


def test_edges_are_a_roberts_cross():
    screen = np.random.default_rng(0).integers(3, size=(7, 6))
    found = _record.edges(screen)
    assert found.shape == (6, 5)
    for i in range(6):
        for j in range(5):
            a, b, c, d = screen[i, j], screen[i, j + 1], screen[i + 1, j], screen[i + 1, j + 1]
            assert found[i, j] == (a != d or b != c)


def test_recording_is_a_function_of_the_seed_and_resumes(folder, quick, monkeypatch):
    seen = []
    (path,) = data.record_atari(["pong"], 11, seed=5, progress=seen.append)
    first, episodes = path.read_bytes(), _atari.paths("pong")[1].read_bytes()
    assert sum(seen) == 12
    with lzma.open(path) as f:
        frames = np.load(f)
    assert frames.shape == (11, _atari.BYTES)
    bits = np.unpackbits(frames, axis=1, count=_atari.N).reshape(-1, *_atari.SHAPE)
    assert 0.01 < bits.mean() < 0.04  # Pong's edges are 2.3% of its screen
    assert len(np.unique(frames, axis=0)) == 11
    assert [p.name for p in path.parent.iterdir() if p.is_dir()] == []
    with pytest.raises(DarnError, match="exists already"):
        data.record_atari(["pong"], 11)
    # Interrupted after its first part, and gone on with: the same bytes.
    path.unlink()
    play = _record.play
    monkeypatch.setattr(_record, "play", lambda g, s, part: play(g, s, part) if part == 0 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        data.record_atari(["pong"], 11, seed=5)
    assert not path.exists()
    monkeypatch.setattr(_record, "play", lambda g, s, part: play(g, s, part) if part == 1 else 1 / 0)
    data.record_atari(["pong"], 11, seed=5)
    assert path.read_bytes() == first
    assert _atari.paths("pong")[1].read_bytes() == episodes
    path.unlink()
    monkeypatch.setattr(_record, "play", play)
    data.record_atari(["pong"], 11, seed=6)
    assert path.read_bytes() != first


def test_unknown_game(folder):
    pytest.importorskip("ale_py")
    with pytest.raises(DarnError, match="no game 'pog'"):
        data.record_atari(["pog"], 100)


# ---------------------------------------------------------------- splits


@pytest.mark.parametrize("by_episode", [False, True])
def test_every_frame_is_in_one_split(by_episode):
    episode = np.sort(np.random.default_rng(1).integers(300, size=20_000))
    order = _atari.order_of(episode, by_episode)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(order.values()))), np.arange(len(episode)))
    share = [len(order[s]) / len(episode) for s in ("train", "valid", "test")]
    np.testing.assert_allclose(share, (0.85, 0.05, 0.1), atol=0.01 if by_episode else 0)
    games = {s: set(episode[i]) for s, i in order.items()}
    common = games["train"] & games["test"] | games["train"] & games["valid"] | games["valid"] & games["test"]
    assert bool(common) != by_episode
    if not by_episode:
        assert not np.array_equal(order["test"], np.sort(order["test"]))  # shuffled


@pytest.mark.parametrize("name", ["atari/pong", "atari/pong/episodes"])
def test_frames_are_read_as_stored_in_memory_or_mapped(name, folder):
    frames, episode = stored()
    splits = data.load(name)
    assert splits.shape == (209, 159)
    mapped = _atari.load(name, memory=1)
    assert isinstance(mapped.train.values, np.memmap)
    order = _atari.order_of(episode, name.endswith("episodes"))
    for s in ("train", "valid", "test"):
        np.testing.assert_array_equal(getattr(splits, s).values, frames[order[s]])
        np.testing.assert_array_equal(getattr(mapped, s).values, frames[order[s]])
    np.testing.assert_allclose(mapped.train.mean(), splits.train.unpack().mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(data.load_rows(name, split="test").values, splits.test.values)


def test_missing_and_damaged_recordings(folder):
    with pytest.raises(DarnError, match="darn data atari --game pong"):
        data.load("atari/pong")
    stored()
    path, beside = _atari.paths("pong")
    whole, episodes = path.read_bytes(), beside.read_bytes()
    for bad in (b"PK\3\4no frames", episodes[: len(episodes) // 2]):
        beside.write_bytes(bad)
        with pytest.raises(DarnError, match="damaged"):
            data.load("atari/pong")
    np.savez(beside, episode=np.ones(60))
    with pytest.raises(DarnError, match="does not say of which game"):
        data.load("atari/pong")
    beside.write_bytes(episodes)
    for bad in (whole[: len(whole) // 2], b"no frames", lzma.compress(b"no frames")):
        path.write_bytes(bad)
        with pytest.raises(DarnError, match="damaged"):
            data.load("atari/pong")


# ---------------------------------------------------------------- compression


def test_xz_takes_about_the_entropy_of_noise(folder):
    """Noise cannot be compressed below its entropy, 0.5 nats a pixel at 0.2; nor does xz take more than the bits."""
    stored(n=200)
    assert 0.5 * _atari.N < scoring.xz_nats(data.load("atari/pong").test.values) < 0.7 * _atari.N
