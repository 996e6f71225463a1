"""Laws of recipes: each builds, trains and evaluates; its fields survive JSON and the command line; bad ones do not."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from darn import data
from darn.config import Architecture, DataOptions, LocalLayer, Start, Training, Window
from darn.errors import DarnError
from darn.inference import likelihood
from darn.layers import Factorial
from darn.nn import REGISTRY
from darn.paper.recipes import RECIPES, find
from darn.paper.recipes_baselines import BASELINES
from darn.paper.rows import UCI
from darn.runs import defaults, folder
from darn.runs.dataset import load_data
from darn.runs.fields import fields_of, parse_field, placeholder, show_field
from darn.runs.recipe import PARTS, Recipe, override
from darn.runs.run import load

ATARI_GAMES = [f"atari/{game}" for game in data.GAMES]
recipes = pytest.mark.parametrize("name", RECIPES)
WIDTHS = {s["name"]: s["columns"] for s in data.describe()}


@pytest.fixture
def noise(monkeypatch):
    """Random bits of the right width in place of every set."""

    def load(name, *, binarize=None, threshold=0.5, seed=0, labels=None, columns=None):
        rng = np.random.default_rng(seed)
        parts = [data.Rows.from_array(rng.random((n, WIDTHS[name])) < 0.3) for n in (20, 10, 10)]
        shapes = {"binarized_mnist": (28, 28), "digits": (8, 8), "ocr_letters": (16, 8)}
        shape = (209, 159) if name.startswith("atari") else shapes.get(name)
        return data.Splits(name, *parts, binarize, shape=shape, sha256="noise")

    monkeypatch.setattr(data, "load", load)


# A method differs from set to set in little but its width: one of each, the widest, and what MNIST has alone. The games
# have one network, and so have MNIST's models of few units: each is trained once. Freeway's three layers have two.
OURS = [f"{name}-ours" for name in UCI if f"{name}-ours" in RECIPES]
FRONTIER = [name for name in RECIPES if "-frontier" in name]  # nor have these more than ocr_letters-ours, but size
ALIKE = [*BASELINES, *ATARI_GAMES, *FRONTIER, *UCI, *OURS, "mnist-9", "mnist-10", "atari/freeway-2"]
ONCE = [
    n
    for n in ALIKE
    if not n.endswith("nips") and n not in ("web-ours", "eonade2-mnist", "atari/pong", "ocr_letters-ours")
]


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in ONCE])
def test_recipe_trains_and_evaluates(name, noise, tmp_path):
    recipe = RECIPES[name].tiny()
    assert recipe.data.source in WIDTHS
    # optax mixes types where our own code does not.
    ours = recipe.training.optimizer == "rmsprop_graves"
    with jax.numpy_dtype_promotion("strict" if ours else "standard"):
        fit = folder.train(recipe, tmp_path / "run", progress=False)
    assert fit.steps == 2  # 20 rows are one minibatch
    run = load(tmp_path / "run")
    assert run.recipe == recipe
    assert run.model.n_x == WIDTHS[recipe.data.source]
    assert run.model.n_h[len(recipe.architecture.local_h) :] == recipe.architecture.n_h
    x = run.splits().test.unpack()[:2]
    if recipe.architecture.is_local:  # a frame has 33,231 pixels: few codes will do
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
    assert recipe.description
    assert find(name) == (name, recipe)


@recipes
def test_fields_survive_the_command_line(name):
    for f in fields_of():
        value = RECIPES[name].value(f.name)
        text = show_field(value)
        if value is None and "None" not in str(f.type):
            continue
        assert parse_field(f.name, "" if text == "''" else text) == value


def test_the_games_have_one_network():
    for names in (ATARI_GAMES, [f"{name}-frontier" for name in ATARI_GAMES]):
        assert len({RECIPES[name].architecture for name in names}) == 1


def test_the_data_are_described():
    """Every paper's number belongs to a set that `darn data` knows, and is in the description."""
    for recipe in RECIPES.values():
        for number in (recipe.paper_nll, recipe.paper_bound):
            assert number is None or f"{number}" in recipe.description


def test_json_is_nested_and_older_files_take_defaults():
    known = RECIPES["atari/pong"].to_json()
    assert known["architecture"]["local"][0] == {"kernel": 8, "stride": 4, "filters": 32}
    assert known["architecture"]["ar"] == {"kernel": 15, "period": 14}
    assert (known["training"]["lr"], known["data"]["source"]) == (2e-3, "atari/pong")
    del known["training"]["l1"]
    assert Recipe.from_json(known) == RECIPES["atari/pong"]
    assert Recipe.from_json({}) == Recipe()
    assert Recipe.from_json({"training": {"lr": 1}}).training.lr == 1.0


DEEP_JSON: list = []
for _ in range(50_000):
    DEEP_JSON = [DEEP_JSON]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "must be an object"),
        (None, "must be an object"),
        ("digits", "must be an object"),
        ({"zeal": 1}, "unknown field 'zeal'"),
        ({"n_h": [3]}, "unknown field 'n_h'"),
        ({"training": {"lrr": 1}}, "unknown field 'lrr': did you mean lr"),
        ({"training": {"zzzzz": 1}}, "upgrade darn"),
        ({"training": 3}, "training must be an object"),
        ({"training": {"lr": "fast"}}, "lr must be a number, not 'fast'"),
        ({"training": {"lr": None}}, "lr must be a number"),
        ({"training": {"lr": True}}, "lr must be a number"),
        ({"training": {"lr": 10**400}}, "lr must be a number"),
        ({"training": {"lr": float("nan")}}, "lr must be above 0"),
        ({"training": {"lr": float("inf")}}, "lr must be above 0"),
        ({"training": {"lr": -1.0}}, "lr must be above 0"),
        ({"training": {"epochs": 2.5}}, "epochs must be a whole number"),
        ({"training": {"epochs": True}}, "epochs must be a whole number"),
        ({"training": {"epochs": 10**30}}, "epochs must be at most"),
        ({"training": {"epochs": 0}}, "epochs must be at least 1"),
        ({"training": {"schedule": "sine"}}, "schedule must be one of .*cosine"),
        ({"training": {"schedule": ["half"]}}, "schedule must be a text"),
        ({"training": {"weighted": 1}}, "weighted must be true or false"),
        ({"architecture": {"n_h": 5}}, "n_h must be a list"),
        ({"architecture": {"n_h": "5"}}, "n_h must be a list"),
        ({"architecture": {"n_h": [[5]]}}, "n_h must be a whole number"),
        ({"architecture": {"n_h": [0]}}, "n_h must be at least 1"),
        ({"architecture": {"n_h": DEEP_JSON}}, "n_h must be a whole number"),
        ({"architecture": {"local": [8, 4, 32]}}, "local must be an object"),
        ({"architecture": {"local": [{"kernel": 8, "strid": 4}]}}, "unknown field 'strid': did you mean stride"),
        ({"architecture": {"ar": {"kernel": 0}}}, "kernel must be at least 1"),
        ({"architecture": {"ar": None}}, "ar must be an object"),
        ({"data": {"threshold": 2}}, "threshold must be above 0 and at most 1"),
        ({"data": {"source": 7}}, "source must be a text"),
        ({"data": {"binarize": "no"}}, "binarize must be one of"),
        ({"description": 3}, "description must be a text"),
        ({"paper_nll": "low"}, "paper_nll must be a number"),
    ],
)
def test_json_of_another_kind_is_refused(values, said):
    with pytest.raises(DarnError, match=said) as e:
        Recipe.from_json(values)
    assert len(str(e.value)) < 300
    assert "\n" not in str(e.value)


def test_no_two_parts_share_a_field():
    names = [f.name for part in PARTS.values() for f in dataclasses.fields(part)]
    assert len(set(names)) == len(names)
    assert not {*names} & {f.name for f in dataclasses.fields(Recipe)}
    with_all = {f.name for f in fields_of()} | {"source"}
    assert with_all == set(names)
    assert all(placeholder(f) for f in fields_of())


def test_replace_goes_by_field_name():
    changed = Recipe().replace(n_h=(3,), lr=1.0, drop="a", source="x", description="d", paper_nll=2.0)
    assert changed == Recipe(
        Architecture(n_h=(3,)), Training(lr=1.0), DataOptions("x", drop="a"), description="d", paper_nll=2.0
    )
    assert changed.value("n_h") == (3,)
    with pytest.raises(DarnError, match="no field promise"):
        changed.value("promise")


def test_find():
    assert find("my", "/data/my.table.csv") == (
        "my.table",
        find("x", "x")[1].replace(source="/data/my.table.csv"),
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
        ("local", "8/4/32,4/2/16", (LocalLayer(8, 4, 32), LocalLayer(4, 2, 16))),
        ("local", "", ()),
        ("local_h", "5/2/16", (LocalLayer(5, 2, 16),)),
        ("ar", "15/14", Window(15, 14)),
        ("conv_start", "4/9/8", Start(4, 9, 8)),
        ("conv_dilations", "1,2,4,8", (1, 2, 4, 8)),
    ],
)
def test_parse_field(name, text, value):
    found = parse_field(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("n_hh", "5", "did you mean n_h"),
        ("source", "adult", "no field source"),
        ("description", "much", "no field description"),
        ("zzzzzzz", "5", "lists the fields"),
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
        ("lr", "nan", "above 0"),
        ("local", "8,4,32", "kernel/stride/filters"),
        ("local", "8/4", "kernel/stride/filters"),
        ("local", "8/4/32/1", "kernel/stride/filters"),
        ("local", "8/0/32", "stride must be at least 1"),
        ("local", "8/4/x", "kernel/stride/filters"),
        ("ar", "15", "an odd kernel and a period"),
        ("ar", "", "an odd kernel and a period"),
    ],
)
def test_parse_field_refuses(name, text, said):
    with pytest.raises(DarnError, match=said) as e:
        parse_field(name, text)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lr": 0.0}, "^lr must be above 0"),
        ({"lr": float("nan")}, "lr"),
        ({"lr": float("inf")}, "lr"),
        ({"batch": 0}, "batch"),
        ({"epochs": 0}, "epochs"),
        ({"validate_every": 0}, "validate_every"),
        ({"patience": -1}, "patience"),
        ({"n_samples": 0}, "n_samples"),
        ({"n_orderings": 0}, "n_orderings"),
        ({"n_components": 0}, "n_components"),
        ({"n_nade": ()}, "n_nade"),
        ({"average": 1.0}, "average"),
        ({"momentum": -0.1}, "momentum"),
        ({"sparsity": 1.0}, "sparsity"),
        ({"threshold": 0.0}, "threshold"),
        ({"seed": 2**31}, "seed"),
        ({"seed": -1}, "seed"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"weight_decay": float("inf")}, "weight_decay"),
        ({"l1": float("nan")}, "l1"),
        ({"noise_sigma": 0.0}, "noise_sigma"),
        ({"noise_lr": 1.0}, "noise_lr"),
        ({"checkpoint_every": -1.0}, "checkpoint_every"),
        ({"binarize": "intensity", "visible": "nade"}, "visible factorial"),
        ({"log_q": "entropy", "encoder": "linear"}, "encoder factorial"),
        ({"estimator": "disarm", "encoder": "nade"}, "encoder factorial"),
        ({"decay_on": "encoder", "n_h": ()}, "give n_h"),
        ({"weighted": True}, "n_samples 2 or more"),
        ({"weighted": True, "n_samples": 2, "estimator": "reinforce"}, "estimator darn or straight_through"),
        ({"weighted": True, "n_samples": 2, "n_h": ()}, "give n_h"),
        ({"weighted": True, "n_samples": 2, "visible": "eonade"}, "eonade"),
        ({"local": (LocalLayer(8, 0, 1),)}, "stride must be at least 1"),
        ({"visible": "grid", "ar": Window(4, 4)}, "odd kernel"),
        ({"visible": "grid", "skip": True}, "skip"),
        ({"visible": "grid", "labels": "kind"}, "labels"),
        ({"sparsity": 0.1, "n_h": ()}, "give n_h"),
        ({"n_hh": (3,)}, "no field n_hh: did you mean n_h"),
        ({"visible": "urn"}, "visible must be one of factorial"),
        ({"local": (LocalLayer(3, 2, 4),), "visible": "nade"}, "visible grid, conv or factorial"),
        ({"dropout": 0.1}, "dropout needs visible conv or eonade"),
        ({"orders": "symmetries"}, "orders needs visible conv"),
        ({"visible": "conv", "dropout": 0.1, "weighted": True, "n_samples": 2}, "leave out dropout"),
        ({"visible": "conv", "dropout": 1.0}, "dropout must be"),
        ({"conv_start": Start(2, 4, 3)}, "odd number of columns"),
        ({"conv_dilations": ()}, "conv_dilations must have"),
        ({"clip": -1.0}, "clip must be"),
        ({"moved": 1.5}, "moved must be"),
        ({"warmup": 0.1, "warmup_steps": 10}, "leave one out"),
    ],
)
def test_override_refuses(fields, said):
    with pytest.raises(DarnError, match=said) as e:
        override(RECIPES["digits"], fields)
    assert "--" not in str(e.value)  # options are the command line's business


def test_tiny_is_small():
    deep = RECIPES["mnist-500"].replace(n_h=(80,) * 12, n_d=(400, 9), encoder_d=(7, 50), decoder_d=())
    small = deep.tiny()
    expected = {"n_h": (8, 8, 8), "n_d": (8, 8), "encoder_d": (7, 8), "decoder_d": (), "epochs": 2, "n_rows": 1000}
    assert {k: small.value(k) for k in expected} == expected
    assert deep.replace(n_rows=7).tiny().data.n_rows == 7
    game = RECIPES["atari/pong"].tiny()
    assert game.data.n_rows == 100
    assert game.architecture.local == (LocalLayer(8, 4, 4), LocalLayer(4, 2, 4))


def test_n_rows_are_what_is_trained_on():
    whole, few = (load_data(override(RECIPES["digits"], {"n_rows": n})) for n in (0, 50))
    assert [len(few.train), len(few.valid), len(few.test)] == [50, 50, len(whole.test)]
    assert len(whole.train) == len(data.load("digits").train)
    other = load_data(override(RECIPES["digits"], {"n_rows": 50, "seed": 1}))
    np.testing.assert_array_equal(few.train.values, other.train.values)  # so that a sweep over seeds compares
    with pytest.raises(DarnError, match="n_rows must be at least 0"):
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


def test_recipes_name_layers_of_other_packages(monkeypatch):
    recipe = Recipe().replace(visible="of-another-package")
    with pytest.raises(DarnError, match="has to be imported first"):
        Recipe.from_json(recipe.to_json())
    monkeypatch.setitem(REGISTRY, "of-another-package", Factorial)
    assert Recipe.from_json(recipe.to_json()) == recipe
