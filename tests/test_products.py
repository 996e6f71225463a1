"""Every capability on every kind of model: what no law covers is where it breaks.

Each model of the list is trained for a moment on rows of its own, and then every function is tried on the run. A pair
that cannot be is in `CANNOT`, with the sentence that the user gets.
"""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import MODELS, SHAPES, same

import darn
from darn import cli
from darn.config import Architecture, DataOptions, Training
from darn.inference import completion, filling, likelihood, sampling
from darn.model_file import load_model, save_model
from darn.nn import REGISTRY
from darn.runs import folder, sweep
from darn.runs.dataset import scored_rows
from darn.runs.recipe import Recipe
from darn.runs.run import load
from darn.training import _fit

ROWS = 60
TABLES = {"a table, linear": "linear", "a table, factorial": "factorial", "a table, nade": "nade"}
# The layer of docs/extend.md, which nothing in the package knows, above and below.
ELSEWHERE = {"from elsewhere": Architecture(n_h=(3,), n_d=(3,), visible="urn", prior="urn", encoder="urn")}
NAMES = [*MODELS, *TABLES, *ELSEWHERE]
HOW = Training(epochs=3, batch=20, validate_every=1, checkpoint_every=1e9)

# Completed by importance weights as well, the way of codes too long to enumerate: one of each kind of visible layer.
WEIGHED = ("1 linear, linear encoder", "1 nade, nade encoder", "1 mixture", "2 skip", "on a grid, 1", "a table, linear")

NO_CONTEXT = "without an observed context"
CANNOT = {
    ("mixture", "compress"): "Mixture layers have no integer twin",
    ("1 mixture", "compress"): "Mixture layers have no integer twin",
    ("fvsbn | c", "compress"): NO_CONTEXT,
    ("1 linear | c", "compress"): NO_CONTEXT,
    ("2 skip, linear encoder | c", "compress"): NO_CONTEXT,
}


# ---------------------------------------------------------------- a run of each


def _write_rows(name: str, home: Path) -> DataOptions:
    """Rows that suit the model: an array, images, a table with classes, a table of words."""
    rng = np.random.default_rng(0)
    if name in TABLES:
        pets = [(rng.choice(["cat", "dog", "emu"]), rng.choice(["S", "L"]), rng.integers(2)) for _ in range(ROWS)]
        path = home / "rows.csv"
        path.write_text("kind,size,wild\n" + "".join(f"{k},{s},{w}\n" for k, s, w in pets))
        return DataOptions(source=str(path), categorical="auto")
    n_x, n_context = MODELS[name][1:] if name in MODELS else (5, 0)
    x = (rng.random((ROWS, n_x)) < rng.choice([0.2, 0.8], (ROWS, 1))).astype(np.uint8)
    if n_context:  # two classes, and a context of one unit for each
        path = home / "rows.csv"
        lines = [",".join([*map(str, row), str(i % 2)]) for i, row in enumerate(x)]
        path.write_text("\n".join([",".join([*(f"x{j}" for j in range(n_x)), "class"]), *lines]) + "\n")
        return DataOptions(source=str(path), labels="class")
    path = home / "rows.npy"
    np.save(path, x.reshape(ROWS, *SHAPES[name]) if name in SHAPES else x)
    return DataOptions(source=str(path))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    page = Path(__file__).parent.parent.joinpath("docs", "extend.md").read_text()
    if "urn" not in REGISTRY:
        exec(compile(page.split("```python\n")[1].split("```")[0], "extend.md", "exec"), {})
    return tmp_path_factory.mktemp("products")


def _architecture(name: str) -> Architecture:
    if name in TABLES:
        base = MODELS["1 nade, nade encoder" if TABLES[name] == "nade" else "1 linear, linear encoder"][0]
        return replace(base, visible=TABLES[name])
    return MODELS[name][0] if name in MODELS else ELSEWHERE[name]


@lru_cache
def trained(name: str, home: Path):
    """(recipe, run, model as it came out of training) of a model of the list."""
    here = home / str(NAMES.index(name))
    here.mkdir(exist_ok=True)
    recipe = Recipe(_architecture(name), HOW, _write_rows(name, here))
    fit = folder.train(recipe, here / "run", progress=False)
    return recipe, load(here / "run"), fit.model


class Case:
    """A model of the list with its run, its rows and a folder to write into."""

    def __init__(self, name: str, home: Path, out: Path):
        self.name, self.out = name, out
        self.recipe, self.run, self.fitted = trained(name, home)
        self.model = self.run.model
        rows = self.run.rows(split="train")
        self.x, self.context = scored_rows(rows.take(slice(0, 6)))

    def command(self, *words) -> str:
        """The output of a command on the run; what it prints on failure otherwise."""
        assert cli.main([str(w) for w in words]) == 0


# ---------------------------------------------------------------- functions


def train(case):
    assert np.isfinite(case.run.info["training"]["valid_bound"])


def resume(case, monkeypatch):
    """Stopped after the first call into the program, and resumed: the weights of the unbroken run."""

    class Pressed:
        def __init__(self):
            self.calls = 0

        def is_set(self):
            self.calls += 1
            return self.calls <= 2  # once whether to save, once whether to stop

    class CtrlC:
        def __enter__(self):
            return Pressed()

        def __exit__(self, *_):
            return None

    with monkeypatch.context() as patch:
        patch.setattr(_fit, "ctrl_c", CtrlC)
        assert folder.train(case.recipe, case.out / "run", progress=False).interrupted
    again = folder.train(case.recipe, case.out / "run", resume=True, progress=False)
    same(again.model, case.model)


def swept(case):
    record = sweep.run(case.recipe, {"lr": (1e-3, 1e-9)}, case.out / "sweep")
    best = load(case.out / "sweep" / "best")
    assert record["models"][record["best"]]["valid_bound"] == min(m["valid_bound"] for m in record["models"])
    assert jax.tree.structure(best.model) == jax.tree.structure(case.model)


def exact(case):
    scored = likelihood.exact(case.model, case.x, context=case.context)
    assert np.all(scored.log_p < 0)
    assert np.all(scored.row_bound >= -scored.log_p - 1e-3)


def importance(case):
    options = {"context": case.context, "n_samples": 300, "repeats": 2}
    found = likelihood.importance(case.model, case.x, **options)
    scored = likelihood.exact(case.model, case.x, context=case.context)
    np.testing.assert_allclose(found.log_p, scored.log_p, atol=0.2)


def sample(case):
    context = None if case.context is None else np.resize(case.context, (7, case.model.n_context))
    drawn = sampling.sample(case.model, 7, context=context, log_joint=True)
    assert drawn.x.shape == (7, case.model.n_x)
    assert [h.shape for h in drawn.h] == [(7, n) for n in case.model.n_h]
    if case.context is None:
        out, scores = case.out / "x.csv", case.out / "p.npy"
        case.command("sample", case.run.path, "-n", 7, "--seed", 0, "--out", out, "--log-joint", scores)
        np.testing.assert_allclose(np.load(scores), drawn.log_joint, rtol=1e-5)


def encode(case):
    code = sampling.encode(case.model, case.x, context=case.context)
    assert [h.shape for h in code.h] == [(6, n) for n in case.model.n_h]
    if case.model.n_layers:
        case.command("encode", case.run.path, "--out", case.out / "codes.npy")


def reconstruct(case):
    code = sampling.encode(case.model, case.x, context=case.context)
    assert code.x.shape == case.x.shape
    if case.model.n_layers:
        np.testing.assert_allclose(sampling.decode(case.model, code.h, context=case.context), code.x, rtol=1e-5)


def complete(case):
    missing = np.zeros(case.x.shape, bool)
    missing[:, : case.model.n_x // 2] = True  # the first: so that seen units follow missing ones
    options = {"context": case.context, "n": 3, "n_samples": 20, "sweeps": 1}  # as many as a report shows
    found = darn.complete(case.model, case.x, missing, **options)
    for drawn in found.x.swapaxes(0, 1):
        np.testing.assert_array_equal(drawn[~missing], case.x[~missing])
    assert np.all(found.log_p_observed <= 1e-5)
    if case.name in WEIGHED:
        keys = jax.random.split(jax.random.key(0), len(case.x))
        _, log_p, _ = filling.by_weights(case.model, case.x.astype(np.float32), missing, None, keys, 1, 300, 1)
        np.testing.assert_allclose(log_p, found.log_p_observed, atol=0.3)
    half = "lower" if case.run.shape else "right"
    case.command("complete", case.run.path, "--hide", half, "--samples", 5, "--sweeps", 1, "--out", case.out / "c.csv")


def conditional(case):
    missing = np.arange(case.model.n_x) >= case.model.n_x // 2
    found = completion.conditional(case.model, case.x, missing, context=case.context, n_samples=50, sweeps=1)
    scored = likelihood.exact(case.model, case.x, context=case.context)
    seen = darn.complete(case.model, case.x, missing, context=case.context)
    assert found.method == "exact"
    np.testing.assert_allclose(found.log_p, scored.log_p - seen.log_p_observed, atol=1e-4)


def compress(case):
    """Bit for bit; or one sentence, and no file."""
    source = Path(case.recipe.data.source)
    packed, back = case.out / "x.drn", case.out / f"back{source.suffix}"
    case.command("compress", case.run.path, source, packed)
    case.command("decompress", case.run.path, packed, back)
    assert back.read_bytes() == source.read_bytes()


def report(case):
    case.command("report", case.run.path, "--rows", 6, "--samples", 5, "--repeats", 2, "--out", case.out / "r.html")
    page = (case.out / "r.html").read_text()
    assert "<svg" in page or "<canvas" in page or "<img" in page


def evaluate(case, capsys):
    case.command("eval", case.run.path, "--samples", 20, "--repeats", 2, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["bound"] >= found["nll"] - 0.5


def save_and_load(case):
    save_model(case.out / "m.safetensors", case.model)
    same(load_model(case.out / "m.safetensors")[0], case.model)
    same(darn.load(case.run.path).model, case.fitted)  # not what a file gave, but what was written to it


FUNCTIONS = {
    "train": train,
    "resume": resume,
    "sweep": swept,
    "exact": exact,
    "importance": importance,
    "eval": evaluate,
    "sample": sample,
    "encode": encode,
    "reconstruct": reconstruct,
    "complete": complete,
    "conditional": conditional,
    "compress": compress,
    "report": report,
    "save and load": save_and_load,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_function_serves_every_model(name, function, home, tmp_path, request, capsys):
    case = Case(name, home, tmp_path)
    wanted = FUNCTIONS[function].__code__.co_varnames[1 : FUNCTIONS[function].__code__.co_argcount]
    more = {k: request.getfixturevalue(k) for k in wanted}
    if (name, function) not in CANNOT:
        FUNCTIONS[function](case, **more)
        return
    with pytest.raises(AssertionError):
        FUNCTIONS[function](case, **more)
    error = capsys.readouterr().err
    assert CANNOT[name, function] in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.drn"))


def test_every_refusal_is_of_a_pair_that_is_tried():
    assert all(name in NAMES and function in FUNCTIONS for name, function in CANNOT)
