"""Laws of tables: words to one-hot groups and back, and the command line over them."""

import csv
import json
import re

import numpy as np
import polars as pl
import pytest

from darn import DarnError, data
from darn.cli import main
from darn.data import Columns, Schema
from darn.inference import likelihood
from darn.runs.run import load

RNG = np.random.RandomState(0)
N = 120
COLOUR = RNG.choice(["red", "green", "blue, dark", ""], N, p=[0.4, 0.3, 0.2, 0.1])
ROWS = [
    {
        "colour": c,
        "legs": str(RNG.choice([2, 4, 8])) if c else "?",
        "weight": f"{RNG.gamma(2.0):.2f}",
        "wings": str(int(c == "red")),
        "same": "x",
        "kind": "a" if c == "red" else "b",
        "count": str(RNG.randint(1, 4)),
        "id": f"n{i}",
    }
    for i, c in enumerate(COLOUR)
]
NAMES = list(ROWS[0])
MODELLED = ["colour", "legs", "weight", "wings", "same"]
AUTO = Columns("auto", drop="id", weights="count")


def write(path, rows, names=NAMES, delimiter=","):
    with open(path, "w", newline="") as f:
        w = csv.DictWriter(f, names, extrasaction="ignore", delimiter=delimiter)
        w.writeheader()
        w.writerows(rows)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write(tmp_path_factory.mktemp("t") / "pets.csv", ROWS)


def test_the_command_says_what_each_column_was_taken_for(table, capsys):
    words = ["data", str(table), "--categorical", "auto", "--drop", "id", "--weights", "count", "--labels", "kind"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    told = facts["table"]
    assert facts["columns"] == len(MODELLED) < facts["units"]
    assert list(told) == MODELLED
    assert told["colour"] == "category of 3: 'blue, dark', 'green', 'red'"
    assert told["same"].startswith("always 'x'")
    assert re.fullmatch(r"real number from 0\.\S+ to \S+( in steps of 0\.01)?, in \d+ cells.*", told["weight"])
    assert told["wings"] == "boolean of 2: '0', '1'"
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "category of 3: 'blue, dark', 'green', 'red', or missing; 4 units (3 different texts)" in said
    more = ["--column", "id=category", "--column", "legs=number", "--column", "weight=id"]
    assert main([w for w in words if w not in ("--drop", "id")] + more) == 0
    said = capsys.readouterr().out
    assert "category of 120" in said
    assert "7 units (as asked)" in said
    assert "legs    whole number from 2 to 8 in steps of 2" in said
    assert "weight  id, set aside: samples are left empty; 0 units (as asked)" in said
    assert main(["data", "digits", "--drop", "id"]) == 2
    assert "is not a table" in capsys.readouterr().err


def test_named_columns_may_be_categories_of_nearly_every_row(table):
    rest = "colour,legs,weight,same,kind,wings"
    auto, named = (data.load(table, columns=Columns(c, drop=rest)).schema for c in ("auto", "id,count"))
    assert [c.size for c in auto.columns] == [3, 0]
    assert [c.size for c in named.columns] == [3, 7]  # 120 values are numbered


def test_densities_are_estimated_from_the_training_rows(table):
    """So that the score of held-out rows does not know them."""
    splits = data.load(table, columns=AUTO, labels="kind")
    weight = splits.schema.columns[2]
    assert sum(weight.counts) == len(splits.train)
    assert all(np.isfinite(rows.log_density).all() for rows in (splits.train, splits.valid, splits.test))
    assert data.load(table, columns=Columns("auto", drop="id,weight")).train.log_density is None


def test_round_trip(table):
    splits = data.load(table, columns=AUTO, labels="kind")
    schema = splits.schema
    assert schema.names == tuple(MODELLED)
    assert [c.kind for c in schema.columns] == ["category", "category", "number", "category", "category"]
    weight = schema.columns[2]
    assert schema.sizes == (4, 4, weight.size, 1, 0)
    assert schema.groups == (4, 4, (weight.n - 1, False), (1, False))
    assert schema.numbers == (((8, weight.size, -1), weight.scale),)
    assert splits.columns[:4] == ("colour=blue, dark", "colour=green", "colour=red", "colour=(missing)")
    cells = np.array([[r[n] for n in MODELLED] for r in ROWS])
    bits = schema.encode(MODELLED, cells, "it").bits
    back = schema.decode(bits)
    for row, old in zip(back, cells):
        words = old.tolist()
        assert row[:2] + row[3:] == words[:2] + words[3:]
    np.testing.assert_array_equal(schema.encode(MODELLED, np.array(back), "it").bits, bits)
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    # Columns are found by name, in any order.
    order = [3, 1, 4, 0, 2]
    np.testing.assert_array_equal(schema.encode([MODELLED[i] for i in order], cells[:, order], "it").bits, bits)


def test_weights_and_labels_go_with_their_rows(table):
    splits = data.load(table, columns=AUTO, labels="kind")
    total = sum(rows.weights.sum() for rows in (splits.train, splits.valid, splits.test))
    assert total == sum(int(r["count"]) for r in ROWS)
    wings = splits.columns.index("wings")
    np.testing.assert_array_equal(splits.train.unpack()[:, wings] == 1, splits.train.labels == 0)


def test_types_of_parquet(tmp_path):
    """Texts of any type are texts, and whole numbers may be of any size."""
    texts = ["x", "y", "z"] * 10
    for kind in (pl.String, pl.Categorical, pl.Enum(["x", "y", "z"]), pl.Binary):
        pl.DataFrame({"t": pl.Series(texts).cast(kind), "n": [1, 0, 1] * 10}).write_parquet(tmp_path / "a.parquet")
        cells = data.read_table(tmp_path / "a.parquet").cells.tolist()
        assert cells == [[t, n] for t, n in zip(texts, ["1", "0", "1"] * 10)]
    large = pl.DataFrame({"a": pl.Series([2**64 - 1, 0] * 10, dtype=pl.UInt64), "b": [1, 0] * 10})
    large.write_parquet(tmp_path / "large.parquet")
    with pytest.raises(DarnError, match="1.84467e"):
        list(data.open_rows(tmp_path / "large.parquet").read())


def test_parquet_is_the_same_table(table, tmp_path):
    words = {n: [r[n] for r in ROWS] for n in NAMES}
    frame = pl.DataFrame(words).with_columns(
        pl.col("weight").cast(pl.Float64),
        pl.col("wings") == "1",
        pl.when(pl.col("colour") == "").then(None).otherwise(pl.col("colour")).alias("colour"),
    )
    frame.write_parquet(tmp_path / "pets.parquet")
    a, b = (data.load(p, columns=AUTO, labels="kind") for p in (table, tmp_path / "pets.parquet"))
    np.testing.assert_array_equal(a.train.values, b.train.values)
    assert a.schema.units == b.schema.units


def refused(path, said, **options):
    with pytest.raises(DarnError, match=said):
        data.load(path, **options)


def test_a_name_that_came_before_says_which_column_it_is(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("a,,a,a (column 3),,a\n" + "".join(f"{i % 3},,{i % 2},y,{i % 4},{i % 5}\n" for i in range(20)))
    names = ("a", "", "a (column 3)", "a (column 3) (column 4)", "(column 5)", "a (column 6)")
    assert data.read_table(str(path)).names == names
    schema = data.load(path, columns=Columns("auto", column=["a (column 6)=category"])).schema
    assert schema.names == names
    assert len(data.load_rows(path, columns=Columns(schema=schema))) == 20


def test_numbers_are_numbers_in_parquet(tmp_path):
    cells = [[str(5 + i), str(i % 3), f"{i % 4 / 2:.1f}", f"0{i % 3}", f"{i * 1.1e-9:.3e}", "x"] for i in range(60)]
    tags = [data.usual_tag(c) for c in data.infer("nabcde", np.array(cells, object), None, "it").columns]
    assert tags == ["int", "int", "float", "text", "float", "text"]


HEADS = {
    "country,2019,2020,2021": True,
    ",1990,2000,2010": True,
    "country,code,2021,2020,2019": True,
    "1990,2000,2010": False,
    "Oslo,2019,2020": False,  # two years may be those of a row
    "Oslo,2019,2021,2022": False,
    "Oslo,2019,2020,21": False,
    "Oslo,2100,2101,2102": False,
}


@pytest.mark.parametrize("head", HEADS)
def test_years_are_names_of_columns(head, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(head + "\n" + ",".join(["3"] * (head.count(",") + 1)) + "\n")
    assert data.read_table(str(path)).names[1:] == tuple(head.split(",")[1:]) or not HEADS[head]
    assert len(data.read_table(str(path))) == 2 - HEADS[head]


def test_refusals(table, tmp_path):
    refused(table, "categorical = 'auto'")
    refused(table, "cannot be 'colour'", columns=Columns(column=["id=colour"]))
    refused(table, "give NAME=KIND", columns=Columns(column=["id"]))
    refused(table, r"no column named 'colr' .did you mean 'colour'\?\), 'lg'", columns=Columns(["colr", "lg"]))
    refused(table, "no column named 'one', 'two'", columns=Columns("auto", drop=["one", "id", "two"]))
    refused(table, "'green' in row 1, column 'colour'", columns=Columns("auto", weights="colour"))
    refused(
        table,
        "column 'weight' has '0.12' in row 107, not 0 or 1: add it to the categorical columns",
        columns=Columns("colour,legs,kind,same"),
    )
    refused("digits", "is not a table", columns=Columns("auto"))
    np.save(tmp_path / "a.npy", np.eye(12))
    refused(tmp_path / "a.npy", "is not a table", columns=Columns("auto"))
    two = tmp_path / "two.csv"
    two.write_text("Report,,\na,b,c\n" + "x,y,\n" * 12)
    refused(two, "columns 2, 3 have values but no name", columns=Columns("auto"))
    two.write_text("a,b\n" + "x,y\n" * 12 + "x\n")
    refused(two, "line 14 has 1 value ", columns=Columns("auto"))
    schema = data.load(table, columns=AUTO, labels="kind").schema
    new = write(tmp_path / "new.csv", [ROWS[0] | {"colour": "pink", "same": "y", "legs": ""}])
    with pytest.raises(DarnError, match=r"training data: 'pink' in column 'colour'; 'y' in column 'same'"):
        data.load_rows(new, columns=Columns(schema=schema))
    assert len(data.load_rows(new, columns=Columns(schema=schema, unseen="nearest"))) == 1
    refused(new, "unseen must be one of", columns=Columns("auto", unseen="never"))


def test_from_table_to_synthetic_rows(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "new.csv"
    table = write(tmp_path / "table.csv", ROWS, delimiter=";")
    how = ["--categorical", "auto", "--drop", "id", "--weights", "count", "--labels", "kind"]
    assert main(["train", str(table), *how, "--tiny", "--quiet", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["sample", str(run), "-n", "50", "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert 0 <= facts["copies"]["sampled"] <= 1
    assert main(["sample", str(run), "-n", "50", "--csv"]) == 0
    said = capsys.readouterr()
    assert said.out == out.read_text()
    assert "equal one of" in said.err
    assert main(["sample", str(run), "--csv", "--json"]) == 2
    assert "--out FILE.csv" in capsys.readouterr().err
    with open(out, newline="") as f:
        rows = list(csv.DictReader(f, delimiter=";"))
    assert len(rows) == 50
    assert list(rows[0]) == [*MODELLED, "kind"]
    for name in ("colour", "legs", "wings", "same", "kind"):
        assert {r[name] for r in rows} <= {r[name] for r in ROWS}  # missing values as in the table, too
    assert all(0 <= float(r["weight"]) <= 2 * max(float(s["weight"]) for s in ROWS) for r in rows)
    assert all(len(r["weight"].partition(".")[2]) == 2 for r in rows)
    tabs = tmp_path / "new.tsv"
    assert main(["sample", str(run), "-n", "50", "--out", str(tabs)]) == 0
    assert tabs.read_text() == out.read_text().replace(";", "\t")
    typed = tmp_path / "new.parquet"
    assert main(["sample", str(run), "-n", "50", "--out", str(typed)]) == 0
    frame = pl.read_parquet(typed)
    assert {k: str(t) for k, t in frame.schema.items() if t != pl.String} == {
        "legs": "Int64",
        "weight": "Float64",
        "wings": "Int64",
    }
    assert [[str(v) if v is not None else "" for v in row] for row in frame.select(pl.exclude("weight")).rows()] == [
        [text.strip("?" if name == "legs" else "") for name, text in row.items() if name != "weight"] for row in rows
    ]
    assert frame["weight"].to_list() == [float(r["weight"]) for r in rows]
    # New rows are scored under the same schema: columns in any order, weights and dropped columns absent.
    some = write(tmp_path / "some.csv", ROWS[:7], ["kind", *reversed(MODELLED)])
    scores = tmp_path / "s.npy"
    assert main(["eval", str(run), str(some), "--per-row", str(scores)]) == 0
    assert np.load(scores).shape == (7,)
    assert np.all(np.load(scores) > -100)  # valid rows: none of them impossible
    assert main(["eval", str(run), str(some), "--every", "3", "--per-row", str(tmp_path / "s.csv")]) == 0
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[0] == "row,log_p"
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "4", "7"]
    np.testing.assert_allclose([float(line.split(",")[1]) for line in lines[1:]], np.load(scores)[::3], rtol=1e-5)
    capsys.readouterr()
    assert main(["eval", str(run)]) == 0
    assert "rows of" in capsys.readouterr().out
    # log p is that of the values: of the bits, and of the numbers within their cells.
    assert main(["eval", str(run), str(some), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = data.load_rows(some, labels="kind", columns=Columns(schema=load(run).schema), classes=("a", "b"))
    assert facts["log_density"] == pytest.approx(found.log_density.mean())
    bits = likelihood.evaluate(load(run).model, found.unpack(), context=found.context)
    assert -facts["nll"] == pytest.approx(bits.log_p.mean() + found.log_density.mean(), abs=1e-3)
    # A category that no training row had is named, with all others, or counts as another.
    odd = write(tmp_path / "odd.csv", [ROWS[0] | {"colour": "greeen"}], ["kind", *MODELLED])
    assert main(["eval", str(run), str(odd)]) == 2
    assert "'greeen' in column 'colour'" in capsys.readouterr().err
    assert all(main(["eval", str(run), str(odd), "--unseen", how]) == 0 for how in ("missing", "nearest"))
