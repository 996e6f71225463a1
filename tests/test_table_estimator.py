"""Laws of the estimator for tables: frames in, frames of the same types out, and the shell's model files."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

from darn import DarnError, TableDARN
from darn.cli import main
from darn.config import Architecture
from darn.inference import likelihood
from darn.zoo import build

RNG = np.random.default_rng(0)
N = 150
WHEN = np.datetime64("2020-01-01") + RNG.integers(0, 700, N)
COLUMNS = {
    "kind": RNG.choice(["cat", "dog", "hen"], N).tolist(),
    "n": RNG.poisson(40, N).tolist(),
    "w": [None if i % 9 == 0 else float(v) for i, v in enumerate(RNG.normal(5, 1, N).round(2))],
    "ok": (RNG.random(N) < 0.5).tolist(),
    "when": WHEN.astype("datetime64[ms]").tolist(),
    "id": [f"x{i}" for i in range(N)],
    "row": list(range(1, N + 1)),
    "some": [None if i % 5 == 0 else int(v) for i, v in enumerate(RNG.integers(0, 90, N))],
}


def pandas_frame():
    kinds = {"kind": "category", "some": "Int64", "n": "int16", "w": "float32"}
    return pd.DataFrame(COLUMNS).astype(kinds)


def polars_frame():
    return pl.DataFrame(COLUMNS).with_columns(pl.col("n").cast(pl.UInt8), pl.col("kind").cast(pl.Categorical))


FRAMES = {"pandas": pandas_frame, "polars": polars_frame}


def as_lists(frame):
    """The columns as lists, with None for missing values."""
    lists = {c: frame[c].tolist() if isinstance(frame, pd.DataFrame) else frame[c].to_list() for c in frame.columns}
    return {c: [None if pd.isna(v) else v for v in column] for c, column in lists.items()}


@pytest.fixture(scope="module", params=FRAMES)
def fitted(request):
    frame = FRAMES[request.param]()
    return frame, TableDARN({"n": "number"}, epochs=2, random_state=0, n_samples=10).fit(frame)


def test_samples_are_frames_of_the_same_types(fitted):
    frame, model = fitted
    new = model.sample(60, random_state=1)
    assert type(new) is type(frame)
    assert list(new.columns) == list(frame.columns)
    assert list(new.dtypes) == list(frame.dtypes)
    found = as_lists(new)
    assert found["row"] == list(range(1, 61))
    assert set(found["kind"]) <= {"cat", "dog", "hen"}
    assert all(v is None for v in found["id"])
    assert None in found["some"]
    assert None not in found["n"]
    assert as_lists(model.sample(60, random_state=1)) == found


def test_known_cells_are_kept_and_holes_filled(fitted):
    frame, model = fitted
    before, after = as_lists(frame), as_lists(model.complete(frame, random_state=0))
    assert list(model.complete(frame[:12]).dtypes) == list(frame.dtypes)
    for name in frame.columns:
        assert all(b == a for b, a in zip(before[name], after[name]) if b is not None)
        assert None not in after[name]


def test_scores_and_files(fitted, tmp_path, capsys):
    frame, model = fitted
    scores = model.score_samples(frame)
    assert scores.shape == (N,)
    assert np.isfinite(scores).all()
    assert model.score(frame) == pytest.approx(scores.mean())
    odd = frame[:3]
    with pytest.raises(DarnError, match="no column 'kind'"):
        model.score_samples(odd.drop(columns="kind") if isinstance(odd, pd.DataFrame) else odd.drop("kind"))
    path = tmp_path / "m.safetensors"
    model.save(path)
    again = TableDARN.load(path)
    np.testing.assert_allclose(again.score_samples(frame), scores, rtol=1e-5)
    assert again.schema_ == model.schema_
    assert type(again.sample(2)) is type(frame)
    assert main(["sample", str(path), "-n", "3", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == ",".join(frame.columns)


def test_a_model_of_the_shell_is_a_fitted_estimator(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("k,v\n" + "".join(f"{'xy'[i % 2]},{i % 50}\n" for i in range(100)))
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "a.csv"), "--column", "v=number", "--tiny", "--quiet", "--out", str(run)]) == 0
    new = TableDARN.load(run).sample(20)
    assert new["v"].dtype.kind == "i"
    assert set(new["k"]) <= {"x", "y"}


def test_a_score_goes_to_a_precision_and_depends_on_its_row_alone():
    frame = pd.DataFrame({"k": RNG.choice(["x", "y", "z"], 120), "v": RNG.normal(size=120).round(2)})
    model = TableDARN(epochs=1, random_state=0).fit(frame)
    how = Architecture(n_h=(24,), n_d=(8,))  # too many codes to sum over
    model.model_ = build(how, model.model_.n_x, groups=model.schema_.groups, key=jax.random.key(0))
    assert likelihood.method_for(model.model_) == "importance"
    scores = model.score_samples(frame)
    np.testing.assert_allclose(model.score_samples(frame[50:60]), scores[50:60], rtol=1e-4)
    with_more = TableDARN(n_samples=2000)
    for name in ("model_", "schema_", "form_"):
        setattr(with_more, name, getattr(model, name))
    assert scores.mean() == pytest.approx(with_more.score(frame), abs=0.05)


def test_refusals():
    with pytest.raises(DarnError, match="give a DataFrame"):
        TableDARN().fit(np.eye(3))
    with pytest.raises(DarnError, match="different names"):
        TableDARN().fit(pd.DataFrame([[1, 2]] * 20, columns=["a", "a"]))
    with pytest.raises(DarnError, match="validation_fraction"):
        TableDARN(validation_fraction=2).fit(pandas_frame())
    with pytest.raises(DarnError, match="search"):
        TableDARN(search=-1).fit(pandas_frame())
