"""Packed sets: the rows of any file, in a folder, trained on and read as if they were in memory."""

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import same
from PIL import Image

import darn
from darn import DarnError, data, random
from darn.cli import main
from darn.data import _pack, _pack_rows, _pack_write, _raw
from darn.runs.run import load
from darn.training import _feed, _order, _step

BITS = (np.random.default_rng(0).random((523, 21)) < 0.3).astype(np.uint8)
GREY = np.random.default_rng(1).integers(0, 256, (120, 6, 5), dtype=np.uint8)
LABELS = np.arange(523) % 3


@pytest.fixture
def small(monkeypatch):
    """Parts, chunks and what is held in memory are of a few hundred bytes, as if sets were large."""
    monkeypatch.setattr(_pack_write, "PART", 400)
    monkeypatch.setattr(_pack_rows, "HELD", 0)
    monkeypatch.setattr(_pack_rows, "AT_ONCE", 50)
    monkeypatch.setattr(_feed, "CHUNK", 300)


@pytest.fixture(params=[False, True], ids=["few rows", "very many rows"])
def many(request, monkeypatch):
    """A hundred rows count as so many that no list of their numbers is made."""
    for module in (_raw, random, _order) if request.param else ():
        monkeypatch.setattr(module, "MANY", 100)

    def forget():  # what is compiled already has the other number in it
        jax.clear_caches()
        _step._PROGRAMS.clear()

    forget()
    yield
    forget()


def write_table(path, rows=300):
    r = np.random.default_rng(2)
    words = ["u", "v", "w w"]
    lines = [f"{words[r.integers(3)]},{r.normal() * 9:.2f},{'pq'[r.integers(2)]},{r.random():.3f}" for _ in range(rows)]
    path.write_text("\n".join(["a,b,kind,w", *lines]) + "\n")


def write_images(folder):
    folder.mkdir()
    for i, image in enumerate(GREY):
        Image.fromarray(image).save(folder / f"{i:03}.png")


def write_parquet(path):
    import polars

    polars.DataFrame(BITS).write_parquet(path)


def write_splits(path):
    np.savez(
        path, train=BITS, valid=BITS[:40], test=BITS[50:90], y_train=LABELS, y_valid=LABELS[:40], y_test=LABELS[:40]
    )


# name: (file, writes it, how it is read)
FILES = {
    "npy": ("x.npy", lambda p: np.save(p, BITS), {}),
    "images as arrays": ("x.npy", lambda p: np.save(p, BITS.reshape(-1, 7, 3)), {}),
    "npz of splits": ("x.npz", write_splits, {"labels": "label"}),
    "csv with a label": ("x.csv", lambda p: np.savetxt(p, BITS, fmt="%d", delimiter=","), {"labels": -1}),
    "parquet": ("x.parquet", write_parquet, {}),
    "words": ("t.csv", write_table, {"labels": "kind", "columns": data.Columns("auto", weights="w")}),
    "numbers": ("t.csv", write_table, {"columns": data.Columns("auto", drop="kind", column=["b=number"])}),
    "folder of images": ("images", write_images, {"binarize": "intensity"}),
    "grey levels": ("g.npy", lambda p: np.save(p, GREY), {"binarize": "dynamic"}),
}


def packed(folder, name):
    """(the file, the set, how the file is read, how the set is)."""
    file, write, how = FILES[name]
    write(folder / file)
    data.pack_files([folder / file], folder / "set", **how)
    return folder / file, folder / "set", how, {k: v for k, v in how.items() if k != "columns"}


def check_rows(a, b):
    for name in ("values", "context", "weights", "log_density"):
        one, two = getattr(a, name), getattr(b, name)
        assert (one is None) == (two is None), name
        assert one is None or np.array_equal(one, two), name
    assert (a.n, a.grey) == (b.n, b.grey)


@pytest.mark.parametrize("name", FILES)
def test_a_set_has_the_rows_of_its_files(name, tmp_path, small, many, monkeypatch):
    """Splits, contexts, weights, densities and means, bit for bit, in memory or not."""
    file, folder, how, again = packed(tmp_path, name)
    there = data.load(file, **how)
    for held in (0, 1 << 20):
        monkeypatch.setattr(_pack_rows, "HELD", held)
        found = data.load(folder, **again)
        for split in ("train", "valid", "test"):
            one, two = getattr(there, split), getattr(found, split)
            assert two.in_parts == (not held and (name != "grey levels" or split == "train"))
            assert np.array_equal(one.mean(), two.mean())
            check_rows(one, two.held() if two.in_parts else two)
            check_rows(one.take(slice(5, 9)), two.take(slice(5, 9)))
        assert (there.shape, there.classes, there.columns) == (found.shape, found.classes, found.columns)
    if name != "npz of splits":
        whole = dict(how) | ({"columns": data.Columns(schema=there.schema)} if there.schema else {})
        one, two = data.load_rows(file, **whole, classes=there.classes), data.load_rows(folder, **again)
        check_rows(one, two.__class__(two.values, two.n, two.grey, two.context, None, one.weights, two.log_density))


def test_several_files_follow_each_other(tmp_path, small):
    np.save(tmp_path / "a.npy", BITS[:100])
    np.savetxt(tmp_path / "b.csv", BITS[100:], fmt="%d", delimiter=",")
    data.pack_files([tmp_path / "a.npy", tmp_path / "b.csv"], tmp_path / "set")
    assert np.array_equal(data.load_rows(tmp_path / "set").unpack(), BITS)


# ---------------------------------------------------------------- training

TRAININGS = {
    "words": ("words", {"n_h": 3, "n_d": 4}, darn.Training(epochs=3, batch=7, lr=1e-2, average=0.9)),
    "dynamic": ("grey levels", {"n_h": 0}, darn.Training(epochs=3, batch=96, lr=1e-2)),
    "noise": ("npy", {"n_h": 2, "n_d": 3}, darn.Training(epochs=2, batch=50, lr=1e-2, noise="matrix")),
}


def fresh(splits, fields):
    context = splits.train.context
    n_context = 0 if context is None else context.shape[1]
    key, n = jax.random.key(0), splits.train.n
    return darn.zoo.darn(n, key=key, n_context=n_context, **fields) if fields["n_h"] else darn.zoo.fvsbn(n, key=key)


@pytest.mark.parametrize("name", TRAININGS)
def test_training_from_a_set_gives_the_weights_of_training_in_memory(name, tmp_path, small, many):
    file, fields, config = TRAININGS[name]
    file, folder, how, again = packed(tmp_path, file)
    found = []
    for path, options in ((file, how), (folder, again)):
        splits = data.load(path, **options)
        dynamic = options.get("binarize") == "dynamic"
        found.append(darn.fit(fresh(splits, fields), splits.train, splits.valid, config, dynamic=dynamic))
    same(found[0].model, found[1].model)
    np.testing.assert_allclose(found[0].bound, found[1].bound, rtol=1e-6)
    assert found[0].steps == found[1].steps


def test_steps_in_blocks_are_the_same_steps(tmp_path, small, monkeypatch):
    """As on a GPU: loops of known length, and one for the rest. Any number of them may be asked for at once."""
    _, folder, _, again = packed(tmp_path, "npy")
    splits = data.load(folder, **again)
    config = darn.Training(epochs=2, batch=16, lr=1e-2)
    monkeypatch.setattr(_feed, "CHUNK", 1 << 20)
    found = []
    for size in (1, 7):
        monkeypatch.setattr(_step, "steps_a_block", lambda size=size: size)
        _step._PROGRAMS.clear()
        loop = darn.training.Loop([fresh(splits, {"n_h": 3, "n_d": 4})], [config], splits.train, splits.valid)
        text = loop.program.steps.lower((loop.state, loop.program.no_sums(())), loop.hyper, chunk_of(loop), 0, 0, 0, 1)
        assert ('known_trip_count":{"n":"7"' in text.compile().as_text()) == (size == 7)
        monkeypatch.setattr(darn.training.Loop, "_at_once", property(lambda _: 17, lambda *_: None), raising=False)
        while loop.running:
            loop.advance()
        found.append(loop.state)
    _step._PROGRAMS.clear()
    same(*found)


def chunk_of(loop):
    return loop.feed._chunk((0, 0))


def test_chunks_of_an_epoch_are_of_even_length(tmp_path, small, monkeypatch):
    """Since the last one is filled up: 418 rows are 26 steps of 16, in chunks of at most 11."""
    _, folder, _, again = packed(tmp_path, "npy")
    splits = data.load(folder, **again)
    monkeypatch.setattr(_feed, "CHUNK", 11 * 16 * splits.train.bytes_a_row)
    config = darn.Training(epochs=2, batch=16, lr=1e-2)
    loop = darn.training.Loop([fresh(splits, {"n_h": 0})], [config], splits.train, splits.valid)
    assert (loop.program.steps_per_epoch, loop.feed.steps) == (26, 9)


def test_a_run_resumes_in_the_middle_of_an_epoch(tmp_path, small):
    """Interrupted after any call, resumed bit for bit, with the history and the steps of an unbroken run."""
    _, folder, _, again = packed(tmp_path, "npy")
    splits = data.load(folder, **again)
    config = darn.Training(epochs=4, batch=20, lr=1e-2, validate_every=2, checkpoint_every=0.0)
    model = fresh(splits, {"n_h": 3, "n_d": 4})
    whole = darn.fit(model, splits.train, splits.valid, config)
    stops = iter((2, 3, 7, 40))  # calls before each interruption
    advance, left = darn.training.Loop.advance, [0]

    def counted(loop):
        advance(loop)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 2)

    found, parts = None, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(darn.training.Loop, "advance", counted)
        for count in stops:
            left[0] = count
            found = darn.fit(model, splits.train, splits.valid, config, folder=tmp_path / "run", resume=True)
            parts.append(found.steps % 20)
            if not found.interrupted:
                break
    assert found is not None
    assert any(parts)  # in the middle of an epoch
    assert not found.interrupted
    same(whole.model, found.model)
    assert whole.steps == found.steps
    times = ("step", "epoch", "valid")
    assert [[v[k] for k in times] for v in whole.history] == [[v[k] for k in times] for v in found.history]
    np.testing.assert_allclose(whole.history[-1]["train"]["bound"], found.history[-1]["train"]["bound"], rtol=1e-6)


# ---------------------------------------------------------------- damage


def forged(folder, **fields):
    """Writes a manifest with other fields and the checksum that belongs to them."""
    path = folder / "manifest.json"
    path.write_text(_pack.signed(json.loads(path.read_text())["set"] | fields))


def flipped(path, at=5):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def rows_of(folder, rows):
    about = json.loads((folder / "manifest.json").read_text())["set"]
    return {"parts": [about["parts"][0] | {"rows": rows}, *about["parts"][1:]]}


DAMAGE = {
    "a flipped bit": lambda d: flipped(d / "00001.rows"),
    "a part cut short": lambda d: os.truncate(d / "00001.rows", 100),
    "a part too long": lambda d: (d / "00001.rows").write_bytes((d / "00001.rows").read_bytes() + b"x"),
    "no part": lambda d: (d / "00001.rows").unlink(),
    "a pipe for a part": lambda d: ((d / "00001.rows").unlink(), os.mkfifo(d / "00001.rows")),
    "a folder for a part": lambda d: ((d / "00001.rows").unlink(), (d / "00001.rows").mkdir()),
    "no manifest": lambda d: (d / "manifest.json").unlink(),
    "half a manifest": lambda d: os.truncate(d / "manifest.json", 100),
    "a damaged manifest": lambda d: flipped(d / "manifest.json", 200),
    "no JSON": lambda d: (d / "manifest.json").write_text("[]"),
    "another format": lambda d: forged(d, format="x"),
    "a later version": lambda d: forged(d, version=2),
    "many columns": lambda d: forged(d, n=2**40),
    "fewer columns": lambda d: forged(d, n=20),
    "wide context": lambda d: forged(d, n_context=2**30),
    "many rows": lambda d: forged(d, **rows_of(d, 2**62)),
    "a part of more than fits": lambda d: forged(d, **rows_of(d, _pack.PART // 3 + 1)),
    "no rows": lambda d: forged(d, **rows_of(d, 0)),
    "no parts": lambda d: forged(d, parts=[]),
    "names for other columns": lambda d: forged(d, columns=["x"]),
    "another shape": lambda d: forged(d, shape=[3, 3]),
    "a table of nothing": lambda d: forged(d, table={"columns": []}),
    "a table of a number": lambda d: forged(d, table=7),
    "a long format": lambda d: forged(d, format="x" * 10**5),
    "an unknown field": lambda d: forged(d, more=1),
    "text for a number": lambda d: forged(d, n="21"),
    "weights that are not there": lambda d: forged(d, weighted=True),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("trained")
    np.save(home / "x.npy", BITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pack_write, "PART", 400)
        data.pack_files([home / "x.npy"], home / "set")
    splits = data.load(home / "set")
    fit = darn.fit(fresh(splits, {"n_h": 0}), splits.train, splits.valid, darn.Training(epochs=1), folder=home / "run")
    assert fit.epochs == 1
    return home


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_sets_are_refused_in_a_sentence(name, trained, tmp_path, capsys, monkeypatch, small):
    shutil.copytree(trained / "set", tmp_path / "set")
    DAMAGE[name](tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    run = str(trained / "run")
    for words in (
        ["train", "set", "--epochs", "1", "--quiet", "--out", "run"],
        ["eval", run, "set", "--per-row", "o.npy"],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith("darn: ")
        assert "\n" not in said
        assert len(said) < 1000
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "o.npy").exists()


def test_damage_that_is_found_late_ends_training(trained, tmp_path, small):
    """A part that is cut short while it is trained on is a sentence, not a crash."""
    shutil.copytree(trained / "set", tmp_path / "set")
    splits = data.load(tmp_path / "set")
    model = fresh(splits, {"n_h": 0})

    def cut(*_):
        os.truncate(tmp_path / "set" / "00001.rows", 100)

    loop = darn.training.Loop([model], [darn.Training(epochs=9)], splits.train, splits.valid, on_validation=cut)
    with pytest.raises(DarnError, match="bytes instead of"):
        while loop.running:
            loop.advance()
    loop.feed.close()


# ---------------------------------------------------------------- writing


def test_a_folder_that_is_in_use_is_refused(tmp_path, trained):
    np.save(tmp_path / "x.npy", BITS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("keep")
    for out in (tmp_path / "full", tmp_path / "x.npy", tmp_path, trained / "set"):
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        with pytest.raises(DarnError, match="choose another folder"):
            data.pack_files([tmp_path / "x.npy"], out)
        assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_what_a_killed_pack_leaves_is_no_set_and_can_be_packed_over(tmp_path):
    np.save(tmp_path / "x.npy", BITS)
    out = tmp_path / "set"
    killed = "_pack_write.PART = 400; _pack_write._Parts.__exit__ = lambda *_: os.kill(os.getpid(), 9)"
    program = f"import os; from darn.data import _pack_write; {killed}; _pack_write.pack_files(['x.npy'], 'set')"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == -9
    assert (out / "00000.rows").exists()
    with pytest.raises(DarnError, match="not finished"):
        data.load(out)
    data.pack_files([tmp_path / "x.npy"], out)
    assert np.array_equal(data.load_rows(out).unpack(), BITS)


def test_a_full_disk_leaves_nothing(tmp_path, small, monkeypatch):
    np.save(tmp_path / "x.npy", BITS)

    def full(self, records):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_pack_write._Parts, "add", full)
    with pytest.raises(DarnError, match="no space left"):
        data.pack_files([tmp_path / "x.npy"], tmp_path / "deep" / "set")
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]


WRONG = {
    "other columns": ("other", "columns"),
    "grey levels": ("grey", "grey levels|values"),
    "splits": ("splits", "splits"),
    "a set": ("set", "packed set already"),
    "no file": ("nothing.npy", "there is no file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_do_not_go_together(name, tmp_path):
    np.save(tmp_path / "x.npy", BITS)
    np.save(tmp_path / "other.npy", BITS[:, 1:])
    np.save(tmp_path / "grey.npy", np.full((9, 21), 0.5))
    np.savez(tmp_path / "splits.npz", train=BITS, valid=BITS, test=BITS)
    data.pack_files([tmp_path / "x.npy"], tmp_path / "set")
    stem, said = WRONG[name]
    file = next((p for p in tmp_path.iterdir() if stem in (p.stem, p.name)), tmp_path / stem)
    with pytest.raises(DarnError, match=said):
        data.pack_files([tmp_path / "x.npy", file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- commands


def test_commands_take_a_set_as_they_take_a_file(tmp_path, monkeypatch, capsys, small):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", BITS)

    def ok(*words):
        assert main([str(w) for w in words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert json.loads(ok("data", "pack", "x.npy", "--out", "set", "--json"))["rows"] == {"all": 523}
    ok("train", "set", "--n_h", 3, "--epochs", 2, "--batch", 20, "--quiet", "--out", "a")
    ok("train", "x.npy", "--n_h", 3, "--epochs", 2, "--batch", 20, "--quiet", "--out", "b")
    one, two = (load(run).model for run in "ab")
    same(one, two)
    for split in ([], ["--split", "test"]):
        for given, out in (("set", "s"), ("x.npy", "t")):
            ok("eval", "a", given, *split, "--per-row", f"{out}.npy")
            ok("encode", "a", given, "--out", f"{out}-h.npy")
        assert np.array_equal(np.load("s.npy"), np.load("t.npy"))
        assert np.array_equal(np.load("s-h.npy"), np.load("t-h.npy"))
    ok("compress", "a", "set", "set.drn", "--quiet")
    ok("decompress", "a", "set.drn", "back.npy", "--quiet")
    assert np.array_equal(np.load("back.npy"), BITS)
