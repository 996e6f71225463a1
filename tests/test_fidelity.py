"""Laws of the figures on synthetic rows: halves of one table are alike, shuffled columns are not, copies give away."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from test_cli import csv, facts, ok, refused

from darn.data import Layout, Table, read_table
from darn.errors import DarnError
from darn.fidelity import align, associations, evaluate, marginals, privacy, two_sample_auc, utility
from darn.fidelity._columns import grid

NAMES = ("kind", "weight", "town, ü", "seen", "gain")


def rows(n, seed=0):
    """Words, numbers that depend on them, holes, dates, and a number that is mostly zero."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["cat", "dog", "hen"], n, p=[0.5, 0.3, 0.2])
    weight = np.array([{"cat": 4, "dog": 9, "hen": 2}[k] for k in kind]) * rng.lognormal(0, 0.2, n)
    town = np.where(rng.random(n) < 0.1, "", np.where(kind == "hen", "Köln", rng.choice(["Ulm", "Bonn"], n)))
    days = [f"2024-0{1 + m}-{1 + d:02}" for m, d in zip(rng.integers(0, 9, n), rng.integers(0, 28, n))]
    gain = np.where(rng.random(n) < 0.8, 0, rng.integers(1, 10**6, n))
    return np.array([kind, [f"{w:.2f}" for w in weight], town, days, [str(g) for g in gain]], object).T


def shuffled(cells, seed=1):
    """The same columns, each in an order of its own."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(c) for c in cells.T], axis=1)


def write(path, cells, names=NAMES):
    lines = [[f'"{c}"' if "," in c else c for c in row] for row in [list(names), *cells.tolist()]]
    path.write_text("\n".join(",".join(row) for row in lines) + "\n")
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    home = tmp_path_factory.mktemp("fidelity")
    train, other, held = rows(600, 0), rows(600, 1), rows(600, 2)
    cells = {"train": train, "other": other, "held": held, "shuffled": shuffled(train), "few": train[:300]}
    return {name: read_table(write(home / f"{name}.csv", c)) for name, c in cells.items()}


def aligned(tables, real, synthetic, held=None, **options):
    parts = {"real": tables[real], "synthetic": tables[synthetic]} | ({"held_out": tables[held]} if held else {})
    return align(parts, **options)


def test_two_samples_of_one_source_are_alike(tables):
    columns = aligned(tables, "train", "other", "held")
    assert abs(two_sample_auc(columns) - 0.5) < 0.05
    found = marginals(columns)
    assert max(m.tv - m.chance for m in found) < 0.06
    assert all(m.unseen < 0.02 for m in found)
    assert max(abs(a.gap) for a in associations(columns)) < 0.2
    p = privacy(columns)
    assert abs(p.membership_auc - 0.5) < 0.05
    assert abs(p.closer - 0.5) < 0.05
    assert abs(p.disclosed - p.disclosed_held_out) < 0.05
    u = utility(columns, "kind")
    assert u.baseline + 0.2 < u.synthetic
    assert abs(u.synthetic - u.real) < 0.05


def test_shuffled_columns_are_told_apart_although_every_column_is_right(tables):
    columns = aligned(tables, "train", "shuffled", "held")
    assert two_sample_auc(columns) > 0.8
    assert max(m.tv for m in marginals(columns)) < 1e-12
    largest = associations(columns)[0]
    assert largest.real > 0.7
    assert largest.synthetic < 0.1
    assert largest.tv > 5 * largest.chance
    u = utility(columns, "kind")
    assert u.synthetic < u.real - 0.2


def test_copies_give_the_training_rows_away(tables):
    columns = aligned(tables, "train", "train", "held")
    p = privacy(columns)
    assert p.synthetic.median == 0
    assert p.synthetic.copies == 1
    assert p.other.median > 0
    assert p.membership_auc > 0.99
    assert p.closer > 0.99
    assert p.disclosed > 0.95
    assert p.disclosed_gap > 0.2
    assert two_sample_auc(columns) == 0.5  # a row and its copy are in one fold
    assert privacy(aligned(tables, "train", "train")).other.median > 0  # a row is not its own neighbour


def test_the_order_of_rows_and_columns_does_not_matter(tables, tmp_path):
    order, places = np.random.default_rng(3).permutation(600), [3, 0, 4, 2, 1]
    cells = tables["other"].cells[order][:, places]
    mixed = read_table(write(tmp_path / "mixed.csv", cells, [NAMES[i] for i in places]))
    options = {"held_out": tables["held"], "target": "kind", "rows": 200}
    found = [evaluate(tables["train"], t, **options) for t in (tables["other"], mixed)]
    assert found[0] == found[1]
    assert found[0].rows == {"real": 200, "synthetic": 200, "held_out": 200}
    assert evaluate(tables["train"], mixed, rows=200, seed=1).auc != found[0].auc


def test_frequent_numbers_have_cells_of_their_own(tables):
    columns = aligned(tables, "train", "other")
    gain = columns.columns[4]
    g = grid(gain, 8)
    assert g.labels[0] == "0"
    np.testing.assert_array_equal(g.parts["real"] == 0, gain.parts["real"] == 0)
    assert len(g.labels) <= 8
    for column in columns.columns:
        for most in (2, 3, 8, 1000):
            g = grid(column, most)
            assert len(g.labels) <= most + 1  # one more for missing values
            assert sum(g.share("real")) == pytest.approx(1)
            pooled = np.concatenate([g.parts["real"], g.parts["synthetic"]])
            if column.is_number:  # cells follow each other in the order of values
                value = column.pooled()
                inside = [value[pooled == k] for k in range(len(g.labels)) if (pooled == k).any()]
                order = np.argsort([v.min() for v in inside])
                assert (order == np.arange(len(order))).all()
    assert [c.is_number for c in columns.columns] == [False, True, False, True, True]  # dates are numbers


def test_numbers_are_compared_by_value_and_rounding_is_seen(tables, tmp_path):
    cells = tables["other"].cells.copy()
    cells[:, 4] = [f"{c}.0" for c in cells[:, 4]]
    same = evaluate(tables["train"], read_table(write(tmp_path / "a.csv", cells)), rows=300)
    assert abs(same.auc - 0.5) < 0.1
    cells[:, 1] = "5.00"
    cells[:, 2] = "Ulm"
    collapsed = evaluate(tables["train"], read_table(write(tmp_path / "b.csv", cells)), rows=300)
    tv = {m.column: m.tv for m in collapsed.marginals}
    assert tv["weight"] > 0.9
    assert tv["town, ü"] > 0.3
    assert collapsed.auc > 0.9


# ---------------------------------------------------------------- the command


def test_numbers_and_dates_are_those_however_they_are_written(tables):
    """2024-01-31, 1234.50 and 1000 as 31.01.2024, 1234,50 and 1,000: the columns hold the same numbers."""
    write = {
        1: lambda t: t.replace(".", ","),
        3: lambda t: ".".join(reversed(t.split("-"))),
        4: lambda t: f"${int(t):,}",
    }

    def rewritten(table):
        cells = table.cells.copy()
        for j, to in write.items():
            cells[:, j] = [to(t) for t in cells[:, j].tolist()]
        return dataclasses.replace(table, cells=cells)

    plain = {"real": tables["train"], "synthetic": tables["other"]}
    both = [align(t, rows=10**6) for t in (plain, {part: rewritten(table) for part, table in plain.items()})]
    for a, b in zip(*(c.columns for c in both)):
        assert (a.name, a.is_number, a.values) == (b.name, b.is_number, b.values)
        for part in plain:
            np.testing.assert_allclose(np.sort(a.parts[part]), np.sort(b.parts[part]))


def test_the_command(tables, tmp_path, capsys):
    real, synthetic, held = (write(tmp_path / f"{n}.csv", tables[n].cells) for n in ("few", "other", "held"))
    frame = pl.read_csv(synthetic, infer_schema_length=None)
    frame.write_parquet(tmp_path / "other.parquet")
    words = ("--held-out", held, "--target", "kind", "--rows", 200)
    out = ok(capsys, "evaluate-synthetic", real, synthetic, *words)
    for part in ("200 real (of 300)", "town, ü", "two-sample AUC", "accuracy of kind", "membership inference AUC"):
        assert part in out
    page = tmp_path / "page.html"
    found = facts(capsys, "evaluate-synthetic", real, tmp_path / "other.parquet", *words, "--out", page)
    assert f"{found['auc']:.3f}" in out  # the same table from another kind of file
    assert found["utility"]["target"] == "kind"
    assert len(found["marginals"]) == 5
    assert "town, ü" in page.read_text()
    alone = ok(capsys, "evaluate-synthetic", real, synthetic, "--rows", 50)
    assert "needs rows that the generator has not seen" in alone


ODD = {
    "one column": (["a"], [[str(i % 3)] for i in range(20)]),
    "constant": (["a", "b"], [["x", "1"]] * 20),
    "all missing": (["a", "b"], [["", "?"]] * 20),
    "all different": (["a", "b"], [[f"id{i}", str(i)] for i in range(20)]),
    "extreme": (["a", "b"], [[str((-1) ** i * 10.0 ** (300 - i)), "ß" * i] for i in range(20)]),
    "one number among words": (["a", "b"], [["12" if i else "twelve", "2024/01/02"] for i in range(20)]),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("other", [*ODD][:5])
def test_odd_tables_have_figures(name, other, tmp_path, capsys):
    a, b = (csv(tmp_path / f"{i}.csv", ODD[n][1], ODD[n][0]) for i, n in enumerate((name, other)))
    found = facts(capsys, "evaluate-synthetic", a, b, "--held-out", a)
    if name == other:
        assert all(m["tv"] == 0 for m in found["marginals"])
    assert 0 <= found["auc"] <= 1
    assert found["privacy"]["synthetic"]["median"] >= 0


@pytest.mark.parametrize(
    ("real", "synthetic", "words", "part"),
    [
        (["a,b", "1,2"] * 6, ["c,d", "1,2"] * 6, (), "no column in common"),
        (["a,b", "x,2", "y,3"], ["a,b", *["x,2"] * 20], (), "only 2"),
        (["a,b", *["x,2"] * 20], ["a,b", *["x,2"] * 20], ("--target", "z"), "'z'"),
        (["a", *["x"] * 20], ["a", *["x"] * 20], ("--target", "a"), "only column"),
        (["a,b", *[",2"] * 20], ["a,b", *["x,2"] * 20], ("--target", "a"), "missing"),
        (["a,b", *[f"w{i},2" for i in range(99)]], ["a,b", *["x,2"] * 20], ("--target", "a"), "classes"),
        (["a,b", *["x,2"] * 20], ["a,b", *["x,2"] * 20], ("--out", "page.pdf"), ".html"),
        (["a,b", *["x,2"] * 20], ["a,b", *["x,2"] * 20], ("--held-out", "nowhere.csv"), "nowhere"),
        (["a,b", *["x,2"] * 20], ["a,b", *["x,2"] * 20], ("--rows", "0"), "--rows"),
    ],
)
def test_refusals(real, synthetic, words, part, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in (("r", real), ("s", synthetic)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    assert part in refused(capsys, "evaluate-synthetic", "r.csv", "s.csv", *words)


def test_columns_of_one_name_are_refused():
    """A file's repeated names are numbered as it is read; a table from Python may have them."""
    one, two = (Table(names, np.array([["x", "2"]] * 20, object), Layout()) for names in (("a", "b"), ("a", "a")))
    with pytest.raises(DarnError, match="several columns called 'a'"):
        evaluate(one, two)


def test_columns_of_one_table_only_are_left_out_and_named(tables, tmp_path, capsys):
    a, b = write(tmp_path / "a.csv", tables["few"].cells), tmp_path / "b.csv"
    write(b, tables["other"].cells[:, :2], NAMES[:2])
    found = facts(capsys, "evaluate-synthetic", a, b, "--rows", 100)
    assert found["left_out"] == list(NAMES[2:])
    assert [m["column"] for m in found["marginals"]] == list(NAMES[:2])
    # likewise identifiers that synthetic rows leave empty, as `darn sample` does; but no other column left empty
    own, new = tables["few"].cells.copy(), tables["other"].cells.copy()
    own[:, 0], new[:, 0], new[:, 2] = [f"row {i}" for i in range(len(own))], "", ""
    write(a, own)
    write(b, new)
    found = facts(capsys, "evaluate-synthetic", a, b, "--rows", 100)
    assert found["left_out"] == [NAMES[0]]
    assert [m["column"] for m in found["marginals"]] == list(NAMES[1:])
    assert found["auc"] > 0.8
