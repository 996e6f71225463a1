"""A model of rows of 0 and 1 finds its columns in a table by their names, as a model of words and numbers does."""

import jax
import numpy as np
import pytest

from darn import DarnError, zoo
from darn.cli import main
from darn.data import pack_files
from darn.model_file import save_model
from darn.runs import holes
from darn.runs.run import load

NAMES = ["a", "b", "c", "d"]
X = (np.random.RandomState(0).rand(30, 4) < [0.1, 0.4, 0.6, 0.9]).astype(int)
ORDER = [2, 0, 3, 1]


def write(path, names, rows):
    lines = [",".join(map(str, row)) for row in ([names] if names else []) + list(rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def run(tmp_path):
    model = zoo.darn(4, n_h=3, n_d=4, key=jax.random.key(0))
    save_model(tmp_path / "m.safetensors", model, {"data": {"name": "t", "n": 4, "columns": NAMES}})
    return load(tmp_path / "m.safetensors")


FILES = {
    "moved": ([NAMES[i] for i in ORDER], X[:, ORDER]),
    "one more": (["id", *NAMES], np.c_[np.arange(30), X]),
    "no header": (None, X),
    "names of its own": (["w", "x", "y", "z"], X),
}


@pytest.mark.parametrize("split", [None, "test"])
@pytest.mark.parametrize("name", FILES)
def test_columns_are_found_by_their_names(run, tmp_path, name, split):
    own, other = write(tmp_path / "own.csv", NAMES, X), write(tmp_path / "other.csv", *FILES[name])
    expected = run.rows(own, split).unpack()
    np.testing.assert_array_equal(run.rows(other, split).unpack(), expected)
    np.testing.assert_array_equal(np.concatenate(list(run.open(other, split).bits())), expected)


def test_completed_rows_keep_the_order_of_their_table(run, tmp_path):
    names, rows = FILES["moved"]
    rows = rows.astype(str)
    rows[::3, 1] = rows[1::3, 2] = ""
    source = write(tmp_path / "holes.csv", ["id", *names], [[f"n{i}", *row] for i, row in enumerate(rows)])
    (held,) = holes.read(run, source, 1).read()
    np.testing.assert_array_equal(held.x[~held.mask], X[~held.mask])
    assert main(["complete", str(run.path), source, "--out", str(tmp_path / "filled.csv")]) in (0, None)
    head, *lines = [line.split(",") for line in (tmp_path / "filled.csv").read_text().split()]
    filled, known = np.array(lines), rows != ""
    assert head == ["id", *names]
    assert (filled[:, 0] == [f"n{i}" for i in range(30)]).all()
    assert (filled[:, 1:][known] == rows[known]).all()
    assert set(filled[:, 1:].ravel()) == {"0", "1"}


def test_a_column_that_is_not_there_is_named(run, tmp_path):
    source = write(tmp_path / "t.csv", ["a", "b", "c", "e"], X)
    with pytest.raises(DarnError, match="has no column 'd', which the model was trained with: add or rename it"):
        run.rows(source)


def test_a_packed_set_has_the_columns_of_the_model_or_is_refused(run, tmp_path):
    source = write(tmp_path / "t.csv", *FILES["moved"])
    pack_files([source], tmp_path / "as it is")
    pack_files([source], tmp_path / "as the model reads it", **run.how())
    with pytest.raises(DarnError, match="packed with other columns"):
        run.rows(str(tmp_path / "as it is"))
    np.testing.assert_array_equal(run.rows(str(tmp_path / "as the model reads it")).unpack(), X)
