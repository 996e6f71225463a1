"""Laws of the results: files are whole, tables come from them, rows are made as they say, counts are of work done."""

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from helpers import MODELS, make_model

from darn import cli, data, zoo
from darn.config import LocalLayer, Window
from darn.errors import DarnError
from darn.inference import likelihood
from darn.inference.sampling import sample
from darn.model_file import load_model, save_model
from darn.paper import atari, claims, costs, counted, figures, rbm, results, run, scoring, tables
from darn.paper.recipes import RECIPES
from darn.paper.results import lacking
from darn.runs.recipe import Recipe

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
ROWS = {r.name: r for r in results.ROWS}


def script(name):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = script("tables")


# ---------------------------------------------------------------- what is committed


@pytest.mark.parametrize("name", results.read(RESULTS))
def test_committed_rows_are_whole(name):
    record, row = results.read(RESULTS)[name], ROWS[name]
    assert lacking(record) == []
    assert (record["row"], record["dataset"], record["split"]) == (name, row.data, "test")
    assert record["paper"] == row.paper
    assert (record["table"], record["label"]) == (row.table, row.method)
    assert record["bound"] is None or record["bound"] >= record["nll"] - 1e-3
    assert ("baselines" in record) == row.baselines
    if not row.keep_model:
        assert (record["model"], record["quick"]) == (None, None)
        assert len(record["model_sha256"]) == 64
        return
    assert (ROOT / record["model"]).exists()
    if row.how != "rbm":
        model, info = load_model(ROOT / record["model"])
        assert info["data"]["sha256"] == record["dataset_sha256"]
        assert scoring.n_parameters(model) == record["parameters"]
        assert results.quick_of(ROOT / record["model"]) == record["quick"]
        # one method for both figures: a sum over codes that nobody waited for is not quick either
        assert (record["method"] == "exact") == (record["quick"]["n_samples"] == 0)


def test_every_file_of_a_table_is_a_row():
    for table in ("table1", "table2", "dynamic", "claims", "atari"):
        for path in (RESULTS / table).glob("*"):
            assert ROWS[path.stem].table == table


def test_records_of_games_are_of_their_recipes():
    found = results.read(RESULTS)
    ran = [row for row in atari.ROWS if row.name in found]
    assert {row.name for row in set(atari.ROWS) - set(ran)} <= {r.name for r in atari.ROWS if "-frontier" in r.name}
    for row in ran:
        expected, recorded = run.recipe_of(row), Recipe.from_json(found[row.name]["recipe"])
        assert expected is not None
        assert recorded.replace(description=expected.description) == expected


def test_every_panel_of_a_figure_that_is_stored_has_its_picture():
    for figure, panels in figures.PANELS.items():
        for panel in panels:
            assert (RESULTS / figure / f"{panel.name}.png").exists()
        path = RESULTS / figure / "figure.json"
        for name, facts in (json.loads(path.read_text()) if path.exists() else {}).items():
            assert facts["png"] == f"results/{figure}/{name}.png"
            assert {"command", "commit", "versions", "device"} <= set(facts)


@pytest.mark.parametrize("name", docs.DOCUMENTS)
def test_documents_show_what_the_results_say(name):
    text = (ROOT / name).read_text()
    assert "<!-- results: " in text
    assert docs.documented(text, RESULTS) == text, "run `make tables`"


def test_tables_of_the_benchmarks(tmp_path):
    """Written down by hand from made-up files; nothing but a header where there are none."""
    shown = lambda what: docs.documented(f"<!-- results: {what} -->\n<!-- end of results -->", tmp_path)  # noqa: E731
    assert len(shown("codec").splitlines()) == len(shown("speed").splitlines()) == 4
    (tmp_path / "bench").mkdir()
    sizes = {"rows": 1000, "bytes": 5000, "nats_a_row": 27.726, "bound_nats_a_row": 27.6, "over_the_bound_bytes": 22.7}
    sizes |= {"over_the_bound_percent": 0.456, "rows_a_second": {"decode": 20.0, "encode": 3000.4}}
    sizes["others"] = {"packed": {"bytes": 9}, "xz -9e": {"nats_a_row": 50.0}, "z": {"nats_a_row": 29.0}, "y": "none"}
    (tmp_path / "bench" / "codec-sizes-toys.json").write_text(json.dumps(sizes))
    row = "| toys | 1,000 | 5,000 | 27.73 | 27.60 | 23 bytes, 0.46% | 50.00 | 29.00 z | 3,000 / 20 |"
    assert shown("codec").splitlines()[3] == row
    ways = {"ours": {"rate": 100.0}, "(ours, in part)": {"rate": 1.0}, "theirs": {"rate": 40.0}}
    ways["theirs"]["ours_is_times_faster"] = 2.5
    run = {"device": {"backend": "cpu", "kind": "cpu"}, "threads": {"usable": 2}}
    run["rows"] = [{"name": "toy", "unit": "steps/s", "ours": "ours", "ways": ways}]
    (tmp_path / "bench" / "cpu-training.json").write_text(json.dumps(run))
    assert shown("speed").splitlines()[3:-1] == ["| toy | 2 CPU cores | theirs | 40 steps/s | 100 steps/s | 2.5 |"]


def test_the_papers_rows_agree_with_the_recipes():
    assert len(ROWS) == len(results.ROWS)
    for row in results.ROWS:
        recipe = RECIPES.get(row.name if row.base is None else row.base)
        if recipe is not None and not row.fields and recipe.data.source == row.data:
            assert (recipe.data.source, recipe.paper_nll, recipe.paper_bound) == (row.data, row.nll, row.bound)
    assert RECIPES["eonade-mnist"].architecture.n_orderings == 128
    assert RECIPES["eonade-adult"].architecture.n_orderings == 16
    assert RECIPES["eonade2-mnist"].architecture.n_nade == (500, 500)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("fvsbn", 6 + 6 * 5 // 2),  # biases, and a triangle
        ("on a grid, fvsbn", 6 + 2 * 2 * 4),  # in each of four phases, three cells above and one to the left
    ],
)
def test_parameters_are_the_weights_in_use(name, n):
    assert scoring.n_parameters(make_model(name)[0]) == n


# ---------------------------------------------------------------- tables and claims


def test_tables_hold_both_figures():
    found = {"adult": {"nll": 13.123, "nll_ci95": 0.0041, "bound": 13.5}, "mnist-500": {"nll": 84.0, "bound": 87.9}}
    text = "\n".join(tables.lines("table1", found))
    assert "13.12 ± 0.004" in text
    everything = "\n".join(tables.lines("table1", {"dna": {"nll": 79.254, "nll_ci95": 1e-5}}))
    assert "79.25 ± <0.001" in everything
    assert everything.count("as above") == 1
    assert "20.44" in text
    text = tables.markdown("table2", found, only_ours=True)
    assert text.count("\n") == 2
    assert "84.71 ± 0.01 | 90.31 | 84.00 | 87.90" in text
    everything = tables.markdown("table2", found)
    assert everything.count("not yet run") == 15
    assert "data not at hand" in tables.markdown("table1", found)


def test_tables_say_how_long_they_took():
    def took(train, score, device):
        return {"nll": 1.0, "seconds_train": train, "seconds_eval": score, "device": device}

    found = {"adult": took(60, 30, "a GPU"), "dna": took(6, None, "a GPU"), "nips": took(3, 3, "a CPU")}
    found["mnist-500"] = took(600, 0, "a GPU")  # of the other table
    found["web"] = {"nll": 1.0}  # a record without times
    found["ocr_letters"] = took(120, 12, "a GPU") | {"training": {"made": {"device": "a CPU"}}}  # scored elsewhere
    last = "4 rows trained and scored in 2.1 min on a CPU and 1.8 min on a GPU"
    assert tables.lines("table1", found)[-1] == last
    assert not any("trained" in line for line in tables.lines("table2", {}))


def costs_of(fdarn, nade):
    return {"costs": {"trained": {"mnist-fdarn": {"operations": fdarn}, "nade-mnist": {"operations": nade}}}}


def ended(best, last, decay=0.0):
    return {
        "training": {"valid_bound": best, "last_valid_bound": last},
        "recipe": {"training": {"weight_decay": decay}},
    }


@pytest.mark.parametrize(
    ("found", "text", "verdict"),
    [
        ({"mnist-500": {"bound": 88.0}, "nade-mnist": {"nll": 88.5}}, "below NADE", "holds"),
        ({"mnist-500": {"bound": 89.0}, "nade-mnist": {"nll": 88.5}}, "below NADE", "does not hold"),
        ({"mnist-500": {"bound": 89.0}}, "below NADE", "undecided"),
        ({"mnist-9": {"nll": 101.0}, "mob500-mnist": {"nll": 100.0}}, "9 stochastic", "holds"),
        ({"mnist-9": {"nll": 102.0}, "mob500-mnist": {"nll": 100.0}}, "9 stochastic", "does not hold"),
        ({"mnist-deep": {"bound": 87.0}, "mnist-500": {"bound": 88.0}}, "depth", "holds"),
        (costs_of(1, 99), "hundred", "holds"),
        (costs_of(9, 99), "hundred", "does not"),
        ({"mnist-9": ended(101.0, 101.0), "mnist-10": ended(101.0, 101.05)}, "early stopping", "holds"),
        ({"mnist-9": ended(101.0, 101.0), "mnist-16": ended(101.0, 101.3)}, "early stopping", "does not"),
        # where weight decay helps, noise alone is not judged
        ({"mnist-9": ended(101.0, 101.0), "mnist-16": ended(101.0, 101.3, decay=1e-4)}, "early stopping", "holds"),
        ({"mnist-500-noise": ended(88.0, 88.0, decay=1e-4)}, "early stopping", "undecided"),
    ],
)
def test_claims_are_judged_by_the_figures(found, text, verdict):
    full = {k: {"method": "exact"} | v for k, v in found.items()}
    (claim,) = [c for c in claims.claims(full) if text in c.text]
    assert claim.verdict.startswith(verdict)


def test_four_sets():
    prefixes = ("mob-", "rbm-", "fvsbn-", "nade-", "eonade-")
    sets = ("adult", "connect4", "dna", "mushrooms", "nips", "ocr_letters", "rcv1", "web")
    base = {p + s: {"nll": 2.0} for p in prefixes for s in sets}

    def verdict(wins):
        found = base | {s: {"nll": 1.0 if i < wins else 3.0} for i, s in enumerate(sets)}
        return next(c.verdict for c in claims.claims(found) if "four" in c.text)

    assert [verdict(w) for w in (3, 4, 8)] == ["does not hold", "holds", "holds"]


def test_four_sets_with_one_not_at_hand():
    names = ("adult", "connect4", "dna", "mushrooms", "nips", "ocr_letters", "web")
    base = {p + s: {"nll": 2.0} for p in ("mob-", "rbm-", "fvsbn-", "nade-", "eonade-") for s in names}
    found = base | {s: {"nll": 1.0 if s in ("dna", "nips", "web") else 3.0} for s in names}
    found |= {"adult-ours": {"nll": 1.5}, "connect4-ours": {"nll": 2.5}}
    (claim,) = [c for c in claims.claims(found) if "four" in c.text]
    assert claim.verdict == "undecided"  # RCV1 may be the fourth
    assert "with our stacks: adult;" in claim.figures
    assert "rcv1 (data not at hand)" in claim.figures


# ---------------------------------------------------------------- making rows


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Random bits in place of every set, recipes at tiny size, a results folder of its own."""
    rng = np.random.default_rng(0)
    parts = [data.Rows.from_array(rng.random((n, 12)) < 0.3) for n in (60, 30, 45)]
    splits = data.Splits("mushrooms", *parts, None, sha256="noise")
    monkeypatch.setattr(data, "load", lambda name, **_: splits)
    monkeypatch.setattr(data, "load_rows", lambda name, **_: splits.test)
    # more hidden units than are enumerated, so that scoring is a matter of samples
    recipe = RECIPES["mushrooms"].tiny().replace(n_h=(20,))
    monkeypatch.setitem(RECIPES, "mushrooms", recipe)
    return splits, tmp_path / "results", tmp_path / "runs"


def test_a_row_is_trained_stored_and_scored(small, capsys, monkeypatch):
    splits, results, runs = small
    words = ["reproduce", "table1", "--rows", "mushrooms", "--results", results, "--runs", runs, "--samples", 20]
    words = [str(w) for w in (*words, "--repeats", 3, "--quiet", "--json")]
    assert cli.main(words) == 0
    record = json.loads(capsys.readouterr().out)["mushrooms"]
    assert lacking(record) == []
    assert record == json.loads((results / "table1" / "mushrooms.json").read_text())
    assert (record["n_samples"], record["repeats"], record["rows"]) == (20, 3, 45)
    assert record["model"] == "results/models/mushrooms.safetensors"
    model, info = load_model(results / "models" / "mushrooms.safetensors")
    for w in jax.tree.leaves(model):  # the figures are those of what is stored
        assert np.array_equal(np.asarray(w), np.asarray(w).astype(np.float16).astype(np.float32))
    again = likelihood.importance(model, splits.test.unpack(), n_samples=20, repeats=3)
    assert record["nll"] == pytest.approx(again.nll, abs=1e-9)
    assert info["recipe"]["architecture"]["n_h"] == [20]
    # the quick figure comes back by its command, to the last digit on the same machine
    assert cli.main(["eval", str(results / "models" / "mushrooms.safetensors"), "--quick", "--json"]) == 0
    quick = json.loads(capsys.readouterr().out)
    assert quick["nll"] == record["quick"]["nll"]
    assert quick["rows"] == record["quick"]["rows"] == 5
    assert quick["stored"] == record["quick"]
    assert cli.main(["eval", str(results / "models" / "mushrooms.safetensors"), "--quick"]) == 0
    assert "reproduced: +0.0000" in capsys.readouterr().out
    # a row that is there is not made again
    before = (results / "models" / "mushrooms.safetensors").stat().st_mtime_ns
    assert cli.main(words) == 0
    assert (results / "models" / "mushrooms.safetensors").stat().st_mtime_ns == before
    # an older record gets the keys it lacks, and keeps its figures
    path = results / "table1" / "mushrooms.json"
    old = {k: v for k, v in record.items() if k not in ("quick", "row", "parameters", "dataset_sha256")}
    path.write_text(json.dumps(old | {"nll": 1.25}))
    capsys.readouterr()
    assert cli.main(words) == 0
    assert json.loads(path.read_text()) == record | {"nll": 1.25}
    # a model whose scoring was cut short is scored, not trained again; one of another recipe is trained
    path.unlink()
    shutil.rmtree(runs)
    assert cli.main(words) == 0
    assert (results / "models" / "mushrooms.safetensors").stat().st_mtime_ns == before
    scored = json.loads(path.read_text())
    assert {k: scored[k] for k in ("nll", "bound", "quick")} == {k: record[k] for k in ("nll", "bound", "quick")}
    assert scored["training"]["made"] == info["made"]
    path.unlink()
    monkeypatch.setitem(RECIPES, "mushrooms", RECIPES["mushrooms"].replace(lr=1e-4))
    assert cli.main(words) == 0
    assert (results / "models" / "mushrooms.safetensors").stat().st_mtime_ns > before


@pytest.mark.parametrize("method", ["exact", "importance"])
def test_the_quick_figure_is_by_the_method_of_its_row(small, method, monkeypatch, capsys):
    _, results, runs = small
    monkeypatch.setitem(RECIPES, "mushrooms", RECIPES["mushrooms"].replace(n_h=(3,)))
    driver = run.Driver(results, runs, run.Protocol(20, 2, method=method), progress=False)
    record = driver.record(ROWS["mushrooms"])
    assert record is not None
    assert record["method"] == method
    assert record["quick"]["n_samples"] == (0 if method == "exact" else 1000)
    for words, expected in (([], method), (["--method", "exact"], "exact")):  # unless another is asked for
        model = str(results / "models" / "mushrooms.safetensors")
        capsys.readouterr()
        assert cli.main(["eval", model, "--quick", "--json", *words]) == 0
        quick = json.loads(capsys.readouterr().out)
        assert quick["method"] == expected
        assert quick["nll"] == pytest.approx(record["quick"]["nll"], abs=0.05)


def test_rows_of_other_methods(small, monkeypatch, capsys):
    splits, results, runs = small
    driver = run.Driver(results, runs, run.Protocol.default())
    record = driver.record(ROWS["mob-mushrooms"])
    assert record is not None
    assert lacking(record) == []
    assert record["method"] == "exact"
    machine = rbm.Settings(n_h=3, steps=2, epochs=2, looks=1)
    monkeypatch.setattr(run, "_rbm_settings", lambda row: machine)
    record = driver.record(ROWS["rbm-mushrooms"])
    assert record is not None
    assert lacking(record) == []
    stored, _ = rbm.load(results / "models" / "rbm-mushrooms.safetensors")
    exact = rbm.mean_free_energy(stored, splits.test.unpack()) + rbm.exact_log_z(stored)
    assert record["nll"] == pytest.approx(exact, abs=0.2)
    capsys.readouterr()
    assert cli.main(["eval", str(results / "models" / "rbm-mushrooms.safetensors"), "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nll"] == record["quick"]["nll"]


def test_rows_that_cannot_be_made(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(RECIPES, "adult-ours")  # and not by whichever row has none: one day it will, and be trained
    for name, why in (("dbm", "quoted"), ("rcv1", "data not at hand"), ("adult-ours", "no recipe yet")):
        with pytest.raises(DarnError, match=why):
            run.Driver(tmp_path, tmp_path, run.Protocol(1, 1)).record(ROWS[name])
    assert cli.main(["reproduce", "table1", "--rows", "mushroms"]) == 2
    assert "did you mean mushrooms" in capsys.readouterr().err
    assert cli.main(["reproduce", "table1", "--results", str(tmp_path / "none")]) == 2
    assert "root of a checkout" in capsys.readouterr().err


@pytest.fixture
def games(monkeypatch, tmp_path):
    """Small random frames in place of every game, networks to match; returns a driver and a list of the trainings."""
    rng = np.random.default_rng(0)
    parts = [data.Rows.from_array(rng.random((n, 63)) < 0.3) for n in (40, 20, 10)]
    load = lambda name, **_: data.Splits(name, *parts, None, (7, 9), sha256="noise")  # noqa: E731
    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(data, "load_rows", lambda name, **_: parts[2])
    small = {"local": (LocalLayer(3, 2, 2),), "ar": Window(3, 2), "period": 2, "n_h": (4,)}
    for name in [name for name in RECIPES if name.startswith("atari/")]:
        deep = {"local_h": (LocalLayer(3, 2, 2),), "ar_h": Window(3, 2)}
        fields = small | (deep if RECIPES[name].architecture.local_h else {})
        monkeypatch.setitem(RECIPES, name, RECIPES[name].tiny().replace(**fields))
    made, real = [], run.train
    monkeypatch.setattr(run, "train", lambda recipe, out, **k: made.append(out.name) or real(recipe, out, **k))
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types where our own code does not
        yield run.Driver(tmp_path / "results", tmp_path / "runs", run.Protocol(3, 1), progress=False), made


def test_a_game_is_a_row_like_any_other(games, capsys):
    driver, made = games
    record = driver.record(ROWS["pong"])
    assert record is not None
    assert lacking(record) == []
    assert (record["method"], record["n_samples"], record["repeats"]) == ("importance", 20, 1)
    assert (record["model"], record["quick"]) == (None, None)
    assert record["paper"]["bound"] == 23.7
    splits = data.load("atari/pong")
    p = (splits.train.unpack().sum(axis=0) + 1) / (len(splits.train) + 2)
    test = splits.test.unpack()
    expected = -np.where(test == 1, np.log(p)[None], np.log(1 - p)[None]).sum(axis=1).mean()
    assert record["baselines"]["independent"] == pytest.approx(expected, rel=1e-9)
    # of other fields and of another split: the same driver, the same record
    other = driver.record(ROWS["pong-fvsbn-episodes"])
    assert other is not None
    assert (other["method"], other["dataset"]) == ("exact", "atari/pong/episodes")
    assert (other["recipe"]["architecture"]["n_h"], other["recipe"]["paper_bound"], "baselines" in other) == (
        [],
        None,
        False,
    )
    # what is there is not made again unless asked for, and a figure's second use of a run is no second training
    assert driver.record(ROWS["pong"]) == record
    assert made == ["pong", "pong-fvsbn-episodes"]
    anew = dataclasses.replace(driver, again=True).record(ROWS["pong"])
    assert anew is not None
    assert (anew["bound"], len(made)) == (record["bound"], 3)
    # the table of what there is
    assert cli.main(["reproduce", "atari", "--results", str(driver.results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    pong = next(line for line in lines if line.startswith("pong"))
    assert pong.split()[:3] == ["pong", "23.7", f"{record['bound']:,.1f}"]
    assert sum("not yet run" in line for line in lines) == 5
    (driver.results / "atari" / "pong.json").write_text("{")
    assert cli.main(["reproduce", "atari", "--results", str(driver.results)]) == 2
    assert "pong.json is not a readable result" in capsys.readouterr().err


# ---------------------------------------------------------------- figures


def test_figures_are_drawn_from_the_models_of_their_rows(games, monkeypatch):
    from PIL import Image

    driver, made = games
    # two networks for all three figures, since most of the time goes into training them
    monkeypatch.setitem(figures.PANELS, "fig3", [p for p in figures.PANELS["fig3"] if p.name == "pong"])
    (panel,) = figures.PANELS["fig5"]
    monkeypatch.setitem(figures.PANELS, "fig5", [dataclasses.replace(panel, rows=("freeway-3", "pong"))])
    drawn = {"fig3": "pong", "fig4": "freeway", "fig5": "freeway"}
    for figure in drawn:
        facts, lines = figures.draw(figure, driver)
        assert (facts, made) == ({}, [])  # nothing is trained unasked
        assert figures.draw(figure, driver, make=True, only=["another row"]) == ({}, [])
        assert all("no trained model" in line for line in lines)
    for figure, panel in drawn.items():
        facts, lines = figures.draw(figure, driver, make=True)
        stored = json.loads((driver.results / figure / "figure.json").read_text())
        assert set(stored) == set(facts) == {p.name for p in figures.PANELS[figure]}
        assert facts[panel].items() <= stored[panel].items()
        assert {"command", "commit", "device", "versions"} <= set(stored[panel])
        assert np.asarray(Image.open(driver.results / figure / f"{panel}.png")).std() > 0
    assert set(made) == {"pong", "freeway-3"}
    before = len(made)
    assert set(figures.draw("fig3", driver)[0]) == {p.name for p in figures.PANELS["fig3"]}
    assert len(made) == before


def test_a_training_frame_stands_above_itself(tmp_path, monkeypatch, games):
    """Figure 3 with samples that are training frames: both lines are the same, no bit apart."""
    from PIL import Image

    from darn.inference import sampling

    driver, _ = games
    frames = data.load("atari/pong").train.unpack()[:4]
    monkeypatch.setattr(sampling, "sample", lambda model, n, seed: sampling.Samples(frames, (), None))
    made = driver.model(ROWS["pong"], make=True)
    facts = figures.above_nearest([made], tmp_path / "fig3.png")
    page = np.asarray(Image.open(tmp_path / "fig3.png"))
    np.testing.assert_array_equal(page[6:13, 6:15], page[19:26, 6:15])
    assert facts == {"rows": [0, 1, 2, 3], "distance_bits": [0, 0, 0, 0]}


def test_a_try_leaves_the_results_alone(games, capsys):
    driver, _ = games
    words = ["reproduce", "atari", "--rows", "pong", "--tiny", "--quiet", "--runs", driver.runs]
    assert cli.main([str(w) for w in (*words, "--results", driver.results)]) == 0
    assert not driver.results.exists()
    assert lacking(json.loads((driver.runs / "tiny" / "results" / "atari" / "pong.json").read_text())) == []


def test_curves(tmp_path):
    curve = [[e, 10 + 5 / e, 11 + 5 / e] for e in range(1, 9)]
    assert figures.curves({"a": {"training": {"curve": curve}}, "b": {}}, tmp_path / "c.png") == 1
    assert (tmp_path / "c.png").stat().st_size > 1000
    assert figures.curves({}, tmp_path / "d.png") == 0


# ---------------------------------------------------------------- counted work

WALKED = [
    n
    for n, (arch, _, context) in MODELS.items()
    if not context and not arch.is_local and "mixture" not in (arch.visible, arch.prior)
]


@pytest.mark.parametrize("name", WALKED)
def test_the_work_of_a_sample_is_counted_weight_by_weight(name):
    model, _ = make_model(name)
    drawn = sample(model, 10, seed=3)
    for i in range(10):
        x, h = drawn.x[i], tuple(y[i] for y in drawn.h)
        found, expected = counted.work(model, x, h), reference.work(model, x, h)
        assert (found.multiplied, found.added) == (expected.multiplied, expected.added)


def always_on(model):
    """The model with no weights, and biases that put every unit on."""
    zero = jax.tree.map(lambda w: jnp.zeros_like(w) if eqx.is_inexact_array(w) else w, model)
    biases = lambda m: [p.layer.b for p in m.decoder]  # noqa: E731
    return eqx.tree_at(biases, zero, [jnp.full_like(b, 50.0) for b in biases(zero)])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (zoo.fvsbn(7, key=jax.random.key(0)), 7 * 6 / 2),
        (zoo.nade(7, 5, key=jax.random.key(0)), 2 * 7 * 5),
        (zoo.fdarn(7, 5, 3, key=jax.random.key(0)), 5 * 4 / 2 + 5 * 7),
        # prior's triangle, all of the tanh layer's inputs on, its outputs multiplied
        (zoo.darn(7, 5, 3, "linear", key=jax.random.key(0)), 5 * 4 / 2 + 5 * 3 + 3 * 7 + 7 * 6 / 2),
    ],
)
def test_counts_of_units_that_are_all_on(model, expected):
    found = counted.count(always_on(model), n=2)
    # a tanh layer without weights gives 0s, which ask for no work either
    unused = 3 * 7 if model.decoder[0].net is not None else 0
    assert found["operations"] == expected - unused
    off = jax.tree.map(lambda w: -w if eqx.is_inexact_array(w) else w, always_on(model))
    work = 7 * 5 if model.n_h == () and expected == 70 else 0  # NADE reads its hidden units whatever the bits
    assert counted.count(off, n=2)["operations"] == work


def test_costs_grow_as_the_paper_says():
    rows = list(costs.measure(scales=(1, 2), n=2, seconds=0))
    for row in rows:
        assert row["power"] == pytest.approx(row["power_of_formula"], abs=0.35)
    assert costs.timed(zoo.fvsbn(5, key=jax.random.key(0)), 3, 0.01) > 0
    record = {"rows": rows, "trained": {"x": {"operations": 5.0}}, "device": "a CPU"}
    assert len(costs.lines(record)) == 1 + 14 + 1 + 2


def test_trained_models_are_counted_by_the_sampler_that_suits_them(tmp_path):
    models = {
        "mnist-fdarn": zoo.fdarn(7, 5, 3, key=jax.random.key(0)),
        "nade-mnist": zoo.nade(7, 5, key=jax.random.key(0)),
    }
    for name, model in models.items():
        save_model(tmp_path / "models" / f"{name}.safetensors", model, {})
    (tmp_path / "models" / "rbm-mnist.safetensors").write_bytes(b"not one of these")
    found = costs.trained(tmp_path, n=3, seconds=0.001)
    assert set(found) == set(models)
    assert found["mnist-fdarn"]["multiplied"] == 0
    assert found["mnist-fdarn"]["operations"] == pytest.approx(
        counted.count(models["mnist-fdarn"], 300)["operations"], rel=0.2
    )
    assert found["mnist-fdarn"]["dense_samples_per_second"] > 0
    assert found["nade-mnist"]["operations"] >= 7 * 5
    assert costs.count_sparse(costs.sparsened(zoo.fdarn(7, 100, 3, key=jax.random.key(0)), 0.05))[
        "hidden_on"
    ] == pytest.approx(5, abs=1)


def test_an_interrupted_measurement_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "COSTS", costs.COSTS[:2])

    def stop(text):
        if text.startswith("NADE"):
            raise KeyboardInterrupt

    options = {"scales": (1, 2), "n": 1, "seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        costs.run(tmp_path, progress=stop, **options)
    path = tmp_path / "costs" / "costs.json"
    (first,) = json.loads(path.read_text())["rows"]
    record = costs.run(tmp_path, **options)
    assert record["rows"][0] == first
    assert [r["name"] for r in record["rows"]] == ["FVSBN", "NADE"]
    assert json.loads(path.read_text()) == record
