"""Laws of the estimator for tables: frames in, frames of the same types out, and the shell's model files."""

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

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
ODD = np.random.default_rng(1)
WHEN = np.datetime64("2020-01-01") + RNG.integers(0, 700, N)
COLUMNS = {
    "kind": RNG.choice(["cat", "dog", "hen"], N).tolist(),
    "n": RNG.poisson(40, N).tolist(),
    "w": [None if i % 9 == 0 else float(v) for i, v in enumerate(RNG.normal(5, 1, N).round(2))],
    "ok": (RNG.random(N) < 0.5).tolist(),
    "when": WHEN.astype("datetime64[ms]").tolist(),
    "id": [f"x{i}" for i in range(N)],
    "row": list(range(1, N + 1)),
    "large": [2**60 + int(v) for v in ODD.integers(0, 9**5, N)],
    "cents": [None if i % 7 == 0 else Decimal(int(v)).scaleb(-2) for i, v in enumerate(ODD.integers(0, 9**5, N))],
    "zoned": [
        None if i % 8 == 0 else datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=int(v))
        for i, v in enumerate(ODD.integers(0, 9**8, N))
    ],
    "moment": [datetime(2020, 1, 1) + timedelta(milliseconds=int(v)) for v in ODD.integers(0, 9**9, N)],
    "clock": [time(int(v) // 60, int(v) % 60) for v in ODD.integers(0, 1440, N)],
    "span": [timedelta(seconds=int(v)) for v in ODD.integers(0, 9**5, N)],
    "flag": [None if i % 6 == 0 else bool(v) for i, v in enumerate(ODD.integers(0, 2, N))],
    "zero": [[-0.0, 0.0, 1.5][i % 3] for i in range(N)],
    "some": [None if i % 5 == 0 else int(v) for i, v in enumerate(RNG.integers(0, 90, N))],
}


def pandas_frame():
    kinds = {"kind": "category", "some": "Int64", "n": "int16", "w": "float32"}
    frame = pd.DataFrame(COLUMNS, index=[f"r{7 * i}" for i in range(N)]).astype(kinds)
    zoned = frame["zoned"].dt.tz_convert("Europe/Berlin")
    return frame.assign(zoned=zoned, flag2=frame["flag"].astype("boolean"))


def polars_frame():
    zoned = pl.col("zoned").dt.convert_time_zone("Europe/Berlin")
    kinds = pl.col("kind").cast(pl.Categorical), pl.col("kind").cast(pl.Enum(["cat", "dog", "hen"])).alias("kind2")
    return pl.DataFrame(COLUMNS).with_columns(
        pl.col("n").cast(pl.UInt8), zoned, *kinds, pl.col("cents").cast(pl.Decimal(9, 2))
    )


def arrow_frame():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(COLUMNS)
    kinds = {"zoned": pyarrow.timestamp("ms", "Europe/Berlin"), "n": pyarrow.uint8(), "w": pyarrow.float32()}
    for name, kind in kinds.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table.set_column(0, "kind", table["kind"].dictionary_encode())


FRAMES = {"pandas": pandas_frame, "polars": polars_frame, "arrow": arrow_frame}


def names_of(frame):
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def types_of(frame):
    return list(frame.schema.types if hasattr(frame, "column_names") else frame.dtypes)


def as_lists(frame):
    """The columns as lists, with None for missing values."""
    read = (
        "tolist" if isinstance(frame, pd.DataFrame) else "to_list" if isinstance(frame, pl.DataFrame) else "to_pylist"
    )
    lists = {c: getattr(frame[c], read)() for c in names_of(frame)}
    return {c: [None if pd.isna(v) else v for v in column] for c, column in lists.items()}


@pytest.fixture(scope="module", params=FRAMES)
def fitted(request):
    frame = FRAMES[request.param]()
    return frame, TableDARN({"n": "number"}, epochs=2, random_state=0, n_samples=10).fit(frame)


def test_samples_are_frames_of_the_same_types(fitted):
    frame, model = fitted
    new = model.sample(60, random_state=1)
    assert type(new) is type(frame)
    assert names_of(new) == names_of(frame)
    assert types_of(new) == types_of(frame)
    found = as_lists(new)
    assert found["row"] == list(range(1, 61))
    assert set(found["kind"]) <= {"cat", "dog", "hen"}
    assert all(v is None for v in found["id"])
    assert None in found["some"]
    assert None not in found["n"]
    assert as_lists(model.sample(60, random_state=1)) == found


def test_known_cells_are_kept_and_holes_filled(fitted):
    whole, model = fitted
    frame = whole[:40]  # with holes in all columns that have any
    filled = model.complete(frame, random_state=0)
    before, after = as_lists(frame), as_lists(filled)
    assert types_of(model.complete(frame[:12])) == types_of(filled) == types_of(frame)
    for name in names_of(frame):
        assert all(repr(b) == repr(a) for b, a in zip(before[name], after[name]) if b is not None)
        assert None not in after[name]
    if isinstance(frame, pd.DataFrame):
        assert list(filled.index) == list(frame.index)
        assert frame["some"].isna().any()  # the given frame is as it was


def test_columns_without_any_value_are_filled_in(fitted):
    frame, model = fitted
    empty = {"kind": [None] * 9, "large": [None] * 9, "zoned": [None] * 9, "flag": [None] * 9}
    rows = {name: column[:9] for name, column in as_lists(frame).items()} | empty
    found = model.complete(type(frame)(rows) if not hasattr(frame, "column_names") else frame.from_pydict(rows))
    usual = dict(zip(names_of(frame), types_of(frame)))
    for name in empty:
        assert None not in as_lists(found)[name]
        assert dict(zip(names_of(found), types_of(found)))[name] == usual[name]


def test_scores_and_files(fitted, tmp_path, capsys):
    frame, model = fitted
    scores = model.score_samples(frame)
    assert scores.shape == (N,)
    assert np.isfinite(scores).all()
    assert model.score(frame) == pytest.approx(scores.mean())
    odd = frame[:3]
    with pytest.raises(DarnError, match="no column 'kind'"):
        model.score_samples(
            odd.drop(columns="kind") if isinstance(odd, pd.DataFrame) else odd.select(names_of(odd)[1:])
        )
    path = tmp_path / "m.safetensors"
    model.save(path)
    again = TableDARN.load(path)
    np.testing.assert_allclose(again.score_samples(frame), scores, rtol=1e-5)
    assert again.schema_ == model.schema_
    assert type(again.sample(2)) is type(frame)
    assert main(["sample", str(path), "-n", "3", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == ",".join(names_of(frame))


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
    with pytest.raises(DarnError, match=r"1 are not texts: rename the columns, .* X\.columns\.astype\(str\)"):
        TableDARN().fit(pd.DataFrame([[1, 2]] * 20))
    wrong = {"columns": ["legs"], "unseen": "nearly", "epochs": 1.5, "search": -1, "n_samples": 0, "precision": 0}
    for name, value in {**wrong, "validation_fraction": 2}.items():
        with pytest.raises(DarnError, match=name):
            TableDARN(**{name: value}).fit(pandas_frame())
