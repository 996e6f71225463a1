"""Laws of `darn compress`, `decompress` and `inspect`: whatever goes in comes out, or one sentence says why not."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import randomised
from PIL import Image

from darn import cli, codec
from darn.config import Architecture
from darn.data import _tiles, check_restore, unit_mask
from darn.errors import DarnError
from darn.model_file import save_model
from darn.paper.recipes import RECIPES
from darn.runs import two_part
from darn.zoo import build

RNG = np.random.default_rng(0)
SHAPE = (4, 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model file over images of 4 x 3 pixels."""
    model = build(Architecture(n_h=(5,), n_d=(4,), visible="linear"), 12, key=jax.random.key(0))
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    info = {"recipe": RECIPES["digits"].to_json(), "data": {"shape": SHAPE, "columns": None}}
    save_model(path, randomised(model, 1), info)
    return str(path)


def darn(*argv):
    return cli.main([str(a) for a in argv])


def ok(capsys, *argv):
    capsys.readouterr()
    assert darn(*argv) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *argv):
    capsys.readouterr()
    assert darn(*argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("darn: ")
    assert err.count("\n") == 1
    return err


ARRAYS = {
    "uint8": (RNG.random((25, 12)) < 0.5).astype(np.uint8),
    "bool": RNG.random((5, 12)) < 0.5,
    "float": (RNG.random((7, 12)) < 0.5).astype(np.float32),
    "images": (RNG.random((6, 4, 3)) < 0.5).astype(np.int64),
    "no rows": np.zeros((0, 12), np.uint8),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_come_back_as_they_were(run, tmp_path, capsys, kind):
    np.save(tmp_path / "in.npy", ARRAYS[kind])
    said = json.loads(ok(capsys, "compress", run, tmp_path / "in.npy", tmp_path / "x.drn", "--json", "--quiet"))
    assert said["bytes"] == os.path.getsize(tmp_path / "x.drn")
    assert abs(said["rounding_cost_nats_a_row"]) < 0.05
    ok(capsys, "decompress", run, tmp_path / "x.drn", tmp_path / "out.npy", "--quiet")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "in.npy").read_bytes()
    kept = json.loads(ok(capsys, "inspect", tmp_path / "x.drn", "--json"))
    assert kept["rows"] == len(ARRAYS[kind])
    assert kept["bytes"] == said["bytes"]


def test_tables_and_pipes(run, tmp_path, capsys, monkeypatch):
    x = ARRAYS["uint8"]
    np.savetxt(tmp_path / "in.csv", x, fmt="%d", delimiter=",")
    ok(capsys, "compress", run, tmp_path / "in.csv", tmp_path / "x.drn")
    ok(capsys, "decompress", run, tmp_path / "x.drn", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "in.csv").read_bytes()
    ok(capsys, "decompress", run, tmp_path / "x.drn", tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), x)

    def piped(data, *argv):
        out = SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: False, flush=lambda: None, write=lambda s: None)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdout", out)
        assert darn(*argv) == 0
        monkeypatch.undo()
        return out.buffer.getvalue()

    packed = piped((tmp_path / "in.csv").read_bytes(), "compress", run, "-", "-")
    assert packed == (tmp_path / "x.drn").read_bytes()
    assert piped(packed, "decompress", run, "-", "-") == (tmp_path / "in.csv").read_bytes()
    np.save(tmp_path / "in.npy", x)
    packed = piped((tmp_path / "in.npy").read_bytes(), "compress", run, "-", "-")
    np.testing.assert_array_equal(np.load(io.BytesIO(piped(packed, "decompress", run, "-", "-"))), x)


def test_a_table_of_words_comes_back_cell_by_cell(run, tmp_path, capsys, monkeypatch):
    """'?' for what is missing, 1.0 for 1, a comma inside a value, columns in another order."""
    monkeypatch.chdir(tmp_path)
    kinds, cells = ['"cat, tabby"', "dog", "?"], ["1.0", "2"]
    lines = [f"{kinds[i % 3]},{cells[i % 2]},{i % 5 // 4}" for i in range(60)]
    Path("t.csv").write_text("kind,legs,bit\n" + "\n".join(lines) + "\n")
    ok(capsys, "train", "t.csv", "--categorical", "auto", "--tiny", "--quiet")
    ok(capsys, "compress", "runs/t", "t.csv", "t.drn")
    ok(capsys, "decompress", "runs/t", "t.drn", "back.csv")
    assert Path("back.csv").read_text() == Path("t.csv").read_text()
    other = "\n".join(",".join(line.rsplit(",", 1)[::-1]) for line in ["kind,legs,bit", *lines]) + "\n"
    Path("other.csv").write_text(other)
    ok(capsys, "compress", "runs/t", "other.csv", "o.drn")
    assert ok(capsys, "decompress", "runs/t", "o.drn", "-") == other
    Path("two.csv").write_text("kind,legs,bit\ndog,1.0,0\n dog ,1,0.0\n")
    ok(capsys, "compress", "runs/t", "two.csv", "two.drn")
    ok(capsys, "decompress", "runs/t", "two.drn", "back.csv")
    assert Path("back.csv").read_text() == Path("two.csv").read_text()
    Path("more.csv").write_text("kind,legs,bit,tail\ncow,1.0,0,1\n")  # a column and a value that are not modelled
    ok(capsys, "compress", "runs/t", "more.csv", "more.drn")
    assert ok(capsys, "decompress", "runs/t", "more.drn", "-") == Path("more.csv").read_text()
    Path("less.csv").write_text("kind,bit\ndog,1.0\n")
    assert "no column 'legs'" in refused(capsys, "compress", "runs/t", "less.csv", "x.drn")
    assert ".csv" in refused(capsys, "decompress", "runs/t", "t.drn", "x.npy")
    assert "holds a table" in refused(capsys, "decompress", run, "t.drn", "x.csv")
    assert not Path("x.drn").exists()
    assert not Path("x.csv").exists()


def test_a_table_of_numbers_takes_the_length_that_eval_says(tmp_path, capsys, monkeypatch):
    """Every cell comes back, at the model's own -log p of the values: cells by the model, numbers by their density."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [
        f"{d},{n},{f:.2f},{k}"
        for d, n, f, k in zip(
            np.datetime64("2014-01-01") + rng.integers(0, 900, 3000),
            rng.poisson(300, 3000),
            rng.normal(0, 9, 3000),
            rng.choice(["a", "b", ""], 3000),
        )
    ]
    Path("t.csv").write_text("day,count,size,kind\n" + "\n".join(rows) + "\n")
    argv = ["train", "t.csv", "--categorical", "auto", "--quiet", "--n_h", "", "--epochs", "2"]
    ok(capsys, *argv)
    said = json.loads(ok(capsys, "compress", "runs/t", "t.csv", "t.drn", "--json"))
    ok(capsys, "decompress", "runs/t", "t.drn", "back.csv")
    assert Path("back.csv").read_bytes() == Path("t.csv").read_bytes()
    # A density of `size` in units of 0.01; days and counts have steps of 1.
    wanted = json.loads(ok(capsys, "eval", "runs/t", "t.csv", "--json"))["nll"] + np.log(100)
    assert said["model_asks_nats_a_row"] == pytest.approx(wanted, abs=0.01)
    assert said["overhead_bytes"] < 400
    Path("u.csv").write_text("day,count,size,kind\n" + "2014-02-30,1e9,-0.001,z\n" * 3)
    ok(capsys, "compress", "runs/t", "u.csv", "u.drn")
    assert ok(capsys, "decompress", "runs/t", "u.drn", "-") == Path("u.csv").read_text()
    # The same weights over a table of other numbers cannot read the file.
    Path("v.csv").write_text(Path("t.csv").read_text().replace("2014", "2015"))
    ok(capsys, *argv[:1], "v.csv", *argv[2:], "--out", "runs/v")
    assert "another" in refused(capsys, "decompress", "runs/v", "t.drn", "x.csv")
    assert not Path("x.csv").exists()


def picture(path, height, width, seed=0):
    bits = np.random.default_rng(seed).random((height, width)) < 0.5
    Image.fromarray((bits * 255).astype(np.uint8)).convert("1").save(path)
    return bits


def test_images_of_any_size_come_back_under_their_names(run, tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    sizes = {"a.png": (4, 3), "b.pbm": (9, 10), "c.png": (1, 1), "page.pbm": (33, 20)}
    bits = {name: picture(folder / name, *size, seed=i) for i, (name, size) in enumerate(sizes.items())}
    ok(capsys, "compress", run, folder, tmp_path / "x.drn")
    ok(capsys, "decompress", run, tmp_path / "x.drn", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(sizes)
    for name, expected in bits.items():
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / name).convert("L")) > 0, expected)
    assert "images     4" in ok(capsys, "inspect", tmp_path / "x.drn")
    ok(capsys, "compress", run, folder / "page.pbm", tmp_path / "one.drn")
    ok(capsys, "decompress", run, tmp_path / "one.drn", tmp_path / "page.pbm")
    assert (tmp_path / "page.pbm").read_bytes() == (folder / "page.pbm").read_bytes()


def test_tiles_and_their_masks():
    image = (RNG.random((9, 10)) < 0.5).astype(np.uint8)
    rows = _tiles.cut(image, SHAPE)
    np.testing.assert_array_equal(_tiles.paste(rows, image.shape, SHAPE), image)
    notes = {"images": [["a.png", 9, 10], ["b.png", 4, 3], ["c.png", 1, 1]], "tile": SHAPE}
    there = unit_mask(notes)
    whole = there(0, 14)
    assert whole.sum() == 90 + 12 + 1
    for i in range(14):
        for j in range(i + 1, 15):
            np.testing.assert_array_equal(there(i, j), whole[i:j])
    assert unit_mask({"images": [["b.png", 8, 6]], "tile": SHAPE}) is None


def test_a_model_that_travels_inside(tmp_path, capsys, monkeypatch):
    """Rows of eight columns that repeat four: the trained file opens without a model."""
    left = RNG.random((400, 4)) < 0.3
    x = np.concatenate([left, left], axis=1).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    some = {k: v for k, v in two_part.candidates(8).items() if not v.n_h}
    monkeypatch.setattr(two_part, "candidates", lambda n: some)
    monkeypatch.setattr(two_part, "GRIDS", (1, 3))
    monkeypatch.setattr(two_part, "STEPS", 600)
    said = json.loads(ok(capsys, "compress", "--train", tmp_path / "x.npy", tmp_path / "x.drn", "--json"))
    assert said["model_bytes"] > 0
    assert said["bytes"] < 400 * 4 * 0.9 / 8 + said["model_bytes"] + 60  # half of the columns cost next to nothing
    assert min(said["candidates"], key=said["candidates"].get) == said["trained"]
    assert codec.inspect((tmp_path / "x.drn").read_bytes()).model == said["model_bytes"]
    ok(capsys, "decompress", tmp_path / "x.drn", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x)


def test_a_table_and_its_model_in_one_file(tmp_path, capsys, monkeypatch):
    """The schema travels with the weights; one that does not fit these is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(two_part, "STEPS", 20)
    monkeypatch.setattr(two_part, "GRIDS", (3,))
    monkeypatch.setattr(two_part, "candidates", lambda n: {"few": Architecture(n_h=(), visible="factorial")})
    rows = [f'{i * i % 97},{"ab"[i % 2]},"n, {i}",{i / 7:.3f}' for i in range(120)]
    Path("t.csv").write_text("n,k,id,x\n" + "\n".join(rows) + "\n")
    said = json.loads(ok(capsys, "compress", "--train", "t.csv", "t.drn", "--json", "--quiet"))
    assert said["general_compressor"][1] < len(Path("t.csv").read_bytes())
    ok(capsys, "decompress", "t.drn", "back.csv", "--quiet")
    assert Path("back.csv").read_bytes() == Path("t.csv").read_bytes()
    with open("t.drn", "rb") as f:
        head = codec.read_head(f)
        rest = f.read()
    for change in ([], [5], head.notes["table"]["inside"][:1], None):
        notes = {"table": head.notes["table"] | {"inside": change}}
        Path("f.drn").write_bytes(dataclasses.replace(head, notes=notes).to_bytes() + rest)
        refused(capsys, "decompress", "f.drn", "x.csv", "--quiet")
        assert not Path("x.csv").exists()


def test_refusals_leave_nothing(run, tmp_path, capsys):
    np.save(tmp_path / "x.npy", ARRAYS["uint8"])
    np.save(tmp_path / "grey.npy", np.full((3, 12), 0.5))
    np.save(tmp_path / "wide.npy", np.zeros((3, 13)))
    Image.fromarray(np.full((4, 3), 100, np.uint8)).save(tmp_path / "grey.png")
    out = tmp_path / "x.drn"
    for source, why in (("grey.npy", "0 and 1"), ("wide.npy", "12 columns"), ("grey.png", "black and white")):
        assert why in refused(capsys, "compress", run, tmp_path / source, out)
    assert "there is no file" in refused(capsys, "compress", run, tmp_path / "none.csv", out)
    assert "RUN IN OUT, or --train IN OUT" in refused(capsys, "compress", run, tmp_path / "x.npy")
    for argv in (["inspect", tmp_path / "x.npy"], ["decompress", tmp_path / "x.npy", tmp_path / "y.npy"]):
        assert "x.npy: this is not a compressed" in refused(capsys, *argv)
    assert not out.exists()
    ok(capsys, "compress", run, tmp_path / "x.npy", out)
    assert "does not contain its model" in refused(capsys, "decompress", out, tmp_path / "y.npy")
    assert ".npy or .csv" in refused(capsys, "decompress", run, out, tmp_path / "y.jpg")
    data = out.read_bytes()
    out.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    assert "damaged" in refused(capsys, "decompress", run, out, tmp_path / "y.npy")
    assert "left out" in ok(capsys, "decompress", run, out, tmp_path / "z.npy", "--keep-going")
    out.write_bytes(data[:-1])
    assert "truncated" in refused(capsys, "inspect", out)
    assert not (tmp_path / "y.npy").exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


@pytest.mark.parametrize(
    "notes",
    [
        *({"images": [[name, 4, 3]], "tile": SHAPE} for name in ("../evil.png", "/etc/evil.png", "evil.sh")),
        {"images": [["a.png", 4, 3]], "tile": [0, 12]},
        {"images": [["a.png", 4, 3]], "tile": [2, 6]},
        {"images": [["a.png", 4, 4]], "tile": SHAPE},
        {"images": [["a.png", -4, 3]], "tile": SHAPE},
        {"images": 3, "tile": SHAPE},
        {"dtype": "O"},
        {"shape": [5, 5]},
    ],
)
def test_a_file_cannot_ask_for_what_does_not_fit(notes, tmp_path):
    """Names outside the folder, tiles that do not make up the row, objects in place of numbers."""
    with pytest.raises(DarnError, match="not genuine"):
        check_restore(str(tmp_path / "out"), notes, 1, 12)


def test_a_killed_compression_leaves_no_file(run, tmp_path):
    np.save(tmp_path / "x.npy", (RNG.random((300_000, 12)) < 0.5).astype(np.uint8))
    command = [sys.executable, "-m", "darn", "compress", run, str(tmp_path / "x.npy"), str(tmp_path / "x.drn")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if list(tmp_path.glob(".x-*")):  # it has begun to write
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "x.drn").exists()
