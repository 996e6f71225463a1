"""Laws of the command line: it does what it is asked, or says in one sentence why not and leaves nothing behind."""

import contextlib
import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from darn import cli
from darn.cli._main import CommandLine
from darn.files import atomic

BITS = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(int)
QUICK = ("--tiny", "--quiet")


def darn(*argv):
    try:
        return cli.main([str(a) for a in argv])
    except SystemExit as e:  # --help
        return e.code


def ok(capsys, *argv):
    """Runs a command that must end well; returns what it printed."""
    capsys.readouterr()
    status = darn(*argv)
    out, err = capsys.readouterr()
    assert status == 0, err
    assert "Traceback" not in err
    return out


def facts(capsys, *argv):
    """The JSON that a command prints, read strictly: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(ok(capsys, *argv, "--json"), parse_constant=refuse)


OPTIONS = CommandLine().options()


def refused(capsys, *argv, status=2):
    """Runs a command that must be refused; returns its one sentence, which names no option that the command lacks."""
    capsys.readouterr()
    assert darn(*argv) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("darn: "), err
    assert err.count("\n") == 1, err
    assert len(err) < 500
    if argv[0] in OPTIONS and "there is no option" not in err:
        named = re.findall(r"(?<![\w-])--[a-z][\w-]*", "".join(err.split("`")[::2]))
        assert set(named) <= OPTIONS[argv[0]], err
    return err


def csv(path, rows, header=None):
    lines = ([",".join(header)] if header else []) + [",".join(map(str, r)) for r in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def npy(path, X):
    np.save(path, X)
    return path


def text(path, content):
    path.write_bytes(content)
    return path


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Every test runs in an empty folder of its own, where no data set is and none can be fetched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DARN_DATA", str(tmp_path / "sets"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def trained(home, name, *argv):
    """A run folder, trained by the first test that asks for it."""
    if not (home / name).exists():
        assert darn("train", *argv, *QUICK, "--out", home / name) == 0
    return home / name


@pytest.fixture
def run(home):
    return trained(home, "digits", "digits")


@pytest.fixture
def table(home):
    """A run of a table with a header and class labels."""
    rows = [[*r, "cat" if i % 2 else "dog"] for i, r in enumerate(BITS.tolist())]
    path = home / "table.csv"
    if not path.exists():
        csv(path, rows, [*"abcdef", "kind"])
    return trained(home, "table", path, "--labels", "kind")


# ---------------------------------------------------------------- what it refuses


def bent(X, value, at=(3, 2)):
    X = X.astype(float)
    X[at] = value
    return X


def odd_column(values):
    return np.column_stack([BITS, values])


# name: (what makes the file to train on, parts of the sentence)
BAD_DATA = {
    "not binary": (lambda d: csv(d / "a.csv", bent(BITS, -7)), ["-7", "row 4, column 3", "0 and 1"]),
    "grey": (lambda d: npy(d / "a.npy", BITS * 0.5), ["--binarize ", "threshold"]),
    "NaN": (lambda d: npy(d / "a.npy", bent(BITS, np.nan)), ["nan", "row 4, column 3"]),
    "NaN in a table": (lambda d: csv(d / "a.csv", bent(BITS, np.nan)), ["nan", "row 4, column 3"]),
    "one row": (lambda d: csv(d / "a.csv", BITS[:1]), ["1 row", "at least 10"]),
    "no rows": (lambda d: npy(d / "a.npy", BITS[:0]), ["no rows"]),
    "header only": (lambda d: text(d / "a.csv", b"a,b,c\n"), ["no rows", "header"]),
    "empty": (lambda d: text(d / "a.csv", b""), ["empty"]),
    "labels mixed in": (lambda d: csv(d / "a.csv", odd_column(np.arange(40) % 5)), ["class label", "--labels 6"]),
    "words mixed in": (lambda d: csv(d / "a.csv", odd_column(["cat", "dog"] * 20)), ["'cat'", "--labels 6"]),
    "ragged": (lambda d: text(d / "a.csv", b"0,1\n0,1,1\n0,1\n"), ["line 2", "3 values"]),
    "binary junk": (lambda d: text(d / "a.csv", bytes(range(256)) * 4), ["a.csv"]),
    "cut npy": (lambda d: text(d / "a.npy", b"\x93NUMPY\x01"), ["a.npy", "damaged"]),
    "unknown kind": (lambda d: text(d / "a.xlsx", b"PK"), ["a.xlsx", ".csv"]),
    "no images": (lambda d: d, ["without images"]),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_are_refused(case, tmp_path, capsys):
    make, parts = BAD_DATA[case]
    path = make(tmp_path)
    before = tree(tmp_path)
    for command in (("train", path, *QUICK), ("data", path)):
        said = refused(capsys, *command)
        assert all(p in said for p in parts), said
    assert tree(tmp_path) == before


# name: (arguments after `train`, parts of the sentence)
BAD_TRAIN = {
    "unknown recipe": (["mushroom"], ["'mushroom'", "did you mean mushrooms?"]),
    "nothing like it": (["qqqqqq"], ["qqqqqq", "darn recipes"]),
    "no file": (["my/own.csv"], ["my/own.csv"]),
    "endless name": (["x" * 300], ["called"]),
    "unknown field": (["digits", "--epoch", "3"], ["--epoch", "--epochs"]),
    "field far off": (["digits", "--zzzzzz", "3"], ["--zzzzzz", "darn train --help"]),
    "field with sign": (["digits", "--n_hh=3"], ["--n_hh", "--n_h"]),
    "not a number": (["digits", "--lr", "fast"], ["--lr", "a number", "'fast'"]),
    "not whole": (["digits", "--epochs", "1.5"], ["--epochs", "whole number"]),
    "not units": (["digits", "--n_h", "8;4"], ["--n_h", "unit counts"]),
    "no units": (["digits", "--n_h", "0"], ["--n_h", "unit counts"]),
    "not true": (["digits", "--skip", "maybe"], ["--skip", "true or false"]),
    "a recipe for the truth": (["--skip", "digits"], ["--skip", "true or false", "'digits'"]),
    "not a choice": (["digits", "--visible", "nad"], ["--visible", "did you mean nade?"]),
    "out of range": (["digits", "--lr", "-1"], ["--lr", "above 0"]),
    "unlike fields": (["digits", "--binarize", "intensity"], ["--visible factorial"]),
    "no such optimiser": (["digits", "--optimizer", "adamm"], ["adamm", "adam"]),
    "no value": (["digits", "--lr"], ["--lr", "expected one argument"]),
    "stray word": (["digits", "extra"], ["'extra'"]),
    "no recipe": ([], ["recipe", "darn train --help"]),
    "labels of nothing": (["digits", "--labels", "7"], ["--labels 'label'"]),
    "no GPU": (["digits", "--device", "gpu"], ["no GPU", "--device gpu"]),
    "no device": (["digits", "--device", "gpux"], ["--device", "did you mean gpu?"]),
    "absent set": (["mushrooms"], ["mushrooms.npz", "DARN_DATA"]),
    "nothing to resume": (["digits", "--resume"], ["no run", "runs/digits"]),
}


@pytest.mark.parametrize("case", BAD_TRAIN)
def test_bad_training_is_refused(case, tmp_path, capsys, monkeypatch):
    import urllib.request

    def offline(*_, **__):
        raise OSError(errno.ENETUNREACH, "no network")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    monkeypatch.setattr("builtins.print", print_quietly(print))
    argv, parts = BAD_TRAIN[case]
    said = refused(capsys, "train", *argv, "--tiny")
    assert all(p in said for p in parts), said
    assert tree(tmp_path) == []


def print_quietly(real):
    """Without the notices of downloads, which are no part of the sentence."""
    return lambda *a, **k: None if str(a[:1]).startswith("('darn: downloading") else real(*a, **k)


# name: (arguments, given a run and a folder; parts of the sentence)
BAD_USE = {
    "no command": (lambda r, d: ["trian", "digits"], ["'trian'", "did you mean train?"]),
    "no option": (lambda r, d: ["--versoin"], ["--versoin", "--version"]),
    "no option like it": (lambda r, d: ["compress", r, r, "--out", r], ["--out", "`darn compress --help` lists"]),
    "unknown recipe": (lambda r, d: ["recipes", "mnist-50"], ["mnist-500"]),
    "unknown set": (lambda r, d: ["data", "mushroms"], ["mushrooms"]),
    "no game": (lambda r, d: ["data", "atari"], ["--game", "pong"]),
    "unknown game": (lambda r, d: ["data", "atari", "--game", "pog"], ["pog", "ale-py"]),
    "too few frames": (lambda r, d: ["data", "atari", "--game", "pong", "--frames", "3"], ["--frames"]),
    "game of a set": (lambda r, d: ["data", "adult", "--game", "pong"], ["darn data atari"]),
    "frames not recorded": (lambda r, d: ["train", "atari/pong"], ["darn data atari --game pong"]),
    "game not in the paper": (lambda r, d: ["reproduce", "atari", "--rows", "pog"], ["pog", "pong"]),
    "unknown binarize": (lambda r, d: ["data", "digits", "--binarize", "x"], ["threshold"]),
    "no model": (lambda r, d: ["eval", d / "none"], ["none", "no model"]),
    "no run": (lambda r, d: ["eval", d], ["no model"]),
    "table for model": (lambda r, d: ["eval", csv(d / "m.csv", BITS)], ["m.csv", "not a readable darn model"]),
    "cut model": (lambda r, d: ["sample", cut(r, d), "--out", "a.npy"], ["cut.safetensors", "truncated"]),
    "foreign model": (lambda r, d: ["eval", foreign(d)], ["file of another program"]),
    "newer model": (lambda r, d: ["eval", newer(r, d)], ["upgrade"]),
    "model of Python": (lambda r, d: ["eval", bare(r, d)], ["without its data"]),
    "checkpoint": (lambda r, d: ["eval", r / "checkpoint.safetensors"], ["file of another program"]),
    "wrong width": (lambda r, d: ["eval", r, csv(d / "a.csv", BITS)], ["6 columns", "64"]),
    "grey rows": (
        lambda r, d: ["eval", r, npy(d / "a.npy", np.full((5, 64), 0.4)), "--every", "2"],
        ["binarize", "`darn train`"],
    ),
    "layer from elsewhere": (lambda r, d: ["train", "digits", "--visible", "urn"], ["--visible", "imported first"]),
    "no module": (lambda r, d: ["eval", r, "--import", "no_such_module"], ["cannot import no_such_module"]),
    "module that fails": (
        lambda r, d: ["recipes", "--import", text(d / "bad_module.py", b"1 / 0").stem],
        ["bad_module", "ZeroDivisionError"],
    ),
    "no rows": (lambda r, d: ["eval", r, npy(d / "a.npy", np.zeros((0, 64)))], ["no rows"]),
    "rows not there": (lambda r, d: ["encode", r, d / "none.csv", "--out", "a.npy"], ["none.csv"]),
    "per-row ending": (lambda r, d: ["eval", r, "--per-row", "a.txt"], ["a.txt", ".npy, .csv or .tsv"]),
    "no samples": (lambda r, d: ["eval", r, "--samples", "0"], ["--samples", "at least 1"]),
    "every none": (lambda r, d: ["eval", r, "--every", "0"], ["--every"]),
    "no precision": (lambda r, d: ["eval", r, "--precision", "0"], ["--precision", "positive", "not 0"]),
    "precision and samples": (
        lambda r, d: ["report", r, "--precision", "0.1", "--samples", "5"],
        ["leave out --precision or --samples"],
    ),
    "quick and samples": (
        lambda r, d: ["eval", r, "--quick", "--samples", "5", "--every", "2"],
        ["--samples, --every"],
    ),
    "target of no table": (lambda r, d: ["report", r, "--target", "f0"], ["a target is a column of a table"]),
    "no part": (lambda r, d: ["reproduce", "table9"], ["the part must be one of table1"]),
    "unknown method": (lambda r, d: ["eval", r, "--method", "exct"], ["darn: --method must be one of"]),
    "repeats of nothing": (lambda r, d: ["eval", r, "--repeats", "5"], ["--repeats", "--samples"]),
    "not whole": (lambda r, d: ["eval", r, "--repeats", "x"], ["--repeats", "'x'"]),
    "no split": (lambda r, d: ["eval", r, "--split", "tset"], ["--split", "did you mean test?"]),
    "no GPU": (lambda r, d: ["eval", r, "--device", "gpu"], ["no GPU"]),
    "no out": (lambda r, d: ["sample", r], ["--out"]),
    "fewer than none": (lambda r, d: ["sample", r, "-n", "-1", "--out", "a.npy"], ["-n"]),
    "empty picture": (lambda r, d: ["sample", r, "-n", "0", "--out", "a.png"], ["-n", "at least 1"]),
    "seed": (lambda r, d: ["sample", r, "--seed", "-1", "--out", "a.npy"], ["--seed"]),
    "large seed": (lambda r, d: ["encode", r, "--seed", 2**40, "--out", "a.npy"], ["--seed"]),
    "picture ending": (lambda r, d: ["sample", r, "--out", "a.jpg"], ["a.jpg", ".png"]),
    "late ending": (lambda r, d: ["sample", r, "--out", "a.png", "--log-joint", "lp"], ["lp", ".npy"]),
    "hidden ending": (lambda r, d: ["sample", r, "--out", "a.png", "--hidden", "h.npy"], ["h.npy", ".npz"]),
    "codes as picture": (lambda r, d: ["encode", r, "--out", "a.png"], ["a.png"]),
    "no class": (lambda r, d: ["sample", r, "--label", "3", "--out", "a.npy"], ["without labels"]),
    "onto a file": (lambda r, d: ["sample", r, "--out", text(d / "f", b"") / "a.npy"], ["cannot write"]),
    "onto a folder": (lambda r, d: ["sample", r, "--out", made(d / "a.npy")], ["a.npy is a folder"]),
    "run exists": (lambda r, d: ["train", "digits", "--out", r], ["exists", "--resume"]),
    "other fields": (
        lambda r, d: ["train", "digits", *QUICK, "--n_h", "9", "--out", r, "--resume"],
        ["--n_h 8, not 9"],
    ),
    "other data": (lambda r, d: ["train", csv(d / "a.csv", BITS), *QUICK, "--out", r, "--resume"], ["digits", "a.csv"]),
    "resume of a folder": (lambda r, d: ["train", "digits", "--out", d, "--resume"], ["not a run folder"]),
    "run under a file": (lambda r, d: ["train", "digits", *QUICK, "--out", text(d / "f", b"") / "r"], ["cannot write"]),
}


def made(path):
    path.mkdir()
    return path


def cut(run, folder):
    return text(folder / "cut.safetensors", (run / "model.safetensors").read_bytes()[:-100])


def foreign(folder):
    save_file({"w": np.zeros(3)}, folder / "foreign.safetensors")
    return folder / "foreign.safetensors"


def newer(run, folder):
    content = (run / "model.safetensors").read_bytes().replace(b'"version":"2"', b'"version":"9"')
    return text(folder / "newer.safetensors", content)


def bare(run, folder):
    from darn import load, save_model

    save_model(folder / "bare.safetensors", load(run).model)
    return folder / "bare.safetensors"


def test_commands_that_read_a_table_take_its_delimiter():
    assert all("--delimiter" in options for options in OPTIONS.values() if "--unseen" in options)


@pytest.mark.parametrize("case", BAD_USE)
def test_bad_use_is_refused(case, run, tmp_path, capsys):
    make, parts = BAD_USE[case]
    argv = make(run, tmp_path)
    before = tree(tmp_path), tree(run)
    said = refused(capsys, *argv)
    assert all(p in said for p in parts), said
    assert [[p for p in t if "__pycache__" not in p] for t in (tree(tmp_path), tree(run))] == [*before]


def test_a_run_by_its_bare_name(run, tmp_path, capsys):
    made(tmp_path / "runs")
    (tmp_path / "runs" / "mine").symlink_to(run)
    assert "did you mean runs/mine?" in refused(capsys, "eval", "mine")


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 3000 bytes for a while, which is how a full disk looks to a writer.

    Not a fixture: pytest reports a test's outcome before it tears the fixtures down, and where its own output goes to
    a file that report would meet the limit too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk(run, tmp_path, capsys):
    for argv in (
        ["train", "digits", *QUICK, "--out", "new"],  # safetensors writes by itself
        ["sample", run, "-n", 500, "--out", "rows.csv"],
        ["encode", run, "--out", "codes.csv"],
    ):
        with full_disk():
            said = refused(capsys, *argv)
        assert "write" in said
        assert "new" in said or "rows" in said or "codes" in said
    assert tree(tmp_path) == []


def test_no_space_left(run, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for argv in (["train", "digits", *QUICK, "--out", "new"], ["eval", run, "--every", 100, "--per-row", "a.npy"]):
        assert "no space left" in refused(capsys, *argv)
    assert tree(tmp_path) == []


def test_no_memory(run, capsys, monkeypatch):
    from darn.inference import sampling

    def greedy(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nmore lines")

    monkeypatch.setattr(sampling, "sample_parts", greedy)
    assert "out of memory" in refused(capsys, "sample", run, "--out", "a.npy")


# ---------------------------------------------------------------- what it does


def test_help_and_lists(capsys):
    for command in ("recipes", "data", "train", "eval", "sample", "encode", "reproduce"):
        out = ok(capsys, command, "--help")
        assert "examples:" in out
        assert f"darn {command}" in out
        assert "--json" in out
    assert "examples:" in ok(capsys)
    assert ok(capsys, "--version").startswith("darn ")
    assert "mnist-500" in ok(capsys, "recipes")
    assert "n_h" in ok(capsys, "recipes", "digits")
    assert facts(capsys, "recipes")["adult"]["paper_nll"] == 13.19
    assert facts(capsys, "recipes", "mnist-16")["architecture"]["n_h"] == [16]
    assert "binarized_mnist" in ok(capsys, "data")
    assert {s["name"]: s["columns"] for s in facts(capsys, "data")}["digits"] == 64
    assert "64" in ok(capsys, "data", "digits")
    assert facts(capsys, "data", "digits")["rows"] == {"train": 1297, "valid": 200, "test": 300}


def test_help_of_fields(capsys):
    """Every field has its type, its default where it has one, and a group."""
    out = " ".join(ok(capsys, "train", "--help").split())
    parts = [out.index(f"{part} of the recipe:") for part in ("architecture", "training", "data")]
    assert parts == sorted(parts)
    for word in (
        "--n_h UNITS stochastic units",
        "--lr FLOAT learning rate [0.00025]",
        "--epochs INT passes over the training rows [200]",
        "--visible {factorial,linear,nade,eonade,mixture,grid,conv}",
        "--local KERNEL/STRIDE/FILTERS,... deterministic",
        "--ar KERNEL/PERIOD autoregression of visible=grid [15/14]",
        "--drop NAME for tables",
    ):
        assert word in out
    assert out.index("--n_h UNITS") < parts[1] < out.index("--lr FLOAT") < parts[2] < out.index("--drop NAME")
    assert "--n-h" not in out
    assert len(out) < 8000


def test_repeated_options_accumulate(tmp_path, capsys):
    table = csv(tmp_path / "t.csv", BITS, "abcdef")
    assert facts(capsys, "data", table, "--drop", "a", "--drop", "b,c")["columns"] == 3
    ok(capsys, "train", table, *QUICK, "--n_h", "", "--epochs", 1, "--drop", "a", "--drop", "b", "--out", "r")
    recipe = json.loads((tmp_path / "r/recipe.json").read_text())["recipe"]
    assert recipe["data"]["drop"] == "a,b"
    parse = CommandLine().parse
    assert parse(["sweep", "digits", "--grid", "lr=1", "n_h=2", "--grid", "n_d=3"]).grid == ["lr=1", "n_h=2", "n_d=3"]
    assert parse(["train", "digits", "--import", "a", "--import", "b"]).imports == ["a", "b"]
    assert "'pog'" in refused(capsys, "reproduce", "atari", "--rows", "pong", "--rows", "pog")


URN = """
from darn.layers import AbstractBinaryLayer, Factorial
from darn.nn import register

@register("urn")
class Urn(AbstractBinaryLayer):
    @classmethod
    def make(cls, n, n_c, options, *, key):
        assert options["n_components"] == 4
        return Factorial(n, n_c, key=key)
"""


def test_a_layer_from_elsewhere(tmp_path, capsys):
    """It is imported by every command that is asked to, by an option or by a variable; in processes of their own,
    where no other test imported it."""
    (tmp_path / "my_layers.py").write_text(URN)
    new = ["train", "digits", *QUICK, "--epochs", "1", "--visible", "urn", "--n_components", "4", "--out", "r"]
    for argv, variable in (
        ([*new, "--import", "my_layers"], {}),
        (["eval", "r", "--every", "50"], {"DARN_IMPORT": "my_layers"}),
    ):
        p = program(*argv, env=os.environ | variable)
        out, err = p.communicate(timeout=120)
        assert p.returncode == 0, err
    assert "-log p" in out
    assert "imported first" in refused(capsys, "eval", "r")


READS = {
    "train": ["train", "own.csv", *QUICK, "--n_h", "", "--epochs", "1", "--out", "new"],
    "resume": ["train", "own.csv", *QUICK, "--n_h", "", "--epochs", "1", "--out", "r", "--resume"],
    "sweep": ["sweep", "own.csv", *QUICK, "--n_h", "2", "--epochs", "1", "--grid", "lr=1e-3,1e-4", "--out", "s"],
    "eval": ["eval", "r"],
    "eval with baselines": ["eval", "r", "--baselines"],
    "eval of other rows": ["eval", "r", "other.csv"],
    "encode": ["encode", "coded", "--out", "a.npy"],
}


@pytest.mark.parametrize("case", READS)
def test_the_data_are_read_once(case, tmp_path, capsys, monkeypatch):
    from darn import data

    csv(tmp_path / "own.csv", BITS)
    csv(tmp_path / "other.csv", BITS[:5])
    ok(capsys, *READS["train"][:-1], "r")
    if case == "encode":
        ok(capsys, "train", "own.csv", *QUICK, "--n_h", "2", "--epochs", "1", "--out", "coded")
    reads = []
    for name in ("load", "load_rows", "open_rows"):
        real = getattr(data, name)
        monkeypatch.setattr(data, name, lambda *a, real=real, **k: reads.append(str(a[0])) or real(*a, **k))
    ok(capsys, *READS[case])
    assert len(reads) == 1, reads


def test_train_says_what_it_did(tmp_path, capsys):
    said = facts(capsys, "train", "digits", *QUICK)
    assert said["run"] == "runs/digits"
    assert said["epochs"] == 2
    assert not said["interrupted"]
    assert {"recipe.json", "metrics.jsonl", "model.safetensors"} <= set(tree(tmp_path / "runs/digits"))
    before = load_file(tmp_path / "runs/digits/model.safetensors")
    assert "done after 2 epochs" in ok(capsys, "train", "digits", *QUICK, "--resume")  # finished: nothing more to do
    after = load_file(tmp_path / "runs/digits/model.safetensors")
    assert all((before[k] == after[k]).all() for k in before)


def test_eval(run, tmp_path, capsys):
    exact = facts(capsys, "eval", run, "--every", 10, "--per-row", "a.npy")
    assert exact["method"] == "exact"
    assert exact["rows"] == 30
    assert exact["split"] == "test"
    assert exact["bound"] > exact["nll"]
    log_p = np.load("a.npy")
    assert log_p.shape == (30,)
    assert -log_p.mean() == pytest.approx(exact["nll"], rel=1e-5)
    options = ("--every", 10, "--method", "importance", "--samples", 200, "--repeats", 2)
    near = facts(capsys, "eval", run / "model.safetensors", *options)
    assert near["method"] == "importance"
    assert near["nll"] == pytest.approx(exact["nll"], abs=0.5)
    out = ok(capsys, "eval", run, "digits", *options, "--per-row", "a.csv")
    assert "importance sampling" in out
    assert "bound" in out
    assert (tmp_path / "a.csv").read_text().startswith("row,log_p\n1,-")
    own = npy(tmp_path / "one.npy", np.ones((1, 64)))
    assert facts(capsys, "eval", run, own)["rows_ci95"] is None
    assert "1 row of" in ok(capsys, "eval", run, own)


def test_sample(run, tmp_path, capsys):
    from PIL import Image

    for name in ("a.npy", "b.npy"):
        assert facts(capsys, "sample", run, "-n", 7, "--seed", 3, "--out", name)["rows"] == 7
    ok(capsys, "sample", run / "model.safetensors", "-n", 7, "--seed", 4, "--out", "c.npy")
    a, b, c = (np.load(f"{k}.npy") for k in "abc")
    assert a.shape == (7, 64)
    assert set(np.unique(a)) == {0, 1}
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    said = facts(
        capsys, "sample", run, "-n", 7, "--seed", 3, "--out", "d.csv", "--log-joint", "l.npy", "--hidden", "h.npz"
    )
    assert said["mean_log_joint"] == pytest.approx(np.load("l.npy").mean())
    assert np.load("h.npz")["h1"].shape == (7, 8)
    lines = (tmp_path / "d.csv").read_text().splitlines()
    assert lines[0].startswith("x1,x2,")
    np.testing.assert_array_equal(np.loadtxt(lines[1:], delimiter=","), a)
    ok(capsys, "sample", run, "-n", 7, "--out", "pictures/d.png")
    with Image.open("pictures/d.png") as image:
        assert image.format == "PNG"
    ok(capsys, "sample", run, "-n", 0, "--out", "none.csv")
    assert (tmp_path / "none.csv").read_text().splitlines() == lines[:1]


def test_encode(run, tmp_path, capsys):
    assert facts(capsys, "encode", run, "--out", "h.npy") == {"rows": 300, "layers": [8], "out": "h.npy", "idle": False}
    ok(capsys, "encode", run, "--probabilities", "--out", "q.npy", "--reconstruct", "x.npy")
    h, q, x = np.load("h.npy"), np.load("q.npy"), np.load("x.npy")
    np.testing.assert_array_equal(h, q > 0.5)
    assert x.shape == (300, 64)
    assert ((x > 0) & (x < 1)).all()
    rows = npy(tmp_path / "rows.npy", np.eye(64, dtype=bool)[:5])
    ok(capsys, "encode", run / "model.safetensors", rows, "--seed", 1, "--out", "h.csv", "--reconstruct", "x.png")
    lines = (tmp_path / "h.csv").read_text().splitlines()
    assert lines[0] == ",".join(f"h1_{j}" for j in range(1, 9))
    assert len(lines) == 6


FIELDS = {
    "nade": ["--visible", "nade"],
    "eonade": ["--visible", "eonade"],
    "mixture": ["--visible", "mixture"],
    "no code": ["--n_h", ""],
    "two layers": ["--n_h", "8,4", "--skip", "true"],
    "weighted": ["--n_h", "8", "--n_samples", "3", "--weighted"],
    "intensity": ["--visible", "factorial", "--binarize", "intensity", "--weighted", "false"],
    "dynamic": ["--visible", "factorial", "--binarize", "dynamic", "--n-d", ""],
}


@pytest.mark.parametrize("case", FIELDS)
def test_fields_reach_the_model(case, home, tmp_path, capsys):
    run = trained(home, case, "digits", "--epochs", "1", *FIELDS[case])
    said = facts(capsys, "eval", run, "--every", 50)
    assert 0 < said["nll"] < 64
    recipe = json.loads((run / "recipe.json").read_text())["recipe"]
    assert recipe["training"]["weighted"] == (case == "weighted")
    assert recipe["architecture"]["skip"] == (case == "two layers")
    if case in ("two layers", "eonade"):
        ok(capsys, "sample", run, "-n", 3, "--out", "a.npy")
    if case == "no code":
        assert "no stochastic hidden layer" in refused(capsys, "encode", run, "--out", "h.npy")


def test_a_table_with_labels(table, tmp_path, capsys):
    own = table.parent / "table.csv"
    assert facts(capsys, "data", own, "--labels", "kind")["classes"] == ["cat", "dog"]
    assert facts(capsys, "eval", table)["rows"] == 4  # the test rows of its own file, from any folder
    assert facts(capsys, "eval", table, own)["rows"] == 40
    ok(capsys, "sample", table, "-n", 4, "--out", "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith("a,b,c,d,e,f\n")
    ok(capsys, "sample", table, "-n", 4, "--label", "cat", "--out", "a.npy")
    assert "cat, dog" in refused(capsys, "sample", table, "--label", "cow", "--out", "b.npy")
    assert "'kind'" in refused(capsys, "eval", table, csv(tmp_path / "rows.csv", BITS, "abcdef"))
    assert "'cow'" in refused(
        capsys, "eval", table, csv(tmp_path / "cow.csv", odd_column(["cow"] * 40), [*"abcdef", "kind"])
    )
    assert "'knid'" in refused(capsys, "train", own, "--labels", "knid")


def test_changed_data_are_noticed(tmp_path, capsys):
    own = csv(tmp_path / "own.csv", BITS)
    ok(capsys, "train", own, *QUICK, "--n_h", "", "--epochs", 1)
    ok(capsys, "eval", "runs/own")
    csv(own, BITS[::-1])
    assert "changed" in refused(capsys, "eval", "runs/own")
    assert "`darn eval RUN ROWS`" in refused(capsys, "report", "runs/own")
    assert "changed" in refused(capsys, "train", own, *QUICK, "--n_h", "", "--epochs", 1, "--resume")
    assert facts(capsys, "eval", "runs/own", own)["rows"] == 40  # named, they are scored
    own.unlink()
    assert "own.csv" in refused(capsys, "eval", "runs/own")


def test_own_files(tmp_path, capsys):
    from PIL import Image

    constant = np.column_stack([BITS[:10], np.zeros(10, int), np.ones(10, int)])  # columns of one value are legal
    np.savez(tmp_path / "splits.npz", train=BITS[:20], valid=BITS[20:30], test=BITS[30:33])
    made(tmp_path / "images")
    for i, row in enumerate(BITS):
        Image.fromarray((255 * row.reshape(2, 3)).astype(np.uint8)).save(tmp_path / f"images/{i:03}.png")
    for path, rows in (
        (csv(tmp_path / "ten.csv", constant), 1),
        (tmp_path / "splits.npz", 3),
        (tmp_path / "images", 4),
    ):
        ok(capsys, "train", path.name, *QUICK, "--n_h", "4", "--epochs", 1)
        said = facts(capsys, "eval", f"runs/{path.stem}")
        assert said["rows"] == rows
        assert np.isfinite(said["nll"])
    assert len(facts(capsys, "eval", "runs/ten", "--baselines")["baselines"]) == 2
    assert "independent Bernoulli: " in ok(capsys, "eval", "runs/ten", "--baselines")


# ---------------------------------------------------------------- as a program


def program(*argv, **options):
    command = [sys.executable, "-m", "darn", *map(str, argv)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


HEAVY = ("jax", "numpy", "sklearn", "matplotlib", "PIL", "tqdm", "safetensors", "equinox")


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["sweep", "--help"], ["recipes"]])
def test_help_is_light(argv):
    """Nothing heavy is imported, and the answer is there at once."""
    code = f"import sys, darn.cli\ntry: darn.cli.main({argv})\nexcept SystemExit: pass\n"
    code += f"print([m for m in {HEAVY} if m in sys.modules])"
    took = [np.inf]
    while min(took) >= 0.6 and len(took) < 4:
        began = os.times()
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        ended = os.times()  # of the processor: other programs may be running
        took.append(sum(getattr(ended, k) - getattr(began, k) for k in ("children_user", "children_system")))
        assert out.endswith("[]\n")
    assert min(took) < 0.6


def test_closed_pipe_and_full_device():
    p = program("recipes")
    p.stdout.close()
    assert p.wait() == 0
    assert p.stderr.read() == ""
    p.stderr.close()
    with open("/dev/full", "w") as full:
        p = subprocess.run([sys.executable, "-m", "darn", "recipes"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 2
    assert p.stderr == "darn: the output: No space left on device\n"


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])  # ignored in a script, behind an &
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_leaves_nothing(number, ctrl_c, tmp_path, capsys, monkeypatch):
    def ended(line, args):
        with atomic(tmp_path / "out.npy"):
            os.kill(os.getpid(), number)

    assert signal.getsignal(number) is signal.SIG_DFL
    monkeypatch.setattr(cli._main, "_run", ended)
    before = signal.signal(signal.SIGINT, ctrl_c)
    try:
        assert refused(capsys, "recipes", status=130) == "darn: interrupted\n"
        assert signal.getsignal(signal.SIGINT) is ctrl_c
    finally:
        signal.signal(signal.SIGINT, before)
    assert [*tmp_path.iterdir()] == []
    assert signal.getsignal(number) is signal.SIG_DFL


def test_closed_streams():
    """A file that is opened must not take the place of a stream, and get what libraries print there."""
    code = """
import os, sys
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None  # as Python sets them if they are closed from the start
from darn.cli import main
status = main(["recipes"])
os._exit(10 * (os.open(os.devnull, os.O_RDONLY) > 2) + status)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 12


def test_an_output_without_all_characters():
    env = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    code = (
        "import sys; from darn.cli import main, _main; _main._run = lambda *_: print('±'); sys.exit(main(['models']))"
    )
    p = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert p.returncode == 2
    assert p.stderr == "darn: the output is in ascii, which has no '\\xb1': set PYTHONUTF8=1, or write to a file\n"


def test_ctrl_c_and_resume(tmp_path, capsys):
    """Interrupted and resumed, training ends in the very weights of an unbroken run."""
    argv = ["train", csv(tmp_path / "own.csv", BITS), "--quiet", "--n_h", "4", "--n_d", "4"]
    argv += ["--patience", 0, "--batch", 4, "--validate_every", 200, "--epochs", 4000]
    p = program(*argv, "--out", "broken")
    journal = tmp_path / "broken" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_text()) and time.monotonic() < deadline:
        assert p.poll() is None, p.stderr.read()
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert "--resume" in err
    assert "interrupted after" in out
    done = int(out.split("interrupted after ")[1].split()[0])
    assert 200 <= done < 4000
    assert "exists" in refused(capsys, *argv, "--out", "broken")
    for more in (["--out", "broken", "--resume"], ["--out", "whole"]):
        assert facts(capsys, *argv, *more)["epochs"] == 4000
    broken, whole = (load_file(tmp_path / d / "model.safetensors") for d in ("broken", "whole"))
    assert all((broken[k] == whole[k]).all() for k in whole)
    # of the training rows' means only the last digits may differ: epochs are added up in groups as the clock has it
    lines = [(tmp_path / d / "metrics.jsonl").read_text().splitlines() for d in ("broken", "whole")]
    assert [json.loads(v)["valid"] for v in lines[0]] == [json.loads(v)["valid"] for v in lines[1]]
