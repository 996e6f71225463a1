"""Laws of recipes: each builds, trains and evaluates; its fields survive JSON and the command line; bad ones do not."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from darn import data
from darn.config import Architecture
from darn.errors import DarnError
from darn.inference import likelihood
from darn.paper.recipes import RECIPES, find
from darn.paper.recipes_baselines import BASELINES
from darn.paper.rows import UCI
from darn.runs import defaults, folder
from darn.runs.recipe import Recipe, fields_of, override, parse_field, show_field

ATARI_GAMES = [f"atari/{game}" for game in data.GAMES]
recipes = pytest.mark.parametrize("name", RECIPES)
WIDTHS = {s["name"]: s["columns"] for s in data.describe()}


@pytest.fixture
def noise(monkeypatch):
    """Random bits of the right width in place of every set."""

    def load(name, *, binarize=None, threshold=0.5, seed=0, labels=None, columns=None):
        rng = np.random.default_rng(seed)
        parts = [data.Rows.from_array(rng.random((n, WIDTHS[name])) < 0.3) for n in (20, 10, 10)]
        shape = (209, 159) if name.startswith("atari") else None
        return data.Splits(name, *parts, binarize, shape=shape, sha256="noise")

    monkeypatch.setattr(data, "load", load)


# A method differs from set to set in little but its width: one of each, the widest, and what MNIST has alone. The games
# have one network, and so have MNIST's models of few units: each is trained once. Freeway's three layers have two.
OURS = [f"{name}-ours" for name in UCI if f"{name}-ours" in RECIPES]
ALIKE = [*BASELINES, *ATARI_GAMES, *UCI, *OURS, "mnist-9", "mnist-10", "atari/freeway-2"]
ONCE = [n for n in ALIKE if not n.endswith("nips") and n not in ("web-ours", "eonade2-mnist", "atari/pong")]


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in ONCE])
def test_recipe_trains_and_evaluates(name, noise, tmp_path):
    recipe = RECIPES[name].tiny()
    assert recipe.data in WIDTHS
    # optax mixes types where our own code does not.
    ours = recipe.optimizer == "rmsprop_graves"
    with jax.numpy_dtype_promotion("strict" if ours else "standard"):
        fit = folder.train(recipe, tmp_path / "run", progress=False)
    assert fit.steps == 2  # 20 rows are one minibatch
    run = folder.load(tmp_path / "run")
    assert run.recipe == recipe
    assert run.model.n_x == WIDTHS[recipe.data]
    assert run.model.n_h[len(recipe.local_h) // 3 :] == recipe.n_h
    x = run.splits().test.unpack()[:2]
    if recipe.is_local:  # a frame has 33,231 pixels: few codes will do
        found = likelihood.importance(run.model, x, n_samples=2, repeats=2)
    else:
        found = likelihood.evaluate(run.model, x)
    assert np.isfinite(found.log_p).all()
    assert found.bound >= found.nll - 1e-3


@recipes
def test_recipe_is_plain_data(name):
    recipe = RECIPES[name]
    for r in (recipe, recipe.tiny()):
        assert Recipe.from_json(json.loads(json.dumps(r.to_json()))) == r
        assert override(r, {}) == r  # its own fields are within range
    assert recipe.promise
    assert find(name) == (name, recipe)


@recipes
def test_fields_survive_the_command_line(name):
    for f in fields_of():
        value = getattr(RECIPES[name], f.name)
        text = show_field(value)
        if value is None and "None" not in str(f.type):
            continue
        assert parse_field(f.name, "" if text == "''" else text) == value


def test_the_games_have_one_network():
    names = [f.name for f in dataclasses.fields(Architecture)]
    alike = [[getattr(RECIPES[n], name) for name in names] for n in ATARI_GAMES]
    assert all(r == alike[0] for r in alike)


def test_the_data_are_described():
    """Every paper's number belongs to a set that `darn data` knows, and mentions itself in the promise."""
    for recipe in RECIPES.values():
        for number in (recipe.paper_nll, recipe.paper_bound):
            assert number is None or f"{number}" in recipe.promise


def test_json_of_other_versions():
    known = Recipe().to_json()
    with pytest.raises(DarnError, match="'zeal'.*upgrade"):
        Recipe.from_json(known | {"zeal": 1})
    del known["l1"]  # an older file
    assert Recipe.from_json(known) == Recipe()


def test_find():
    assert find("my", "/data/my.table.csv") == (
        "my.table",
        dataclasses.replace(find("x", "x")[1], data="/data/my.table.csv"),
    )
    assert find("adult", "adult.csv")[1] is RECIPES["adult"]  # a recipe's name comes first
    near = (("mnist-50", "mnist-500"), ("Adult", "adult"), ("conect4", "connect4"), ("zzz", "darn recipes"))
    for wrong, said in near:
        with pytest.raises(DarnError, match=said):
            find(wrong)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n_h", "500", (500,)),
        ("n_h", "200,100", (200, 100)),
        ("n_h", "200, 100", (200, 100)),
        ("n_h", "80x3", (80, 80, 80)),
        ("n_h", "80x2,7", (80, 80, 7)),
        ("n_h", "", ()),
        ("decoder_d", "none", None),
        ("decoder_d", "", ()),
        ("skip", "true", True),
        ("skip", "No", False),
        ("epochs", "12", 12),
        ("lr", "1e-3", 1e-3),
        ("visible", "eonade", "eonade"),
        ("labels", "kind", "kind"),
        ("binarize", "none", None),
        ("optimizer", "adam", "adam"),
    ],
)
def test_parse_field(name, text, value):
    found = parse_field(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("n_hh", "5", "did you mean --n_h"),
        ("data", "adult", "no field --data"),
        ("promise", "much", "no field --promise"),
        ("zzzzzzz", "5", "darn train --help"),
        ("n_h", "5,x", "unit counts"),
        ("n_h", "0", "unit counts"),
        ("n_h", "-3", "unit counts"),
        ("n_h", "80x", "unit counts"),
        ("n_h", "80x0", "unit counts"),
        ("n_h", "none", "unit counts"),
        ("epochs", "2.5", "a whole number"),
        ("epochs", "", "a whole number"),
        ("lr", "fast", "a number"),
        ("skip", "2", "true or false"),
        ("visible", "nad", "did you mean nade"),
        ("activation", "gelu", "tanh, relu"),
    ],
)
def test_parse_field_refuses(name, text, said):
    with pytest.raises(DarnError, match=said) as e:
        parse_field(name, text)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lr": 0.0}, "--lr must be above 0"),
        ({"lr": float("nan")}, "--lr"),
        ({"lr": float("inf")}, "--lr"),
        ({"batch": 0}, "--batch"),
        ({"epochs": 0}, "--epochs"),
        ({"validate_every": 0}, "--validate_every"),
        ({"patience": -1}, "--patience"),
        ({"n_samples": 0}, "--n_samples"),
        ({"n_orderings": 0}, "--n_orderings"),
        ({"n_components": 0}, "--n_components"),
        ({"n_nade": ()}, "--n_nade"),
        ({"average": 1.0}, "--average"),
        ({"momentum": -0.1}, "--momentum"),
        ({"sparsity": 1.0}, "--sparsity"),
        ({"threshold": 0.0}, "--threshold"),
        ({"seed": 2**31}, "--seed"),
        ({"seed": -1}, "--seed"),
        ({"weight_decay": -1.0}, "--weight_decay"),
        ({"weight_decay": float("inf")}, "--weight_decay"),
        ({"l1": float("nan")}, "--l1"),
        ({"noise_sigma": 0.0}, "--noise_sigma"),
        ({"noise_lr": 1.0}, "--noise_lr"),
        ({"checkpoint_every": -1.0}, "--checkpoint_every"),
        ({"binarize": "intensity", "visible": "nade"}, "--visible factorial"),
        ({"log_q": "entropy", "encoder": "linear"}, "--encoder factorial"),
        ({"estimator": "disarm", "encoder": "nade"}, "--encoder factorial"),
        ({"decay_on": "encoder", "n_h": ()}, "give --n_h"),
        ({"weighted": True}, "--n_samples 2 or more"),
        ({"weighted": True, "n_samples": 2, "estimator": "reinforce"}, "--estimator darn or straight_through"),
        ({"weighted": True, "n_samples": 2, "n_h": ()}, "give --n_h"),
        ({"weighted": True, "n_samples": 2, "visible": "eonade"}, "eonade"),
        ({"local": (8, 4)}, "kernel,stride,filters"),
        ({"visible": "grid", "ar": (4, 4)}, "odd kernel"),
        ({"visible": "grid", "skip": True}, "--skip"),
        ({"local": (3, 2, 4), "visible": "nade"}, "--visible grid or factorial"),
    ],
)
def test_override_refuses(fields, said):
    with pytest.raises(DarnError, match=said):
        override(RECIPES["digits"], fields)


def test_tiny_is_small():
    deep = dataclasses.replace(RECIPES["mnist-500"], n_h=(80,) * 12, n_d=(400, 9), encoder_d=(7, 50), decoder_d=())
    small = deep.tiny()
    assert small.n_h == (8, 8, 8)
    assert small.n_d == (8, 8)
    assert small.encoder_d == (7, 8)
    assert small.decoder_d == ()
    assert small.epochs == 2
    assert small.n_rows == 1000
    assert dataclasses.replace(deep, n_rows=7).tiny().n_rows == 7


def test_n_rows_are_what_is_trained_on():
    whole, few = (folder.load_data(override(RECIPES["digits"], {"n_rows": n})) for n in (0, 50))
    assert [len(few.train), len(few.valid), len(few.test)] == [50, 50, len(whole.test)]
    assert len(whole.train) == len(data.load("digits").train)
    other = folder.load_data(override(RECIPES["digits"], {"n_rows": 50, "seed": 1}))
    np.testing.assert_array_equal(few.train.values, other.train.values)  # so that a sweep over seeds compares
    with pytest.raises(DarnError, match="--n_rows must be 0 or more"):
        override(RECIPES["digits"], {"n_rows": -1})


@pytest.mark.parametrize(
    ("rows", "columns", "given", "expected"),
    [
        (100, 20, {}, {"n_h": (8,), "visible": "linear"}),
        (5000, 123, {}, {"n_h": (32,), "visible": "linear", "epochs": 256}),
        (32_000, 128, {}, {"n_h": (64,), "visible": "nade", "n_nade": (100,), "lr": 2e-3}),
        (32_000, 784, {}, {"n_h": (200,), "visible": "linear"}),
        # what is meant for a NADE is not what suits another layer
        (32_000, 128, {"visible": "linear"}, {"n_h": (200,), "visible": "linear", "lr": 5e-4}),
        (32_000, 128, {"n_h": (7,), "epochs": 50}, {"n_h": (7,), "visible": "nade", "validate_every": 2}),
    ],
)
def test_defaults_follow_from_the_size_of_the_data(rows, columns, given, expected):
    found = defaults.fields(rows, columns, given)
    assert {k: found[k] for k in expected} == expected
