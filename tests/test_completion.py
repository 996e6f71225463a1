"""Laws of completion: equal to enumeration on every small model, by every method."""

import csv
import dataclasses
import itertools
import json
from datetime import date, timedelta
from types import SimpleNamespace

import jax
import numpy as np
import polars as pl
import pytest
from helpers import GROUPS, P_VALUE, chi_square, make_model, number, randomised, states, table

import darn
from darn import DarnError, data
from darn.cli import main
from darn.config import Architecture
from darn.inference import completion, filling, likelihood, most_probable
from darn.inference.constrained import Variable, make_tables
from darn.runs import holes, pretrained
from darn.zoo import build

MODELS = ["factorial", "eonade", "mixture", "fvsbn | c", "1 factorial", "1 linear | c", "2 skip"]  # each kind of way


def exact(name, x, mask):
    """(log p(x_observed), p of every filling of the holes given it, the fillings' numbers) by summing a table."""
    every = states(len(x))
    p = np.exp(table(name)[0]).sum(axis=1)
    fits = (every[:, ~mask] == x[~mask]).all(axis=1)
    return np.log(p[fits].sum()), p[fits] / p[fits].sum(), every[fits][:, mask]


def masks(n):
    last, mixed = np.zeros((2, n), bool)
    last[-2:], mixed[::2] = True, True
    return {"last": last, "every other": mixed}


def rows(n):
    return np.random.RandomState(n).randint(0, 2, (2, n)).astype(np.float32)


def twice(c, k=2):
    return None if c is None else np.repeat(c[None], k, axis=0)


@pytest.mark.parametrize("name", MODELS)
def test_equals_enumeration(name):
    model, c = make_model(name)
    x, n = rows(model.n_x), 2000
    for mask in masks(model.n_x).values():
        found = completion.complete(model, x, mask, n=n, context=twice(c), seed=1)
        assert found.method == "exact"
        scored = completion.conditional(model, x, mask, context=twice(c))
        for i in range(len(x)):
            log_p, p, fillings = exact(name, x[i], mask)
            np.testing.assert_allclose(found.log_p_observed[i], log_p, atol=2e-4)
            np.testing.assert_array_equal(found.x[i][:, ~mask], np.tile(x[i, ~mask], (n, 1)))
            cell = {tuple(f): k for k, f in enumerate(fillings.astype(int).tolist())}
            drawn = np.array([cell[tuple(d)] for d in found.x[i][:, mask].tolist()])
            assert chi_square(drawn, p) > P_VALUE
            mine = cell[tuple(x[i, mask].astype(int).tolist())]
            np.testing.assert_allclose(scored.log_p[i], np.log(p[mine]), atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_importance_agrees_with_enumeration(name, monkeypatch):
    known = completion.survey
    monkeypatch.setattr(completion, "survey", lambda *a: dataclasses.replace(known(*a), how="importance"))
    model, c = make_model(name)
    x, mask = rows(model.n_x)[:1], masks(model.n_x)["every other"]
    found = completion.complete(model, x, mask, n=4000, context=twice(c, 1), n_samples=4000, sweeps=2)
    log_p, p, fillings = exact(name, x[0], mask)
    assert 1 <= found.ess[0] <= 4001
    np.testing.assert_allclose(found.log_p_observed[0], log_p, atol=6 / found.ess[0] ** 0.5)
    counts = np.array([np.mean((found.x[0][:, mask] == f).all(axis=1)) for f in fillings])
    assert np.abs(counts - p).sum() / 2 < 0.02 + 3 * (len(p) / found.ess[0]) ** 0.5 / 2


@pytest.mark.parametrize("visible", ["factorial", "linear"])
def test_groups_stay_one_hot(visible):
    arch = Architecture(n_h=(3,), n_d=(4,), visible=visible)
    model = randomised(build(arch, sum(GROUPS), groups=GROUPS, key=jax.random.key(0)), 3)
    x = np.array([[0, 1, 0, 1, 1, 0, 0, 1]], np.float32)
    mask = np.repeat([True, False, True, False], GROUPS)
    found = completion.complete(model, x, mask, n=300)
    assert found.method == "exact"
    assert (found.x[0][:, :3].sum(axis=1) == 1).all()
    assert (found.x[0][:, 4:6].sum(axis=1) == 1).all()
    every = np.repeat(x, 6, axis=0)
    every[:, :3], every[:, 4:6] = np.tile(np.eye(3), (2, 1)), np.repeat(np.eye(2), 3, axis=0)
    total = np.logaddexp.reduce(likelihood.exact(model, every).log_p)
    np.testing.assert_allclose(found.log_p_observed[0], total, atol=1e-4)
    # A category may be ruled out: its unit is seen to be off.
    mask[1] = False
    assert (completion.complete(model, x * (np.arange(8) != 1), mask, n=100).x[0][:, 1] == 0).all()


def test_holes_by_nan_and_refusals():
    model, _ = make_model("fvsbn")
    x = rows(6)
    gaps = np.where(masks(6)["last"][None], np.nan, x)
    a = completion.complete(model, gaps, n=3, seed=2)
    b = completion.complete(model, x, masks(6)["last"], n=3, seed=2)
    np.testing.assert_array_equal(a.x, b.x)
    assert len(number(a.x[0])) == 3
    for bad, said in ((x + 0.5, "0 and 1"), (x[:, :4], "must have shape"), (x[:0], "at least one row")):
        with pytest.raises(DarnError, match=said):
            completion.complete(model, bad)
    with pytest.raises(DarnError, match="mask has shape"):
        completion.complete(model, x, np.zeros(5, bool))


# ---------------------------------------------------------------- the command line, and ready models

ROWS = (np.random.RandomState(0).random((40, 9)) < 0.5).astype(int)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    np.savetxt(folder / "a.csv", ROWS, fmt="%d", delimiter=",", header=",".join("abcdefghi"), comments="")
    assert main(["train", str(folder / "a.csv"), "--tiny", "--quiet", "--out", str(folder / "run")]) == 0
    return folder / "run"


def told(capsys, *argv):
    capsys.readouterr()
    status = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out.startswith(("{", "[")) else out, err


def test_complete_a_file_with_holes(run, tmp_path, capsys):
    text = "a,b,c,d,e,f,g,h,i\n1,0,,1,?,0,0,1,1\n0,0,0,0,0,0,0,0,\n"
    (tmp_path / "holes.csv").write_text(text)
    out = tmp_path / "filled.npy"
    status, facts, _ = told(capsys, "complete", run, tmp_path / "holes.csv", "-n", 4, "--out", out, "--json")
    assert status == 0
    assert facts["method"] == "exact"
    x = np.load(out)
    assert x.shape == (2, 4, 9)
    assert (x[0][:, [0, 1, 3, 5, 6, 7, 8]] == [1, 0, 1, 0, 0, 1, 1]).all()
    gaps = np.array([[1, 0, np.nan, 1, np.nan, 0, 0, 1, 1], [0] * 8 + [np.nan]])
    np.save(tmp_path / "holes.npy", gaps)
    assert told(capsys, "complete", run, tmp_path / "holes.npy", "-n", 4, "--out", tmp_path / "b.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), x)


def test_complete_what_is_hidden(run, tmp_path, capsys):
    status, facts, _ = told(
        capsys, "complete", run, "--hide", "lower", "--baselines", "--out", tmp_path / "a.png", "--json"
    )
    assert status == 0
    assert (tmp_path / "a.png").exists()
    assert len(facts["log_p_missing"]) == 2
    assert all(-20 < v["mean"] < 0 for v in facts["log_p_missing"].values())
    status, facts, _ = told(capsys, "complete", run, "--hide", "b,c", "--json")
    assert facts["missing"] == pytest.approx(2 / 9)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "nothing is missing"),
        (["digits"], "nothing is missing"),
        (["."], "nothing is missing"),
        (["--hide", "z"], "there is no column 'z'"),
        (["--hide", "lower", "-n", "0"], "-n must be at least 1"),
        (["--hide", "lower", "--sweeps", "-1"], "--sweeps must be at least 0"),
        (["no.csv"], "cannot be read"),
    ],
)
def test_complete_refuses(run, capsys, argv, said):
    status, _, err = told(capsys, "complete", run, *argv)
    assert status == 2
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("cell", ["2", "0.5", "x"])
def test_a_cell_that_is_no_bit_is_named(run, tmp_path, capsys, cell):
    (tmp_path / "t.csv").write_text(f"a,b,c,d,e,f,g,h,i\n1,0,,1,{cell},0,0,1,1\n")
    status, _, err = told(capsys, "complete", run, tmp_path / "t.csv", "--out", tmp_path / "out.csv")
    assert status == 2
    assert f"has '{cell}' in column 'e'" in err
    assert not (tmp_path / "out.csv").exists()


def test_rows_of_one_line_have_a_left_and_a_right_half_alone():
    run = SimpleNamespace(shape=None, model=SimpleNamespace(n_x=5))
    assert [holes.hidden_units(run, half).tolist() for half in ("left", "right")] == [
        [True, True, False, False, False],
        [False, False, True, True, True],
    ]
    for half in ("upper", "lower"):
        with pytest.raises(DarnError, match=f"no {half} half: hide left or right"):
            holes.hidden_units(run, half)


def test_holes_of_a_table_are_filled_with_values(tmp_path, capsys):
    lines = ["colour,size"] + [f"{c},{s}" for c, s in zip(["red", "green", ""] * 12, ["S", "M"] * 18)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    train = ["train", tmp_path / "t.csv", "--categorical", "auto", "--tiny", "--quiet", "--out", tmp_path / "run"]
    assert told(capsys, *train)[0] == 0
    (tmp_path / "holes.csv").write_text("size,colour\nS,\n,red\n")
    fill = ["complete", tmp_path / "run", tmp_path / "holes.csv", "-n", 20, "--out", tmp_path / "f.csv"]
    assert told(capsys, *fill)[0] == 0
    (tmp_path / "none.csv").write_text("size,colour\n")
    assert "has no rows" in told(capsys, "complete", tmp_path / "run", tmp_path / "none.csv")[2]
    away = ["compress", tmp_path / "run", tmp_path / "away.csv", tmp_path / "a.drn"]
    assert "there is no file" in told(capsys, *away)[2]
    rows = [line.split(",") for line in (tmp_path / "f.csv").read_text().splitlines()]
    assert rows[0] == ["size", "colour"]
    assert {r[1] for r in rows[1:21]} <= {"red", "green"}
    assert {r[0] for r in rows[1:21]} == {"S"}
    assert {r[1] for r in rows[21:]} == {"red"}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("out", ["csv", "parquet"])
def test_given_cells_are_kept_in_every_format(ending, out, tmp_path, capsys):
    """And the types of a Parquet file; rows of texts get the types that lose nothing."""
    rng = np.random.default_rng(0)
    n = 120
    frame = pl.DataFrame(
        {
            "when": pl.Series([date(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 900, n)]),
            "age": pl.Series(rng.integers(18, 80, n), dtype=pl.Int32),
            "price": pl.Series(np.round(rng.lognormal(3, 1, n), 2)),
            "word": pl.Series(rng.choice(["a", "b, c", 'say "d"'], n), dtype=pl.Categorical),
            "yes": pl.Series(rng.random(n) < 0.5),
            "name": pl.Series([f"id-{i:05}" for i in range(n)]),
            "zip": pl.Series([f"0{i % 7:04}" for i in range(n)]),
        }
    )
    holes = rng.random((n, 5)) < 0.2
    gappy = frame.with_columns(
        pl.when(pl.Series(~holes[:, j])).then(pl.col(c)).otherwise(None).alias(c)
        for j, c in enumerate(frame.columns[:5])
    )
    (frame.write_csv if ending == "csv" else frame.write_parquet)(tmp_path / f"whole.{ending}")
    (gappy.write_csv if ending == "csv" else gappy.write_parquet)(tmp_path / f"gappy.{ending}")
    run, done = tmp_path / "run", tmp_path / f"done.{out}"
    words = ["train", str(tmp_path / f"whole.{ending}"), "--categorical", "auto", "--tiny", "--quiet"]
    assert main([*words, "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["complete", str(run), str(tmp_path / f"gappy.{ending}"), "-n", "2", "--out", str(done)]) == 0
    said = capsys.readouterr().out
    assert "set aside, so copied with their missing cells: name" in said
    assert ("between commas" in said) == (ending == "csv")
    found = data.read_table(done)
    given = data.read_table(tmp_path / f"gappy.{ending}").cells.repeat(2, axis=0)
    gone = data.is_missing(given)
    assert not data.is_missing(found.cells).any()
    kept = found.cells == given
    if ending == "csv" and out == "parquet":  # true and false of a .csv are texts
        kept[:, 2] = found.cells[:, 2].astype(float) == np.where(gone[:, 2], 0, given[:, 2]).astype(float)
    assert (kept | gone).all()
    if out == "parquet":
        types = pl.read_parquet(done).schema
        plain = {"age": pl.Int64, "word": pl.String, "yes": pl.String}
        assert types == (frame.schema if ending == "parquet" else {**frame.schema, **plain})
    # A number that the column's own type would change keeps its text.
    if ending == "csv":
        lines = (tmp_path / "gappy.csv").read_text().splitlines()
        (tmp_path / "odd.csv").write_text("\n".join([lines[0], "2020-01-01,20.5,,b,true,x,0", *lines[1:]]))
        argv = ["complete", str(run), str(tmp_path / "odd.csv"), "--unseen", "nearest", "--out", str(done)]
        assert main(argv) == 0
        assert data.read_table(done).cells[0, 1] == "20.5"


def test_a_missing_cell_of_a_column_with_one_value_is_filled(tmp_path, capsys):
    lines = ["colour,mark"] + [f"{c},{m}" for c, m in zip(["red", "green"] * 18, ["x", "", ""] * 12)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    train = ["train", tmp_path / "t.csv", "--categorical", "auto", "--tiny", "--quiet", "--out", tmp_path / "run"]
    assert told(capsys, *train)[0] == 0
    for rows, filled in (("red,\n", "red,x\n"), ("red,x\ngreen,\n", "red,x\ngreen,x\n")):
        (tmp_path / "holes.csv").write_text(f"colour,mark\n{rows}")
        fill = ["complete", tmp_path / "run", tmp_path / "holes.csv", "--out", tmp_path / "f.csv", "--json"]
        assert told(capsys, *fill)[1]["rows_with_holes"] == 1
        assert (tmp_path / "f.csv").read_text() == f"colour,mark\n{filled}"
    (tmp_path / "holes.csv").write_text("colour,mark\nred,x\n")
    assert "nothing is missing" in told(capsys, "complete", tmp_path / "run", tmp_path / "holes.csv")[2]


@pytest.mark.parametrize("name", ["1 factorial", "fvsbn | c"])
def test_completions_under_conditions_equal_enumeration(name):
    """Bits whose values meet a condition by a weight, some of them observed, and some missing."""
    model, c = make_model(name)
    n = model.n_x
    rng = np.random.RandomState(0)
    weights = [np.array([0.2, 0.9]), np.ones(2), np.array([0.0, 1.0]), *[np.ones(2)] * (n - 4), np.array([1.0, 0.5])]
    variables = [Variable(j, np.array([[0], [1]]), w) for j, w in enumerate(weights)]
    tables, _ = make_tables(variables, n, most=0)
    x, mask = rng.randint(0, 2, (1, n)).astype(np.float32), np.arange(n) % 4 != 3
    known = dataclasses.replace(completion.survey(model, [mask[None]]), how="importance")
    options = {"n": 4000, "n_samples": 4000, "sweeps": 1, "conditions": tables}
    found = next(completion.complete_parts(model, [(x, mask[None], twice(c, 1))], known, **options))
    _, p, fillings = exact(name, x[0], mask)
    for j, bits in zip(np.flatnonzero(mask), fillings.T.astype(int)):
        p = p * weights[j][bits]
    log_p = exact(name, x[0], mask)[0] + np.log(p.sum())
    np.testing.assert_allclose(found.log_p_observed[0], log_p, atol=6 / found.ess[0] ** 0.5)
    counts = np.array([np.mean((found.x[0][:, mask] == f).all(axis=1)) for f in fillings])
    assert np.abs(counts - p / p.sum()).sum() / 2 < 0.02 + 3 * (len(p) / found.ess[0]) ** 0.5 / 2


@pytest.mark.parametrize("visible", ["factorial", "nade"])
def test_the_most_probable_completion_is_that_of_enumeration(visible, monkeypatch):
    arch = Architecture(n_h=(2,), n_d=(4,), visible=visible, n_nade=(3,))
    model = randomised(build(arch, sum(GROUPS), groups=GROUPS, key=jax.random.key(0)), 3)
    ends = np.cumsum(GROUPS)
    codes = [np.array([[0], [1]]) if g == 1 else np.eye(g) for g in GROUPS]
    variables = [Variable(int(e - g), c, np.ones(len(c))) for e, g, c in zip(ends, GROUPS, codes)]
    x = np.array([[0, 1, 0, 1, 1, 0, 0, 1]], np.float32)
    mask = np.repeat([True, False, True, True], GROUPS)[None]
    drawn = completion.complete(model, x, mask, n=200).x
    every = np.repeat(x, 12, axis=0)
    for i, rest in enumerate(itertools.product(np.eye(3), np.eye(2), np.eye(2))):
        every[i, :3], every[i, 4:6], every[i, 6:] = rest
    best = every[np.argmax(likelihood.exact(model, every).log_p)]
    for most in (most_probable.MOST, 1):  # all fillings, or those that were drawn
        monkeypatch.setattr(most_probable, "MOST", most)
        found = most_probable.most_probable(model, variables, mask, drawn)
        np.testing.assert_array_equal(found.x[0], best)
        assert found.exact.all() == (most > 1)


def test_probabilities_of_missing_cells(tmp_path, capsys):
    numbers = np.random.RandomState(0).poisson(30, 60)
    lines = ["colour,size"] + [f"{'red' if i % 3 else 'green'},{v}" for i, v in enumerate(numbers)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    train = ["train", tmp_path / "t.csv", "--column", "size=number", "--tiny", "--quiet", "--out", tmp_path / "run"]
    assert told(capsys, *train)[0] == 0
    (tmp_path / "holes.csv").write_text("colour,size\nred,30\ngreen,\n,31\n")
    fill = ["complete", tmp_path / "run", tmp_path / "holes.csv", "--most-probable", "--cells", tmp_path / "c.csv"]
    status, facts, _ = told(capsys, *fill, "--out", tmp_path / "f.csv", "--json")
    assert (status, facts["rows_with_holes"]) == (0, 2)
    with (tmp_path / "c.csv").open() as f:
        cells = list(csv.DictReader(f))
    assert {(c["row"], c["column"]) for c in cells} == {("2", "size"), ("3", "colour")}
    for column in ("size", "colour"):
        mine = [c for c in cells if c["column"] == column]
        p = [float(c["probability"]) for c in mine]
        assert sum(p) == pytest.approx(1, abs=1e-5)
        assert p == sorted(p, reverse=True)
        assert all(bool(c["mean"]) == (column == "size") for c in mine)
    filled = (tmp_path / "f.csv").read_text().splitlines()
    assert filled[1] == "red,30"
    assert filled[3].split(",")[0] in ("red", "green")
    assert min(numbers) <= int(filled[2].split(",")[1]) <= max(numbers)
    given = ["complete", tmp_path / "run", tmp_path / "holes.csv", "-n", 30, "--out", tmp_path / "h.csv", "--given"]
    assert told(capsys, *given, "size in 27..33")[0] == 0
    rows = [line.split(",") for line in (tmp_path / "h.csv").read_text().splitlines()[1:]]
    assert len(rows) == 90
    assert all(27 <= int(size) <= 33 for _, size in rows)
    assert len({size for _, size in rows[30:60]}) > 1
    for text, said in (("size>30", "'30' in column 'size' of row 1"), ("colour is missing", "impossible")):
        status, _, err = told(capsys, *given, text)
        assert (status, said in err) == (2, True)
    assert told(capsys, *fill, "--out", tmp_path / "g.csv")[0] == 0
    assert (tmp_path / "g.csv").read_bytes() == (tmp_path / "f.csv").read_bytes()


def test_pretrained_models(capsys, tmp_path, monkeypatch):
    status, found, _ = told(capsys, "models", "--json")
    assert status == 0
    by_name = {m["name"]: m for m in found}
    assert by_name["mnist-500"]["columns"] == 784
    # bounds of several encodings stand apart from the others
    assert (by_name["mnist-500"]["encodings"], by_name["mnist-ours"]["encodings"]) == (1, 5)
    _, text, _ = told(capsys, "models")
    assert {line.split()[0] for line in text.splitlines() if line.split()[3].endswith("*")} == {
        m["name"] for m in found if m["encodings"] > 1
    }
    loaded = darn.load("mnist-500")
    assert loaded.model.n_h == (500,)
    with pytest.raises(DarnError, match="did you mean mnist-500"):
        darn.load("mnist-50")
    monkeypatch.setattr(pretrained, "folders", lambda: [tmp_path])
    with pytest.raises(FileNotFoundError, match="copy it from results/models of the repository"):
        darn.load("mnist-500")


def test_weights_too_large_for_finite_probabilities():
    """A forged model, say: every weight is finite, but no sum of them."""
    model = make_model("1 factorial")[0]
    wild = jax.tree.map(lambda w: np.full_like(w, 1e38), model)
    x, mask = np.zeros((2, model.n_x)), np.ones((2, model.n_x), bool)
    with pytest.raises(DarnError, match="not finite"):
        list(filling.by_states(wild, [(x, mask, None)], 2 * 2**model.n_x, 2, 0, None))
