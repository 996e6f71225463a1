"""Laws of the search: the default among its candidates, each trained as if alone, resumed as if never stopped."""

import contextlib
import json
import re
import threading
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from tqdm import tqdm

from darn import DARN
from darn.cli import main
from darn.data import Rows
from darn.errors import DarnError, InputError
from darn.runs import defaults, folder, search
from darn.runs.recipe import Recipe, override
from darn.runs.run import load
from darn.training import _halving, fit
from darn.zoo import build

SIZES = [(200, 500), (1260, 180), (4500, 123), (12_600, 300), (28_936, 128), (50_000, 784), (5_000_000, 40)]
BITS = (np.random.default_rng(0).random((400, 8)) < 0.4).astype(np.uint8)
BITS[:, 4:] = BITS[:, :4] ^ (BITS[:, 3:4] & BITS[:, 2:3])
TRAIN, VALID = Rows.from_array(BITS[:300]), Rows.from_array(BITS[300:])
FIELDS = {"n_h": (2,), "n_d": (), "epochs": 16, "batch": 100, "validate_every": 2, "visible": "linear"}
LRS = (1e-5, 1e-2, 1e-4, 1e-3)


def candidates():
    """Recipes of one program that differ in their learning rate, the first one hopeless."""
    return [override(Recipe(), FIELDS | {"lr": lr}) for lr in LRS]


def make(recipe):
    return build(recipe.architecture, 8, key=jax.random.key(0))


def weights(model):
    return [np.asarray(w) for w in jax.tree.leaves(model)]


def same(a, b):
    for v, w in zip(weights(a), weights(b), strict=True):
        np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize("size", SIZES)
def test_candidates_are_the_default_and_others_within_the_budget(size):
    rows, columns = size
    found = search.candidates(Recipe(), {}, rows, columns)
    assert found[0] == override(Recipe(), defaults.fields(rows, columns, {}))
    assert len(set(search.names(found))) == len(found)
    assert len(found) > 2 or rows > 1_000_000  # an epoch of millions of rows is beyond a search

    def seconds(r):
        fields = vars(r.architecture) | vars(r.training)
        return r.training.epochs * (rows // r.training.batch) * defaults.step_seconds(fields, columns)

    # at least an eighth of the work of each on two cores, and two of them to the end
    spent = sum(map(seconds, found[1:])) / 8 / 2 + 7 / 8 * max(map(seconds, found[1:]), default=0)
    assert spent <= 1.2 * defaults.usual_seconds(rows)
    assert [r.training.epochs >= search.LEAST_EPOCHS for r in found] == [True] * len(found)
    longer = search.candidates(Recipe(), {}, rows, columns, seconds=10 * defaults.usual_seconds(rows))
    assert len(longer) >= len(found)
    assert sum(map(seconds, longer)) >= sum(map(seconds, found))


@pytest.mark.parametrize(
    "given", [{"n_h": (16,)}, {"visible": "nade"}, {"lr": 0.1, "l1": 0.0}, {"batch": 10}, {"sparsity": 0.1}]
)
def test_given_fields_restrict_the_candidates(given):
    found = search.candidates(Recipe().replace(**given), given, 3000, 60, code=False)
    assert len(found) > 1
    for r in found:
        assert {k: r.value(k) for k in given} == given
        assert override(r, {}) == r
    whole = search.candidates(Recipe(), {}, 3000, 60, code=False)
    assert [r.architecture.n_h == () for r in whole].count(True) == 1
    assert all(r.architecture.n_h for r in search.candidates(Recipe(), {}, 3000, 60))


@pytest.mark.parametrize("rows", [300, 3000, 30_000])
def test_of_a_table_one_candidate_of_each_kind_is_tried(rows):
    """Beside the default; the one without a code to the end of its schedule, whatever the rows."""
    _, *found = search.candidates(Recipe(), {}, rows, 60, code=False)
    kinds = [(r.architecture.visible, bool(r.architecture.n_h)) for r in found]
    assert sorted(kinds) == [("linear", True), ("nade", False), ("nade", True)]
    plain = found[kinds.index(("nade", False))].training
    assert (plain.patience, plain.schedule) == (0, "cosine")
    assert plain.epochs >= 30


@pytest.mark.parametrize(
    ("given", "rows", "seconds"),
    [({}, 3000, 0), ({"epochs": 3}, 3000, None), ({}, 100, None), ({"visible": "mixture"}, 3000, None)],
)
def test_there_may_be_nothing_to_search(given, rows, seconds):
    found = search.candidates(Recipe(), given, rows, 60, seconds=seconds)
    assert found == [override(Recipe(), defaults.fields(rows, 60, given))]


def test_the_best_is_trained_as_if_alone():
    recipes = candidates()
    found = search.choose(recipes, make, TRAIN, VALID)
    bounds = [one["valid_bounds"] for one in found.record["candidates"]]
    assert [len(b) for b in bounds] == [3, 3, 1, 3]  # the worst of a kind leaves early, the default never
    assert found.record["chosen"] == int(np.argmin([b[-1] for b in bounds]))
    assert found.record["gain"] == bounds[0][-1] - min(b[-1] for b in bounds)
    alone = fit(make(found.recipe), TRAIN, VALID, found.recipe.training)
    assert alone.bound == found.loop.records[0].bound
    same(alone.model, found.loop.chosen())
    assert "less than the default" in search.statement(found.record)
    assert "lr 0.01" in search.statement(found.record)


def test_a_diverged_candidate_is_not_chosen():
    """Not even one that validated well before: the rest of its training is not a number."""
    recipes = [override(Recipe(), FIELDS | {"lr": lr}) for lr in (1e-5, 1e-2, 1e-4)]
    advance = _halving.Loop.advance

    def broken(loop):
        advance(loop)
        if loop.config.lr == 1e-2 and loop.epoch > 4:
            loop.records[0].diverged = loop.records[0].stopped = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_halving.Loop, "advance", broken)
        found = search.choose(recipes, make, TRAIN, VALID)
    assert found.record["chosen"] == 2
    assert found.record["candidates"][1]["valid_bounds"][-1] is None


@contextlib.contextmanager
def pressing(calls):
    """Ctrl-C after so many calls into a program."""
    flag, before = threading.Event(), _halving.Loop.advance

    def advance(loop):
        nonlocal calls
        calls -= 1
        if calls <= 0:
            flag.set()
        return before(loop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_halving.Loop, "advance", advance)
        patch.setattr(_halving, "ctrl_c", lambda: contextlib.nullcontext(flag))
        yield


def test_an_interrupted_search_is_resumed_as_if_never_stopped(tmp_path):
    np.savez(tmp_path / "own.npz", train=BITS[:300], valid=BITS[300:350], test=BITS[350:])
    recipes = [r.replace(source=str(tmp_path / "own.npz")) for r in candidates()]
    whole = folder.train(recipes[0], tmp_path / "whole", candidates=recipes, progress=False)
    assert not whole.interrupted
    out = tmp_path / "parts"
    for i, calls in enumerate((3, 12, 9)):
        with pressing(calls):
            part = folder.train(recipes[0], out, candidates=recipes, resume=i > 0, progress=False)
        assert part.interrupted
        assert part.epochs == 0
    found = folder.train(recipes[0], out, candidates=recipes, resume=True, progress=False)
    assert found.search == whole.search
    assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
    for name in ("model", "checkpoint"):
        a, b = (load_file(path / f"{name}.safetensors") for path in (out, tmp_path / "whole"))
        for k in a:
            np.testing.assert_array_equal(a[k], b[k])
    run = load(out)
    assert run.recipe == recipes[run.about.search.chosen]
    with pytest.raises(DarnError, match="other candidates"):
        folder.train(recipes[0], out, candidates=recipes[:2], resume=True, progress=False)
    with pytest.raises(DarnError, match="other candidates"):
        folder.train(recipes[0], out, resume=True, progress=False)
    again = folder.train(recipes[0], out, candidates=recipes, resume=True, progress=False)
    same(again.model, whole.model)


def test_the_shell_says_what_was_chosen(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("own.csv", BITS, fmt="%d", delimiter=",")
    units = ["--n_h", "2", "--n_d", "2", "--visible", "linear", "--epochs", "8", "--quiet"]
    assert main(["train", "own.csv", *units, "--search", "1", "--out", "a"]) == 0
    assert "chosen by validation" in capsys.readouterr().out
    record = json.loads((tmp_path / "a/recipe.json").read_text())
    chosen = Recipe.from_json(record["recipe"]).training
    fields = [f"--{k}={getattr(chosen, k)}" for k in ("lr", "weight_decay", "l1", "batch")]
    assert main(["train", "own.csv", *units, *fields, "--search", "0", "--out", "b"]) == 0
    assert "chosen" not in capsys.readouterr().out
    a, b = (load_file(tmp_path / run / "model.safetensors") for run in "ab")
    for k in a:
        np.testing.assert_array_equal(a[k], b[k])
    assert main(["report", "a", "--rows", "10", "--samples", "5", "--repeats", "2"]) == 0
    assert "chosen by validation" in (tmp_path / "a/report.html").read_text()
    for wrong in ({"chosen": 9}, {"chosen": 1.5}, {"candidates": 3}):
        (tmp_path / "a/recipe.json").write_text(json.dumps(record | {"search": record["search"] | wrong}))
        assert main(["train", "own.csv", *units, "--search", "1", "--out", "a", "--resume"]) == 2
    assert main(["train", "digits", "--search", "5"]) == 2
    assert main(["train", "own.csv", "--search", "-1", "--out", "c"]) == 2
    assert not (tmp_path / "c").exists()


def test_the_estimator_searches_in_silence(capsys, tmp_path):
    X = (np.random.default_rng(0).random((300, 20)) < 0.4).astype(np.uint8)
    model = DARN(n_h=2, n_d=2, visible="linear", epochs=8, search=1, random_state=0).fit(X)
    assert capsys.readouterr().out == ""
    assert model.search_["chosen"] is not None
    model.save(tmp_path / "m.safetensors")
    assert DARN.load(tmp_path / "m.safetensors").search_ == model.search_
    assert DARN(n_h=2, n_d=2, visible="linear", epochs=8, random_state=0).fit(X).search_ is None
    for wrong in (-1, "long", None):
        with pytest.raises(InputError, match="search"):
            DARN(search=wrong).fit(X)


def test_the_bar_says_the_best_bound_and_ends_full(monkeypatch, capsys):
    shown = lambda **how: tqdm(**how | {"disable": False, "dynamic_ncols": False, "ncols": 80, "mininterval": 0})  # noqa: E731
    monkeypatch.setattr(search, "tqdm", shown)
    loop = SimpleNamespace(epoch=3, config=SimpleNamespace(epochs=9), records=[SimpleNamespace(bound=4.096)])
    with search._Bar(6, True) as bar:
        bar.update(0, loop)
    last = capsys.readouterr().err.split("\r")[-1]
    assert "100%" in last
    assert re.search(r"\[\d\d:\d\d, 4\.10 nats so far\]", last)
