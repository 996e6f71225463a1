"""Laws of sweeps: padding changes nothing, many models are the models one by one, resuming changes nothing."""

import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import randomised, same

from darn import cli, data
from darn.config import LocalLayer, Window
from darn.errors import DarnError
from darn.files import locked
from darn.inference.objective import description_length
from darn.layers import AbstractBinaryLayer, bias_field, context_field
from darn.model import Conditional, Stack
from darn.model_file import load_model
from darn.nn import COMPILED, Dense
from darn.runs import sweep, sweep_record
from darn.runs.fields import show_field
from darn.runs.grid import PAPER_GRID, expand, parse_grid
from darn.runs.recipe import Recipe
from darn.runs.run import load
from darn.runs.start import maker
from darn.training import fit, plan, shapes, train_group, validation_samples
from darn.training._pad import pad, unpad
from darn.zoo import build

RNG = np.random.default_rng(0)
KIND = RNG.random((60, 1)) < 0.5
ROWS = data.Rows.from_array((RNG.random((60, 6)) < 0.2) ^ KIND)
VALID = data.Rows.from_array((RNG.random((30, 6)) < 0.2) ^ (RNG.random((30, 1)) < 0.5))
BASE = Recipe().replace(n_h=(3,), n_d=(4,), visible="linear", batch=20, epochs=4, lr=3e-3, validate_every=2, patience=0)


def recipe(**fields):
    return BASE.replace(**fields)


def planned(recipes, make, **options):
    return plan([r.architecture for r in recipes], [r.training for r in recipes], make, **options)


# (small, padded): pairs over every place where padding shows.
PAIRS = {
    "one layer": (recipe(), recipe(n_h=(5,), n_d=(7,))),
    "factorial, relu": (recipe(visible="factorial", activation="relu"), recipe(n_h=(4,), n_d=(9,))),
    "no tanh layer": (recipe(decoder_d=()), recipe(n_h=(6,), n_d=(5,))),
    "autoregressive encoder": (recipe(encoder="linear"), recipe(n_h=(5,), n_d=(4,))),
    "nade everywhere": (recipe(visible="nade", prior="nade", encoder="nade", n_nade=(3,)), recipe(n_h=(5,), n_d=(6,))),
    "eonade visible": (recipe(visible="eonade", n_nade=(3,), n_orderings=2), recipe(n_h=(5,), n_d=(6,))),
    "mixture": (recipe(visible="mixture", prior="mixture", n_components=3), recipe(n_h=(4,), n_d=(5,))),
    "two layers": (recipe(n_h=(3, 2), n_d=(4, 3)), recipe(n_h=(4, 5), n_d=(5, 6))),
    "two layers, skip": (recipe(n_h=(3, 2), skip=True), recipe(n_h=(5, 3), n_d=(6,))),
    "two layers, skip, no tanh": (recipe(n_h=(3, 2), n_d=(), skip=True), recipe(n_h=(5, 3), n_d=())),
    "context": (recipe(), recipe(n_h=(5,), n_d=(7,))),
    "context, no tanh": (recipe(n_d=()), recipe(n_h=(5,), n_d=())),
}
pairs = pytest.mark.parametrize("name", PAIRS)


def made(name):
    """(small model with random weights, the same one padded, context)."""
    small_arch, more = PAIRS[name]
    units = ("n_h", "n_d") if small_arch.architecture.decoder_d is None else ("n_h",)
    big_arch = small_arch.replace(**{k: more.value(k) for k in units})
    n_context = 2 if name.startswith("context") else 0
    make = lambda arch: build(arch.architecture, 6, n_context=n_context, key=jax.random.key(1))  # noqa: E731
    small = randomised(make(small_arch), 3)
    context = jnp.asarray([0.5, -1.0]) if n_context else None
    return small, pad(small, eqx.filter_eval_shape(lambda: make(big_arch))), context


@eqx.filter_jit
def _lengths(model, x, context, key):
    def one(model, x):
        dl = description_length(model, x, context, key=key)
        return dl.total, dl

    total = lambda m: jnp.mean(jax.vmap(one, (None, 0))(m, x)[0])  # noqa: E731
    return jax.vmap(one, (None, 0))(model, x)[1], eqx.filter_grad(total)(model)


@pairs
def test_padded_units_are_inert(name):
    check_inert(*made(name))


def check_inert(small, padded, context):
    """Same bits, same description length, same gradient; and of what was added, a gradient of exactly 0."""
    same(jax.tree.map(np.asarray, unpad(padded, small)), jax.tree.map(np.asarray, small))
    x = jnp.asarray(ROWS.unpack()[:8], jnp.float32)
    (dl, g), (dl_padded, g_padded) = (_lengths(m, x, context, jax.random.key(5)) for m in (small, padded))
    for a, b in zip(jax.tree.leaves(dl), jax.tree.leaves(dl_padded)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    inner = unpad(g_padded, g)
    for a, b in zip(jax.tree.leaves(inner), jax.tree.leaves(g)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    left = pad(jax.tree.map(jnp.zeros_like, inner), g_padded)  # zeros where the small model is, NEVER on hidden biases
    ours = pad(jax.tree.map(jnp.ones_like, inner), g_padded)
    for w, at, zero in zip(*map(jax.tree.leaves, (g_padded, ours, left))):
        assert np.all(np.asarray(w)[np.asarray(at) == np.asarray(zero)] == 0)


class Urn(AbstractBinaryLayer):
    """A factorial layer from outside the package, with field names of its own."""

    level: jax.Array = bias_field()
    reader: Dense = context_field()
    n: int = eqx.field(static=True)

    def __init__(self, n, n_c, key):
        self.n, self.level, self.reader = n, jnp.zeros(n), Dense(n_c, n, bias=False, key=key)

    def logits(self, y, c=None, *, order=0):
        return self.start(c)

    def start(self, c=None, *, order=0):
        return self.level + self.reader(c)

    def walk(self, state, decide, carry, turns=COMPILED):
        carry, y = decide(carry, turns.xp.arange(self.n), state)
        return y, carry


class NoContextMarked(Urn):
    reader: Dense


class NoBiasMarked(Urn):
    level: jax.Array


class OtherAxis(Urn):
    """Its context runs over the first axis."""

    def __init__(self, n, n_c, key):
        self.n, self.level, self.reader = n, jnp.zeros(n), Dense(n, n_c, bias=False, key=key)


def urns(kind, n_h):
    """A skip-connected stack of such layers with an observed context: parents lie side by side."""
    k = jax.random.split(jax.random.key(0), 5)
    one, two = n_h
    decoder = kind(6, one + two + 2, k[0]), kind(one, two + 2, k[1]), kind(two, 2, k[2])
    encoder = kind(one, 6 + 2, k[3]), kind(two, 6 + one + 2, k[4])
    parts = (tuple(Conditional(layer) for layer in side) for side in (decoder, encoder))
    return Stack(*parts, skip=True, n_context=2)


def test_a_layer_from_elsewhere_is_padded_by_what_its_fields_say():
    small = randomised(urns(Urn, (3, 2)), 3)
    check_inert(small, pad(small, eqx.filter_eval_shape(urns, Urn, (5, 4))), jnp.asarray([0.5, -1.0]))


@pytest.mark.parametrize(
    ("kind", "said"),
    [(NoContextMarked, "context_field"), (NoBiasMarked, "bias_field"), (OtherAxis, "last axis of .layer.reader.W")],
)
def test_a_layer_that_does_not_say_enough_is_not_padded(kind, said):
    small = urns(kind, (3, 2))
    same(pad(small, urns(kind, (3, 2))), small)  # where nothing is added, nothing need be known
    with pytest.raises(DarnError, match=said) as e:
        pad(small, eqx.filter_eval_shape(urns, kind, (5, 4)))
    assert kind.__name__ in str(e.value)
    make = lambda arch, key: urns(kind, arch.n_h)  # noqa: E731
    wide = [recipe(n_h=(3, 2)), recipe(n_h=(5, 4))]
    with pytest.raises(DarnError, match=said):  # before any training
        planned(wide, make, programs=1)
    assert len(planned(wide, make)) == 2


def make_over(n_x):
    return lambda architecture, key: build(architecture, n_x, key=key)


def trained(configs, *, programs, width, rows=(ROWS, VALID)):
    """Models and records by number."""
    found = {}
    trainings = [c.training for c in configs]
    fresh = lambda i: build(configs[i].architecture, 6, key=jax.random.key(trainings[i].seed))  # noqa: E731
    make = make_over(6)
    for group in planned(configs, make, programs=programs):
        finish = lambda i, m, r: found.__setitem__(i, (m, r))  # noqa: E731
        assert train_group(group, trainings, fresh, shapes(make, group.padded), *rows, finish=finish, width=width)
    return found


def one_by_one(configs, rows=(ROWS, VALID)):
    fresh = [build(c.architecture, 6, key=jax.random.key(c.training.seed)) for c in configs]
    return [fit(m, *rows, c.training) for m, c in zip(fresh, configs)]


def close(found, expected):
    assert sorted(found) == list(range(len(expected)))
    for i, e in enumerate(expected):
        model, record = found[i]
        assert (record.epoch, record.epochs) == (e.epoch, e.epochs)
        assert record.bound == pytest.approx(e.bound, rel=1e-4)
        assert [r["epoch"] for r in record.history] == [r["epoch"] for r in e.history]
        for part in ("train", "valid"):  # as many encodings in validation, too
            ours, theirs = ([r[part]["bound"] for r in h] for h in (record.history, e.history))
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)
        for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(e.model)):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.fixture(scope="module")
def three():
    configs = [recipe(n_h=(h,), n_d=(d,), lr=lr) for h, d, lr in ((2, 5, 1e-2), (4, 3, 1e-3), (4, 5, 1e-3))]
    return configs, one_by_one(configs)


@pytest.mark.parametrize(("programs", "width"), [(1, None), (None, 1)])
def test_a_sweep_trains_what_training_one_by_one_does(programs, width, three):
    configs, expected = three
    close(trained(configs, programs=programs, width=width), expected)


def test_other_fields_vary_too():
    """Scalars as arrays over the models, and a field that takes a program of its own."""
    base = recipe(average=0.5, schedule="half", sparsity=0.3)
    grid = {"weight_decay": (0.0, 1e-2), "l1": (0.0, 1e-2), "seed": (0, 1), "estimator": ("darn", "straight_through")}
    configs = [expand(base, grid)[i] for i in (2, 13, 15)]
    close(trained(configs, programs=1, width=None), one_by_one(configs))


# Kinds of models and of training that have something of their own in the program.
KINDS = {
    "sparse": recipe(sparsity=0.2, epochs=6, validate_every=1),
    "noise on the weights": recipe(noise="matrix", noise_lr=0.01),
    "no hidden layer": recipe(n_h=(), n_d=()),
    "eonade": recipe(visible="eonade", n_nade=(3,), n_orderings=2),
    "weighted": recipe(n_samples=3, weighted=True),
    "averaged": recipe(average=0.9),
}


@pytest.mark.parametrize("width", [1, None])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_training_in_a_sweep_is_that_of_fit(name, width):
    """One after another: bit for bit, history included."""
    configs = expand(KINDS[name], {"lr": (1e-2, 1e-3)})
    expected, found = one_by_one(configs), trained(configs, programs=1, width=width)
    close(found, expected)
    if width == 1:
        for i, e in enumerate(expected):
            same(jax.tree.map(np.asarray, found[i][0]), jax.tree.map(np.asarray, e.model))
            assert found[i][1].history == e.history


def test_a_sweep_over_a_grid_of_pixels(tmp_path):
    """Local layers have no axis over the units of the layer above: nothing of theirs is padded."""
    local = recipe(n_h=(2,), n_d=(), visible="grid", local=(LocalLayer(2, 2, 2),), period=1, ar=Window(3, 1), epochs=2)
    build_over = lambda c, key: build(c, 16, shape=(4, 4), key=key)  # noqa: E731
    configs = expand(local, {"lr": (1e-2, 1e-3)})
    rows = data.Rows.from_array(RNG.random((40, 16)) < 0.3)
    fresh = lambda i: build_over(configs[i].architecture, jax.random.key(0))  # noqa: E731
    found = {}
    finish = lambda i, m, r: found.__setitem__(i, (m, r))  # noqa: E731
    (group,) = planned(configs, build_over, programs=1)
    trainings = [c.training for c in configs]
    train_group(group, trainings, fresh, shapes(build_over, group.padded), rows, rows, finish=finish)
    close(found, [fit(fresh(i), rows, rows, t) for i, t in enumerate(trainings)])


def test_each_model_stops_when_it_would_alone():
    """Stopped models leave the program, the others go on as if nothing had been."""
    base = recipe(epochs=60, validate_every=1, patience=2)
    rows = ROWS, data.Rows.from_array(VALID.unpack()[:6])
    configs = expand(base, {"lr": (3e-2, 1e-2, 1e-3)})
    expected = one_by_one(configs, rows)
    assert len({e.epochs for e in expected}) == 3
    close(trained(configs, programs=1, width=None, rows=rows), expected)


def test_a_model_that_diverges_leaves_the_others_alone():
    configs = expand(recipe(optimizer="sgd"), {"lr": (1e38, 1e-2)})
    found = trained(configs, programs=1, width=None)
    assert found[0][1].diverged
    assert not found[1][1].diverged
    close({0: found[1]}, one_by_one(configs[1:]))


# ---------------------------------------------------------------- plans and grids


def test_the_papers_grid():
    configs = expand(BASE, PAPER_GRID)
    assert len(configs) == 105
    alone = planned(configs, make_over(128))
    assert len(alone) == 35
    assert all(len(g.members) == 3 and g.padded.n_h == configs[g.members[0]].value("n_h") for g in alone)
    few = planned(configs, make_over(128), programs=4)
    assert len(few) == 4
    assert sorted(i for g in few for i in g.members) == list(range(105))
    for g in few:
        assert g.padded.n_h[0] == max(configs[i].value("n_h")[0] for i in g.members)
        assert g.padded.n_d[0] == max(configs[i].value("n_d")[0] for i in g.members)

    def cost(groups):
        return sum(len(g.members) * (g.padded.n_h[0] * 2 + 256) * g.padded.n_d[0] for g in groups)

    assert cost(few) < 0.7 * cost(planned(configs, make_over(128), programs=1))


def test_what_cannot_share_a_program_does_not():
    configs = [BASE, recipe(n_h=(3, 3)), recipe(visible="nade"), recipe(epochs=9), recipe(sparsity=0.1), recipe(lr=1.0)]
    assert sorted(g.members for g in planned(configs, make_over(6), programs=1)) == [
        (0, 5),
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    wide = [recipe(sparsity=0.1, n_h=(k,)) for k in (2, 3)]
    assert len(planned(wide, make_over(6), programs=1)) == 2


def test_grids_from_the_command_line():
    grid = parse_grid(["lr=1e-3,1e-4", "n_h=16,80x2,20+10", "skip=true,false"])
    assert grid == {"lr": (1e-3, 1e-4), "n_h": ((16,), (80, 80), (20, 10)), "skip": (True, False)}
    for words, said in (
        (["lr"], "lr=1e-3"),
        (["lrr=1"], "did you mean lr"),
        (["lr=1,x"], "a number"),
        (["lr=1", "lr=2"], "twice"),
        (["lr=1,1"], "twice"),
        (["labels=a,b"], "may not change the data"),
    ):
        with pytest.raises(DarnError, match=said):
            parse_grid(words)
    for grid in ({"weighted": (False, True), "n_samples": (2,)}, {"weighted": (True,), "n_samples": (2, 3)}):
        with pytest.raises(DarnError, match="not be comparable"):
            expand(BASE, grid)
    with pytest.raises(DarnError, match="lr must be"):
        expand(BASE, {"lr": (0.0,)})


# ---------------------------------------------------------------- folders


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, train=ROWS.unpack(), valid=VALID.unpack(), test=VALID.unpack()[:10])
    return recipe(source=str(path), epochs=8, validate_every=1, patience=2, checkpoint_every=0.0)


OWN_GRID = {"n_h": ((2,), (3,)), "lr": (3e-2, 1e-3)}


def test_the_best_model_is_an_ordinary_run(own, tmp_path):
    record = sweep.run(own, OWN_GRID, tmp_path / "s", programs=1, width=4)
    best = min(record["models"], key=lambda r: r["valid_bound"])
    assert record["best"] == best["number"]
    run = load(tmp_path / "s" / "best")
    assert {k: show_field(run.recipe.value(k)) for k in OWN_GRID} == best["fields"]
    assert run.model.n_h == run.recipe.architecture.n_h  # unpadded
    assert run.info["training"]["valid_bound"] == best["valid_bound"]
    assert len((tmp_path / "s" / "best" / "metrics.jsonl").read_text().splitlines()) == best["epochs"]
    assert json.loads((tmp_path / "s" / "sweep.json").read_text())["models"] == record["models"]
    assert not (tmp_path / "s" / "checkpoint.safetensors").exists()
    assert len(sweep_record.table(record)) == 5


def test_the_best_model_is_as_sparse_as_asked_for(own, tmp_path):
    """As between the epochs of one model: a better bound of a denser code does not count."""
    record = sweep.run(own.replace(sparsity=0.1, patience=0), {"lr": (1e-2, 1e-9)}, tmp_path / "s")
    ranks = [(m["excess"], m["valid_bound"]) for m in record["models"]]
    assert record["models"][record["best"]]["excess"] == min(ranks)[0]
    assert ranks[record["best"]] == min(ranks)
    assert min(ranks)[1] > min(bound for _, bound in ranks)
    assert sweep_record.table(record)[1].split()[0] == str(record["best"])


@pytest.mark.parametrize("width", [1, 4])
def test_resuming_a_sweep_gives_the_same_models(width, own, tmp_path, monkeypatch):
    whole = sweep.run(own, OWN_GRID, tmp_path / "whole", programs=1, width=width)

    class Killed(BaseException):
        pass

    calls = iter(range(1000))

    def kill(_):
        if next(calls) == 2:  # no model can have stopped before the third look
            raise Killed

    with pytest.raises(Killed):
        sweep.run(own, OWN_GRID, tmp_path / "broken", programs=1, width=width, progress=kill)
    assert (tmp_path / "broken" / "checkpoint.safetensors").exists()
    found = sweep.run(own, OWN_GRID, tmp_path / "broken", resume=True, programs=1, width=width)
    strip = lambda rows: [{k: v for k, v in r.items() if k != "seconds"} for r in rows]  # noqa: E731
    assert strip(found["models"]) == strip(whole["models"])
    for i in range(4):
        name = f"models/{i:03}.safetensors"
        same(load_model(tmp_path / "broken" / name)[0], load_model(tmp_path / "whole" / name)[0])
    again = sweep.run(own, OWN_GRID, tmp_path / "broken", resume=True)
    assert strip(again["models"]) == strip(whole["models"])


def test_sweeps_refuse(own, tmp_path):
    sweep.run(own.replace(epochs=1), {"lr": (1e-2,)}, tmp_path / "s", width=1)
    with pytest.raises(DarnError, match="exists already"):
        sweep.run(own, OWN_GRID, tmp_path / "s")
    with pytest.raises(DarnError, match="another grid"):
        sweep.run(own, OWN_GRID, tmp_path / "s", resume=True)
    with pytest.raises(DarnError, match="no sweep"):
        sweep.run(own, OWN_GRID, tmp_path / "t", resume=True)
    undivided = tmp_path / "rows.npy"
    np.save(undivided, ROWS.unpack())
    with pytest.raises(DarnError, match="depend on the seed"):
        sweep.run(own.replace(source=str(undivided)), {"seed": (0, 1)}, tmp_path / "u")
    with pytest.raises(DarnError, match="every model of the sweep diverged"):
        sweep.run(own.replace(optimizer="sgd"), {"lr": (1e38,)}, tmp_path / "v")


def test_a_sweep_has_its_folder_to_itself(own, tmp_path):
    """No other process, and no link that leads out of it."""
    with locked(tmp_path / "s", ()), pytest.raises(DarnError, match="another process"):
        sweep.run(own, OWN_GRID, tmp_path / "s")
    mine, sent = tmp_path / "mine", tmp_path / "sent"
    mine.mkdir()
    sweep.run(own.replace(epochs=1), {"lr": (1e-2,)}, sent, width=1)
    for name in ("best", "models"):
        shutil.rmtree(sent / name)
        (sent / name).symlink_to(mine)
        with pytest.raises(DarnError, match="a link to another folder"):
            sweep.run(own.replace(epochs=1), {"lr": (1e-2,)}, sent, width=1, resume=True)
        assert list(mine.iterdir()) == []
        (sent / name).unlink()
        (sent / name).mkdir()


def test_the_command(own, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "own.npz", "--tiny", "--grid", "lr=1e-2,1e-3", "--programs", "1", "--width", "2", "--quiet"]
    assert cli.main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [m["fields"] for m in record["models"]] == [{"lr": "0.01"}, {"lr": "0.001"}]
    assert load(record["run"]).info["training"]["valid_bound"] == record["models"][record["best"]]["valid_bound"]
    assert cli.main(words) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    assert cli.main([*words, "--resume"]) == 0
    assert "best of 2 models" in capsys.readouterr().out


def test_validation_takes_fewer_samples_of_wide_models():
    models = (shapes(make_over(n), recipe(n_h=h).architecture) for h, n in (((3,), 6), ((3,), 80_000), ((), 6)))
    assert [validation_samples(m, 100) for m in models] == [50, 25, 1]


@pytest.mark.parametrize("fields", [{}, {"n_h": (), "visible": "mixture"}, {"visible": "nade"}, {"visible": "eonade"}])
def test_models_side_by_side_are_bounded_by_memory(fields, own):
    splits = data.load(own.data.source)
    make = maker(splits)
    few, many = (sweep._fits(make, recipe(**{"n_d": (n,), **fields}).architecture, splits) for n in (10_000, 10))
    assert 1 <= few < many if fields.get("n_h", 1) else few == many
