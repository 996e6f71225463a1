"""The benchmarks run, their record is whole, and the PyTorch twin is the same model."""

import gzip
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `benchmarks` is not installed with the package

from benchmarks import atari, measure, quick, run, tables
from benchmarks.limits import Limits, Needs
from darn.paper.recipes import RECIPES
from darn.zoo import build


def test_quick_row(tmp_path, capsys):
    out = tmp_path / "deep" / "bench.json"
    run.main(["--quick", "--only", "sampling", "--out", str(out)])
    record = json.loads(out.read_text())
    assert {"command", "commit", "date", "seed", "device", "threads", "versions", "effort", "rows"} <= set(record)
    assert record["command"].startswith("python -m benchmarks --quick --only sampling")
    assert {"python", "jax", "jaxlib", "equinox", "optax", "torch", "numpy"} == set(record["versions"])
    (row,) = record["rows"]
    assert min(record["limits"].values()) > 0
    assert row["needs"]["turns"] == 4
    assert len(row["ways"]) == 5
    for way in row["ways"].values():
        assert len(way["seconds"]) == len(way["rates"]) == record["effort"]["repeats"]
        assert way["rate"] > 0
    assert row["name"] in capsys.readouterr().out


def test_ways_take_turns_and_failures_are_named():
    calls = []

    def broken(n):
        raise RuntimeError("no compiler here")

    a, b = (measure.Way(name, lambda n, name=name: calls.append((name, n)), 1) for name in "ab")
    c = measure.Way("c", broken, 1, optional=True)
    found = measure.compare(measure.Comparison("x", "y/s", a, [b, c]), measure.Effort(repeats=3, seconds=0))
    assert [name for name, _ in calls[-6:]] == list("ababab")
    assert found["skipped"] == {"c": "RuntimeError: no compiler here"}
    assert found["ways"]["a"]["ours_is_times_faster"] == 1
    assert "no compiler here" in measure.table([found])
    limits = Limits(products=100.0, bytes=10.0, turns=1.0)
    assert limits.share(2.0, Needs()) is None
    assert limits.share(2.0, Needs(products=10, bytes=2, turns=0.1)) == (0.4, "bytes")
    found |= {"needs": {"products": 25 / found["ways"]["a"]["rate"], "bytes": 0.0, "turns": 0.0}}
    assert "| 25% of products |" in measure.table([found], limits)
    with pytest.raises(RuntimeError):
        measure.compare(measure.Comparison("x", "y/s", measure.Way("c", broken, 1), [b]), measure.QUICK)


def test_torch_twin_is_the_same_model():
    torch, why = measure.torch_module()
    if torch is None:
        pytest.skip(why)
    from benchmarks.torch_twin import check

    assert set(check(rtol=1e-4)) == {"loss", "gradient", "step"}


def test_atari(tmp_path):
    # optax mixes types where our own code does not
    with jax.numpy_dtype_promotion("standard"):
        record = atari.main(["--quick", "--out", str(tmp_path / "atari.json")])
    assert record["training"][0]["share_of_plain"] > 0
    assert all(row["same_bits"] == 1 for row in record["sampling"])
    paper = build(RECIPES["atari/pong"].architecture, 33231, shape=(209, 159), key=jax.random.key(0))
    counted = {type(m).__name__: atari.products(m) for _, m, _ in atari.used_maps(paper)}
    assert counted["CausalLocal"] < 112 * 33231  # less the edges
    assert counted["CausalLocal"] > 0.95 * 112 * 33231


def test_tables(tmp_path, monkeypatch, capsys):
    """A generator that copies the training rows: real by every figure, and given away; its rows are made once."""
    lines = ["kind,age,size", *(f"{'cat' if i % 3 else 'dog'},{i},{i % 7}" for i in range(80))]
    (tmp_path / "tables").mkdir()
    with gzip.open(tmp_path / "tables" / "pets.csv.gz", "wt") as f:
        f.write("\n".join(lines) + "\n")
    made = []
    monkeypatch.setattr(tables, "SETS", {"pets": (50, None, "kind", ("size",))})
    monkeypatch.setattr(tables, "data_dir", lambda: tmp_path)
    monkeypatch.setattr(tables, "run_darn", lambda train, out, left: made.append(shutil.copy(train, out)) or {"s": 1})
    words = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "tables.json")]
    record = tables.main(words)
    older = {"set": "pets", "rows_by": "CTGAN", "auc": 0.9}  # not in the folder: it stays, with its provenance
    (tmp_path / "tables.json").write_text(json.dumps({"commit": "c0ffee", "rows": [*record["rows"], older]}))
    for _ in range(2):
        record = tables.main(words)
        assert record["rows"].pop() == older | {"made": {"commit": "c0ffee"}}
    assert len(made) == 1
    real, copied = record["rows"]
    assert (real["rows_by"], copied["rows_by"]) == ("real", "darn")
    assert all(copied[k] == v for k, v in real.items() if k != "rows_by")
    assert copied["membership_auc"] == 1
    assert "CTGAN: as recorded before" in capsys.readouterr().out
    assert json.loads((tmp_path / "tables.json").read_text())["rows"][1]["set"] == "pets"


def test_quick_figures_are_compared_with_those_stored(tmp_path, capsys, monkeypatch):
    """What is near, what is not, what took too long and what was refused are told apart."""
    ends = {"adult": 0.9e-4, "dna": -1.1e-4, "nips": -24, "web": 2}  # how far off it is, or how it ends

    def run(command, **_):
        end = ends[Path(command[-3]).stem]
        nll = quick.quick_of(command[-3])["nll"] + (end if isinstance(end, float) else 0)
        status = end if isinstance(end, int) else 0
        return SimpleNamespace(returncode=status, stdout=json.dumps({"nll": nll}), stderr="darn: no data")

    monkeypatch.setattr(quick, "subprocess", SimpleNamespace(run=run))
    out = tmp_path / "quick.json"
    assert quick.main(["adult", "--out", str(out)]) == 0
    assert quick.main(["dna", "nips", "web", "--out", str(out)]) == 1
    rows = {row["model"]: row for row in json.loads(out.read_text())["rows"]}
    assert (rows["adult"]["near"], rows["dna"]["near"]) == (True, False)
    assert all({"commit", "date"} <= set(row) for row in rows.values())
    assert "processor time" in rows["nips"]["failed"]
    assert rows["web"]["failed"] == "darn: no data"
    assert "1 of 4 within" in capsys.readouterr().out


def test_a_record_names_files_without_their_folders():
    command = measure.environment("python -m benchmarks.x --gb 1/8 --folder /a/b c/d --out /a/b/e.json", 0)["command"]
    assert command == "python -m benchmarks.x --gb 1/8 --folder b c/d --out e.json"
