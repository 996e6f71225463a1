"""Parts of a job: together they give what one process gives; a part that is done stays, a broken one leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from darn import DarnError, data
from darn.cli import main
from darn.runs.shards import MOST, Shard, claimed, in_order

ROWS = 700


def ok(capsys, *words):
    capsys.readouterr()
    assert main([*map(str, words)]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words):
    capsys.readouterr()
    assert main([*map(str, words)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models of bits (with a few units, and with more) and of a table, and their data."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.RandomState(0)
    bits = (rng.random_sample((ROWS, 12)) < 0.3).astype(int)
    (folder / "x.csv").write_text("\n".join(",".join(map(str, row)) for row in [[f"c{j}" for j in range(12)], *bits]))
    np.save(folder / "x.npy", bits.astype(np.uint8))
    kinds, sizes = rng.choice(["cat", "dog", " cow"], ROWS), rng.gamma(2, 3, ROWS).round(2)
    lines = [f"{k},{'' if i % 17 == 0 else v},{i}" for i, (k, v) in enumerate(zip(kinds, sizes))]
    (folder / "t.csv").write_text("kind,size,n\n" + "\n".join(lines) + "\n")
    for name, source, *more in (
        ("few", "x.csv", "--n_h", "3"),
        ("many", "x.csv", "--n_h", "20"),
        ("table", "t.csv", "--categorical", "auto", "--n_h", "2"),
    ):
        words = ["train", folder / source, *more, "--epochs", "1", "--out", folder / name, "--quiet"]
        assert main([*map(str, words)]) == 0
    return folder


def text_of(path):
    return Path(path).read_bytes()


def in_shards(capsys, of, out, *words):
    for i in range(of, 0, -1):
        ok(capsys, *words, "--shard", f"{i}/{of}")
    parts = [str(Shard(i, of).path(out)) for i in range(1, of + 1)]
    ok(capsys, "cat", *reversed(parts), "--out", out)
    return parts


@pytest.mark.parametrize("model", ["few", "many", "table"])
@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_scores_of_shards_are_those_of_eval(place, tmp_path, capsys, model, ending):
    source = place / ("t.csv" if model == "table" else "x.csv")
    ok(capsys, "eval", place / model, source, "--per-row", tmp_path / f"one.{ending}")
    ok(capsys, "score", place / model, source, "--out", tmp_path / f"whole.{ending}")
    in_shards(
        capsys, 3, tmp_path / f"all.{ending}", "score", place / model, source, "--out", tmp_path / f"all.{ending}"
    )
    read = np.load if ending == "npy" else lambda p: np.loadtxt(p, skiprows=1, delimiter=",")
    for other in ("whole", "all"):
        np.testing.assert_array_equal(read(tmp_path / f"{other}.{ending}"), read(tmp_path / f"one.{ending}"))


@pytest.mark.parametrize(("model", "ending"), [("few", "npy"), ("few", "csv"), ("table", "csv")])
def test_samples_of_shards_are_those_of_one_process(place, tmp_path, capsys, model, ending):
    words = ["sample", place / model, "-n", 50, "--seed", 3, "--out"]
    ok(capsys, *words, tmp_path / f"one.{ending}")
    in_shards(capsys, 4, tmp_path / f"all.{ending}", *words, tmp_path / f"all.{ending}")
    assert text_of(tmp_path / f"all.{ending}") == text_of(tmp_path / f"one.{ending}")


@pytest.mark.parametrize(("model", "source"), [("few", "x.csv"), ("few", "x.npy"), ("table", "t.csv")])
def test_compressed_shards_join_to_the_whole(place, tmp_path, capsys, model, source):
    """Blanks in cells, a last line without an end, a column that counts and an array all come back."""
    out, back = tmp_path / "all.drn", tmp_path / f"back{Path(source).suffix}"
    parts = in_shards(capsys, 3, out, "compress", place / model, place / source, out)
    ok(capsys, "decompress", place / model, out, back, "--quiet")
    assert text_of(back) == text_of(place / source)
    said = json.loads(ok(capsys, "inspect", out, "--verify", "--json"))
    assert (said["rows"], said["parts"], said["bytes"]) == (ROWS, 3, out.stat().st_size)
    # A shard is a file of its own.
    ok(capsys, "decompress", place / model, parts[1], back, "--quiet")
    if source == "x.npy":
        np.testing.assert_array_equal(np.load(back), np.load(place / source)[slice(*Shard(2, 3).rows(ROWS))])
    damaged = bytearray(out.read_bytes())
    damaged[Path(parts[0]).stat().st_size + Path(parts[1]).stat().st_size // 2] ^= 1
    out.write_bytes(damaged)
    refused(capsys, "decompress", place / model, out, tmp_path / f"no{Path(source).suffix}", "--quiet")
    said = json.loads(ok(capsys, "decompress", place / model, out, back, "--quiet", "--keep-going", "--json"))
    assert said["lost"] == len(range(*Shard(2, 3).rows(ROWS)))


def test_images_join(place, tmp_path, capsys):
    pixels = np.load(place / "x.npy").reshape(-1, 4, 3)
    np.savez(tmp_path / "p.npz", train=pixels[:300], valid=pixels[300:350], test=pixels[350:400])
    ok(capsys, "train", tmp_path / "p.npz", "--n_h", 2, "--epochs", 1, "--out", tmp_path / "run", "--quiet")
    (tmp_path / "in").mkdir()
    for i in range(5):
        Image.fromarray((np.kron(pixels[i], np.ones((2, i + 1))) * 255).astype(np.uint8)).save(tmp_path / f"in/{i}.png")
    out = tmp_path / "all.drn"
    in_shards(capsys, 2, out, "compress", tmp_path / "run", tmp_path / "in", out)
    ok(capsys, "decompress", tmp_path / "run", out, tmp_path / "back", "--quiet")
    for i in range(5):
        a, b = (np.asarray(Image.open(tmp_path / d / f"{i}.png").convert("1")) for d in ("in", "back"))
        np.testing.assert_array_equal(a, b)
    assert "hold an image" in refused(capsys, "cat", out, out, "--out", tmp_path / "twice.drn")


def test_what_is_done_is_not_done_again(place, tmp_path, capsys):
    words = ["score", place / "few", place / "x.npy", "--out", tmp_path / "s.npy", "--shard", "2/3"]
    ok(capsys, *words)
    path = tmp_path / "s-00002-of-00003.npy"
    before = path.stat().st_mtime_ns
    assert "done already" in ok(capsys, *words)
    assert path.stat().st_mtime_ns == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s-00002-of-00003.npy", "s-of-00003.json"]
    for what, other in {
        "model": ["score", place / "many", place / "x.npy"],
        "data": ["score", place / "few", place / "x.csv"],
        "options": ["score", place / "few", place / "x.npy", "--seed", 1],
        "command": ["sample", place / "few"],
    }.items():
        said = refused(capsys, *other, "--out", tmp_path / "s.npy", "--shard", "1/3")
        assert what in said
    assert not (tmp_path / "s-00001-of-00003.npy").exists()
    ok(capsys, *words[:-1], "3/3")
    said = refused(capsys, "cat", *tmp_path.glob("s-0*.npy"), "--out", tmp_path / "s.npy")
    assert "1 are missing (1)" in said
    assert not (tmp_path / "s.npy").exists()


def test_a_killed_shard_leaves_nothing(place, tmp_path, capsys):
    words = ["sample", place / "few", "-n", "40000000", "--out", tmp_path / "s.npy", "--shard", "1/2"]
    killed = subprocess.Popen([sys.executable, "-m", "darn", *map(str, words)], stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 100
    while not list(tmp_path.glob(".s-00001*.npy")):
        assert time.monotonic() < limit
        assert killed.poll() is None
        time.sleep(0.05)
    assert "another process" in refused(capsys, *words)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert list(tmp_path.glob(".s-00001*.npy"))
    assert not (tmp_path / "s-00001-of-00002.npy").exists()
    words[3] = "400"
    assert "rows" in refused(capsys, *words)  # the manifest says 40 million
    (tmp_path / "s-of-00002.json").unlink()
    ok(capsys, *words)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s-00001-of-00002.npy", "s-of-00002.json"]


def test_shards_of_which_nothing_says_what_they_are_are_not_taken_for_done(tmp_path):
    """Their manifest has been removed: they may be of another job. Nor is a folder with a shard's name."""
    job, out = {"command": "score"}, tmp_path / "s.npy"
    with claimed(Shard(1, 2), out, job) as todo:
        assert todo
        Shard(1, 2).path(out).touch()
    with claimed(Shard(1, 2), out, job) as todo:
        assert not todo
    Shard(2, 2).path(out).mkdir()
    with pytest.raises(DarnError, match="00002.* is not a file"), claimed(Shard(2, 2), out, job):
        pass
    Shard(2, 2).path(out).rmdir()
    with claimed(Shard(1, 3), out, job):  # those of another division are no matter
        pass
    Shard(1, 2).manifest(out).unlink()
    for i in (1, 2):
        with pytest.raises(DarnError, match="nothing says what .*00001-of-00002"), claimed(Shard(i, 2), out, job):
            pass
    assert not Shard(1, 2).manifest(out).exists()


def test_more_shards_than_rows(place, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.load(place / "x.npy")[:2])
    in_shards(capsys, 3, tmp_path / "s.npy", "score", place / "few", tmp_path / "x.npy", "--out", tmp_path / "s.npy")
    assert len(np.load(tmp_path / "s.npy")) == 2
    out = tmp_path / "x.drn"
    in_shards(capsys, 3, out, "compress", place / "few", tmp_path / "x.npy", out)
    ok(capsys, "decompress", place / "few", out, tmp_path / "back.npy", "--quiet")
    assert text_of(tmp_path / "back.npy") == text_of(tmp_path / "x.npy")


@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("of", [1, 3, 8])
def test_shards_share_the_rows(n, of):
    bounds = [Shard(i, of).rows(n) for i in range(1, of + 1)]
    assert [i for a, b in bounds for i in range(a, b)] == list(range(n))
    assert max(b - a for a, b in bounds) - min(b - a for a, b in bounds) <= 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "numbered 1 to 3") for text in ("0/3", "4/3")),
        *((text, "can be 1 to") for text in ("1/0", f"1/{MOST + 1}")),
        *((text, "I/N") for text in ("1", "a/b", "-1/3", "1/3/5", "9" * 30 + "/3", "")),
    ],
)
def test_wrong_numbers_are_refused(text, why, capsys):
    with pytest.raises(DarnError, match=why):
        Shard.parse(text)
    assert why in refused(capsys, "score", "x", "y.csv", "--out", "s.npy", f"--shard={text}")


def test_files_that_do_not_fit_are_refused(place, tmp_path, capsys):
    for model, source in (("few", "x.csv"), ("many", "x.csv"), ("few", "x.npy"), ("table", "t.csv")):
        ok(capsys, "compress", place / model, place / source, tmp_path / f"{model}-{source[-3:]}.drn", "--quiet")
    np.save(tmp_path / "wide.npy", np.zeros((3, 5), np.uint8))
    for a, b, why in (
        ("few-csv.drn", "many-csv.drn", "another model"),
        ("few-csv.drn", "few-npy.drn", "different kinds"),
        ("few-csv.drn", place / "x.csv", "files of one kind"),
        (place / "x.npy", "wide.npy", "different types or widths"),
        (place / "x.csv", place / "t.csv", "another header"),
        ("few-csv.drn", "none.drn", "cannot be read"),
    ):
        out = tmp_path / f"all{Path(a).suffix}"
        assert why in refused(capsys, "cat", tmp_path / a, tmp_path / b, "--out", out)
        assert not out.exists()
    assert "itself an input" in refused(capsys, "cat", tmp_path / "wide.npy", "--out", tmp_path / "wide.npy")
    broken = bytearray((tmp_path / "few-csv.drn").read_bytes())
    broken[-40] ^= 1
    (tmp_path / "broken.drn").write_bytes(broken)
    assert "broken.drn" in refused(capsys, "cat", tmp_path / "few-csv.drn", tmp_path / "broken.drn", "--out", out)


def test_two_files_of_one_table_join(place, tmp_path, capsys):
    """Not shards: each has its own notes, and the second says the same in another way."""
    rows = (place / "t.csv").read_text().splitlines()
    (tmp_path / "a.csv").write_text("\n".join(rows[:50]))
    (tmp_path / "b.csv").write_text("\n".join([rows[0], *(r.replace(" cow", "cow ") for r in rows[50:90])]) + "\n")
    for name in "ab":
        ok(capsys, "compress", place / "table", tmp_path / f"{name}.csv", tmp_path / f"{name}.drn", "--quiet")
    ok(capsys, "cat", tmp_path / "a.drn", tmp_path / "b.drn", "--out", tmp_path / "ab.drn")
    ok(capsys, "decompress", place / "table", tmp_path / "ab.drn", tmp_path / "ab.csv", "--quiet")
    second = (tmp_path / "b.csv").read_text().split("\n", 1)[1]
    assert (tmp_path / "ab.csv").read_text() == "\n".join(rows[:50]) + "\n" + second


def test_the_order_of_other_files_is_kept():
    assert in_order(["b.npy", "a.npy"]) == ["b.npy", "a.npy"]
    assert in_order(["a-00002-of-00002.npy", "a-00001-of-00002.npy"])[0] == "a-00001-of-00002.npy"
    for odd in (["a-00000-of-00000.npy"], ["a-00003-of-00002.npy", "a-00001-of-00002.npy"]):
        assert in_order(odd) == odd  # no shards
    with pytest.raises(DarnError, match="shard 1 of 2 is given twice"):
        in_order(["a-00001-of-00002.npy", "a-00002-of-00002.npy", "./a-00001-of-00002.npy"])
    mixed = ["a-00002-of-00003.npy", "b-00001-of-00003.npy"]
    assert in_order(mixed) == mixed


def test_shards_of_the_models_own_data(place, tmp_path, capsys):
    ok(capsys, "score", place / "few", "--out", tmp_path / "one.npy")
    words = ["score", place / "few", "--out", tmp_path / "all.npy"]
    in_shards(capsys, 2, tmp_path / "all.npy", *words)
    np.testing.assert_array_equal(np.load(tmp_path / "all.npy"), np.load(tmp_path / "one.npy"))
    assert len(np.load(tmp_path / "one.npy")) == len(data.load(place / "x.csv").test)
