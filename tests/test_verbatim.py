"""Laws of tables as text: every row in is a row out, every cell as written, through every command."""

import csv
import io
import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from PIL import Image

from darn import DarnError, data
from darn.cli import main
from darn.codec import _symbols as symbols
from darn.codec._ans import Ans
from darn.codec._bytes import Reader
from darn.codec._symbols import Reading, Writing
from darn.config import Architecture
from darn.data import Columns
from darn.data import _cells as cells
from darn.data._cells import digest
from darn.model_file import save_model
from darn.runs.fields import parse_field, show_field
from darn.zoo import build

AUTO = Columns("auto")


def spoken(capsys, *argv):
    """(exit status, JSON or text of standard output, standard error) of a command."""
    capsys.readouterr()
    status = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out.startswith("{") else out, err


def parsed(text, delimiter=","):
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


# ---------------------------------------------------------------- the delimiter

ROWS = "".join(f"{i % 2},x{i % 3}\n" for i in range(30))
SNIFFED = {
    "quoted semicolon in the first row": ('a,b\n"x;y",1\n' + "z,2\n" * 20, ",", 2),
    "semicolons in every text": ("note,n\n" + "one; two,3\n" * 20, ",", 2),
    "decimal commas": ("a;b;c\n" + "0,5;1,5;2\n" * 20, ";", 3),
    "quoted commas": ("a;b\n" + '"x, y";1\n' * 20, ";", 2),
    "tabs": ("a\tb\n" + "x, y\tz\n" * 20, "\t", 2),
    "bars": ("a|b\n" + "x y|z\n" * 20, "|", 2),
    "blanks": ("0 1 1\n" * 20, " ", 3),
    "ragged blanks": ("0  1   1\n" * 20, " ", 3),
    "one column of sentences": ("note\n" + "some words\nthree more words\nword\n" * 9, ",", 1),
    "a line break in quotes": ('a,b\n"x\n;y",1\n' + "z,2\n" * 20, ",", 2),
    "quotes after a blank": ('a, b\n"x, y", "z"\n' * 20, ",", 2),
}


@pytest.mark.parametrize("case", SNIFFED)
def test_the_delimiter_is_the_one_that_parses(case, tmp_path):
    text, delimiter, width = SNIFFED[case]
    (tmp_path / "a.csv").write_text(text)
    table = data.read_table(tmp_path / "a.csv")
    assert table.layout.delimiter == delimiter
    assert table.cells.shape[1] == width


def test_the_delimiter_is_said_and_may_be_given(tmp_path, capsys):
    path = tmp_path / "a.csv"
    # Commas and semicolons would both do.
    path.write_text("a,b;c,d\n" + "".join(f"{c},p;{d},q\n" for c, d in zip("ab" * 10, "xy" * 10)))
    assert data.read_table(path).cells.shape == (20, 2)
    assert "between semicolons" in data.load(path, columns=AUTO).source
    comma = data.load(path, columns=Columns("auto", delimiter=","))
    assert "between commas" in comma.source
    assert len(comma.schema.names) == 3
    assert len(data.load(path, columns=Columns("auto", delimiter="comma")).schema.names) == 3
    for wrong in ("", ",,", '"', "\n"):
        with pytest.raises(DarnError, match="one character"):
            data.read_table(path, delimiter=wrong)
    with pytest.raises(DarnError, match="is not a table"):
        data.load("digits", columns=Columns(delimiter=","))
    bits = tmp_path / "bits.csv"
    bits.write_text("0;1\n1;0\n" * 10)
    assert data.load_rows(bits, columns=Columns(delimiter=";")).n == 2
    assert spoken(capsys, "data", path, "--categorical", "auto", "--json")[1]["source"].endswith("between semicolons")


# ---------------------------------------------------------------- reading

READ = {
    "an empty row": ("a,b\nx,y\n,\nx,z\n", [["x", "y"], ["", ""], ["x", "z"]]),
    "an empty row at the end": ("a,b\nx,y\n,\n", [["x", "y"], ["", ""]]),
    "blanks": ("a,b\n x , y\n x, \n", [[" x ", " y"], [" x", " "]]),
    "quoted blanks": ('a,b\n"   ",x\n', [["   ", "x"]]),
    "a blank before a closing quote": ('a,b\n x,"y, "\n', [[" x", "y, "]]),
    "quotes in quotes": ('a,b\n"say ""hi""",x\n', [['say "hi"', "x"]]),
    "line breaks": ('a,b\r\n"x\r\ny",z\r\n', [["x\r\ny", "z"]]),
    "one column with nothing": ("a\nx\n\ny\n", [["x"], [""], ["y"]]),
    "a hash": ("a,b\n#1,x\n#2,y\n", [["#1", "x"], ["#2", "y"]]),
    "comments and blank lines": ("# made by hand\n\na,b\nx,y\n\n# end\n", [["x", "y"]]),
    "unicode": ("ä,ß\né\u2028x,\u3000\n", [["é\u2028x", "\u3000"]]),
    "numbers": ("a,b\n01234,1e0\n", [["01234", "1e0"]]),
}


@pytest.mark.parametrize("case", READ)
def test_rows_and_cells_are_as_written(case, tmp_path):
    text, cells = READ[case]
    (tmp_path / "a.csv").write_bytes(text.encode())
    table = data.read_table(tmp_path / "a.csv")
    assert table.cells.tolist() == cells
    assert table.layout.head + "".join(table.raw) + table.tail == text


def test_malformed_quotes_and_long_cells_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    for text, said in (
        ('a,b\n1,"x\n2,y\n', "never closed"),
        ('a,b\n1,"x"y\n', "line 2"),
        ("a,b\n" + "x" * 5_000_000 + ",1\n", "line 2 cannot be read .a cell has more than 4,194,304 characters"),
        ("a,b\nx\n", "line 2 has 1 value between commas"),
    ):
        path.write_text(text)
        with pytest.raises(DarnError, match=said):
            data.read_table(path)


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_by_name(code, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("a,b\n1,Größe\n".encode(code))
    for read in (data.read_table, data.load):
        with pytest.raises(DarnError, match="is UTF-16 text: save it as UTF-8"):
            read(path)


def test_the_name_of_a_parquet_file_is_no_pattern(tmp_path):
    import polars as pl

    for name, cell in (("a.parquet", "other"), ("[a].parquet", "own")):
        pl.DataFrame({"x": [cell]}).write_parquet(tmp_path / name)
    path = tmp_path / "[a].parquet"
    for tables in ([data.read_table(path)], data.open_table_parts(path, "it").read()):
        assert [t.cells.tolist() for t in tables] == [[["own"]]]


def test_nul_characters_are_refused_wherever_they_are(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + b"1,x\n" * 2000 + b"1,y\0z\n")
    for read in (data.read_table, data.load, lambda p: data.open_source(str(p), None, None)):
        with pytest.raises(DarnError, match="line 2002 has a NUL character"):
            read(path)


def test_long_cells_come_back(tmp_path):
    """Longer than the csv module's own limit."""
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{'x' * 200_000 if i == 7 else i % 3},{'uv'[i % 2]}\n" for i in range(30)))
    schema = data.load(path, columns=AUTO).schema
    assert round_trip(path, tmp_path, schema=schema)[1] == path.read_bytes()


def test_a_long_cell_costs_its_own_length(tmp_path):
    """As an array of fixed width, one cell of 100 kB would take 16 GB in a table of these rows."""
    (tmp_path / "a.csv").write_text("a,b\n" + "x," + "y" * 100_000 + "\n" + "x,y\n" * 20_000)
    assert data.read_table(tmp_path / "a.csv").cells.nbytes < 1e6


def test_texts_of_one_number_are_several_categories(tmp_path):
    texts = ["1.0", "01", "1e0", "01234", 'say "hi"']
    path = tmp_path / "a.csv"
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows([["a", "b"], *([t, "0.0" if i % 2 else "1.0"] for i, t in enumerate(texts * 5))])
    schema = data.load(path, columns=AUTO).schema
    assert set(schema.columns[0].values) == set(texts)
    assert schema.columns[1].order == "boolean"
    cells = data.read_table(path).cells
    assert schema.decode(schema.encode(["a", "b"], cells, "it").bits) == cells.tolist()
    # What was never seen as text may be known as a number; where two texts are, it is neither.
    assert schema.encode(["a", "b"], np.array([["1234", "1"]]), "it").bits.sum() == 2
    with pytest.raises(DarnError, match="'1.00'"):
        schema.encode(["a", "b"], np.array([["1.00", "1"]]), "it")


@pytest.mark.parametrize("drop", ["id,x", ["id", "x"], ("id,x",), "x, id", ['"id"', "x"]])
def test_several_columns_are_dropped(drop, tmp_path):
    (tmp_path / "a.csv").write_text("id,x,y\n" + "".join(f"{i},u{i},{i % 2}\n" for i in range(30)))
    assert data.load(tmp_path / "a.csv", columns=Columns("auto", drop=drop)).schema.names == ("y",)


def test_names_with_commas(tmp_path):
    (tmp_path / "a.csv").write_text('"a,b",c,d\n' + "".join(f"{i % 3},{i % 2},{i % 2}\n" for i in range(30)))
    for drop in ("a,b", ["a,b"], '"a,b",d', ["a,b", "d"]):
        names = data.load(tmp_path / "a.csv", columns=Columns("auto", drop=drop)).schema.names
        assert "a,b" not in names
        assert ("d" in names) == ("d" not in drop)


# ---------------------------------------------------------------- compression, without a model


def round_trip(path, folder, columns=AUTO, schema=None, delimiter=None):
    """The bytes that come back when a table's own bits do."""
    schema = schema or (data.load(path, columns=columns).schema if columns else None)
    given = data.open_source(str(path), None, None, None, schema, delimiter)
    notes = json.loads(json.dumps(given.notes))
    out, blocks = str(folder / "back.csv"), []
    cells = data.check_restore(out, notes, given.rows, given.n, schema)
    first = 0
    for item in given.bits() if cells is None else given.blocks():
        x = item if cells is None else item[0]
        blocks.append((first, item if cells is None else coded(given.cells, cells, first, *item)[0]))
        first += len(x)
    data.restore(out, [(notes, iter(blocks))], given.rows, given.n, None)
    return given, Path(out).read_bytes()


def coded(writer, reader, first, x, table):
    """(the cells of a block, written and read again; the bytes beside the stack of bits)"""
    ans, writing = Ans(), Writing()
    assert writer.check(len(x))
    writer.code(writing, x, first, table)
    beside, _ = writing.finish(ans)
    inside = Reader(beside)
    reading = Reading(Ans.from_bytes(ans.to_bytes()), inside.take(inside.varint()))
    found = reader.code(reading, x, first)
    reading.finish()
    assert reading._ans.empty
    return found, beside


WRITTEN = {
    "empty rows": "a,b\n" + "x,y\n,\nz,\n" * 10 + ",\n",
    "blanks at the edges": "a,b\n" + " x,y \nx , y\nx,z\n" * 10,
    "one number in four ways": "a,b\n" + "1,x\n1.0,y\n01,x\n1e0,y\n" * 10,
    "codes": "zip,b\n" + "01234,x\n1234,y\n" * 10,
    "quotes": 'a,b\n"say ""hi""",x\n"   ",y\n"",x\n' * 1 + '"say ""hi""",x\n"   ",y\n"x",z\n,z\n' * 10,
    "missing in many ways": "a,b\n" + "x,?\n,NA\nnan,x\nnull,y\n" * 10,
    "all quoted": '"a","b"\n' + '"x","1"\n"y","2"\n' * 10,
    "a column quoted": '"a","b"\n' + '"x",1\n"y, z",2\n' * 10,
    "windows": "\ufeffa;b\r\n" + "x;y\r\nz;\r\n" * 10,
    "no end of line": "a,b\n" + "x,y\n" * 20 + "z,w",
    "mixed line ends": "a,b\n" + "x,y\r\nz,w\n" * 10,
    "comments": "# made by hand\n\na,b\n" + "x,y\n\n# here\nz,w\n" * 10 + "\n\n",
    "line breaks": "a,b\n" + '"x\ny",z\n"x\r\n",w\n' * 10,
    "one column": "a\n" + "x\n\ny\n" * 10,
    "semicolons": "a;b\n" + '"x;y";z\nu,v;w\n' * 10,
    "tabs": "a\tb\n" + "x\ty z\n\t\n" * 10,
    "quotes after a blank": "a, b\n" + 'x, "y, z"\nu, "w"\n' * 10,
    "unicode": "ä,ß\n" + "é\u2028,\u3000x\n😀,y\n" * 10,
    "bits as decimals": "a,b\n" + "0.0,1.0\n1.0,0.0\n1,0\n" * 10,
    "numbers": "n,f\n" + "".join(f"{i * i % 997},{i / 7:.3f}\n" for i in range(200)),
    "numbers in many ways": "n,f\n" + "".join(f"{i},1.{i}\n0{i},+{i}e-2\n {i}.0, -.{i}\n1e0,-0\n" for i in range(40)),
    "numbers and blanks": "n, f\n" + "".join(f"{i * i % 997}, {i / 7:.2f} \n,\t \nNA, nan\n" for i in range(200)),
    "all digits of floats": "x\n" + "".join(f"{float(np.sin(i)) * 10.0 ** (i % 40 - 20)}\n" for i in range(200)),
    "huge and tiny numbers": "x,y\n" + "".join(f"{10 ** (i % 40)},{i}e-{i}\n1e{i},-{9**i}\n" for i in range(60)),
    "dates": "d,t\n" + "".join(f"20{i % 30 + 10}-0{i % 9 + 1}-15,{i % 24:02}:{i % 60:02}\n" for i in range(90)),
    "ids and texts": "id,note,n\n" + "".join(f'{i + 1},"line {i}\n\\n \\\\ {i * i}",{i % 3}\n' for i in range(90)),
    "counts with gaps": "id,n\n" + "".join(f"{i + (i > 50)},{i % 3}\n" for i in range(90)),
    "a column of one number": "a,b\n" + "7,x\n7,y\n" * 20,
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_table_comes_back_byte_for_byte(case, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(WRITTEN[case].encode())
    assert round_trip(path, tmp_path)[1] == path.read_bytes()


STRANGE = {
    "other categories": ("k,n\n" + "a,1\nb,2\n" * 30, 'k,n\nc,1\n"d, ""e""",3\n,\n?,nan\na,1.0\n'),
    "beyond the range": (
        "n,k\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(99)),
        "n,k\n-5,a\n1000,b\n1e9,a\n-1e200,a\n123456789012345678901,a\n50.5,a\nfifty,b\n1_0,a\n,a\n0x1,a\n\u0661,a\ninf,a\n",
    ),
    "dates that are none": (
        "d\n" + "".join(f"{np.datetime64('2014-01-01') + i}\n" for i in range(99)),
        "d\n2014-02-30\n1066-10-14\n9999-12-31\n0001-01-01\n14-1-1\nnever\n\n2014-01-01 \n",
    ),
    "other columns": ("k,n\n" + "a,1\nb,2\n" * 30, 'x,n,z,k\n1,2,"three\nfour",a\n,1,,b\n'),
    "no ids": ("id,k\n" + "".join(f"n {i},{'ab'[i % 2]}\n" for i in range(60)), "k\na\nb\n"),
    "no rows but one": ("k,n\n" + "a,1\nb,2\n" * 30, "k,n\na,1"),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_table_that_the_model_has_never_seen_comes_back(case, tmp_path):
    seen, other = (tmp_path / name for name in ("seen.csv", "other.csv"))
    for path, text in zip((seen, other), STRANGE[case]):
        path.write_bytes(text.encode())
    assert round_trip(other, tmp_path, schema=data.load(seen, columns=AUTO).schema)[1] == other.read_bytes()


def test_blocks_are_bounded_and_texts_beyond_it_refused(tmp_path, monkeypatch):
    """Blocks are cut by their cells and by their texts; one row that is too long by itself is refused."""
    path = tmp_path / "a.csv"
    path.write_text("note,k\n" + "".join(f"{i} {'x' * 500},{'ab'[i % 2]}\n" for i in range(300)))
    schema = data.load(path, columns=AUTO).schema
    monkeypatch.setattr(cells, "MOST_TEXT", 20_000)
    assert round_trip(path, tmp_path, schema=schema)[1] == path.read_bytes()
    given = data.open_source(str(path), None, None, None, schema)
    assert max(len(x) for x, _ in given.blocks()) < 40
    monkeypatch.setattr(cells, "MAX_BLOCK_CELLS", 8 * (given.n + 3))
    assert {len(x) for x, _ in given.blocks()} <= set(range(1, 9))
    assert not given.cells.check(9)
    monkeypatch.setattr(symbols, "MAX_TEXTS", 1000)
    with pytest.raises(DarnError, match="bytes of text"):
        round_trip(path, tmp_path, schema=schema)


REGULAR = ["empty rows", "one number in four ways", "all quoted", "a column quoted", "semicolons", "tabs"]


@pytest.mark.parametrize("case", REGULAR)
def test_a_regular_table_needs_no_lines_of_its_own(case, tmp_path):
    """What follows a rule is kept as the rule, however many rows there are."""
    path = tmp_path / "a.csv"
    for text in (WRITTEN[case], "a,b\n" + " ?,x \n yes,y\n" * 20):  # one text a value, though not the model's
        path.write_bytes(text.encode())
        given = round_trip(path, tmp_path)[0]
        found, _ = coded(given.cells, given.cells, 0, *next(given.blocks()))
        assert not len(found.odd[-1][0])


BITS = {
    "plain": "0,1,1\n1,0,1\n" * 9,
    "a header": "a,b,c\n" + "0,1,1\n1,0,1\n" * 9,
    "one name twice": "a,a,c\n" + "0,1,1\n1,0,1\n" * 9,
    "windows, no last line end": "0,1,1\r\n1,0,1\r\n" * 9 + "0,0,0",
    "decimals": "0.0,1.0,1\n1.0,0.0,1\n" * 9,
    "blanks": "0 1 1 \n1 0 1 \n" * 9,
    "wide blanks": "  0  1  1\n  1  0  1\n" * 9,
    "comma and blank": "0, 1, 1\n1, 0, 1\n" * 9,
    "quoted": '"0","1","1"\n' * 9 + "0,1,1\n",
    "comments": "# bits\n" + "0,1,1\n\n1,0,1\n" * 9,
}


@pytest.mark.parametrize("case", BITS)
def test_a_table_of_bits_comes_back_byte_for_byte(case, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(BITS[case].encode())
    given, back = round_trip(path, tmp_path, None)
    assert back == path.read_bytes()
    assert given.about.startswith("cells between ")


ALPHABET = ["x", "y", " ", '"', ",", ";", "\n", "\r\n", "é", "0", "1", ".", "#", "?", "-", "\u2028"]


@pytest.mark.parametrize("seed", range(60))
def test_random_tables_come_back_byte_for_byte(seed, tmp_path):
    rng = np.random.default_rng(seed)
    width, path = int(rng.integers(1, 5)), tmp_path / "a.csv"
    pools = [
        ["".join(rng.choice(ALPHABET, rng.integers(0, 6))) for _ in range(rng.integers(1, 9))] for _ in range(width)
    ]
    rows = [[str(rng.choice(pool)) for pool in pools] for _ in range(40)]
    rows[5] = rows[20] = [""] * width
    rows[0][0], rows[1][0] = "x", "y"  # at least one column varies
    with open(path, "w", newline="") as f:
        how = {"quoting": int(rng.integers(0, 2)), "lineterminator": str(rng.choice(["\n", "\r\n"]))}
        csv.writer(f, delimiter=",", **how).writerows([[f"c_{j}" for j in range(width)], *rows])
    assert [list(r) for r in data.read_table(path, delimiter=",").cells] == rows
    categories = Columns([f"c_{j}" for j in range(width)], delimiter=",")
    assert round_trip(path, tmp_path, categories, delimiter=",")[1] == path.read_bytes()


def test_parquet_comes_back_as_a_csv_of_its_cells(tmp_path):
    pl.DataFrame({"a": ["x", None, "?", "y, z"] * 5, "b": [1, 0, 1, 1] * 5}).write_parquet(tmp_path / "a.parquet")
    back = round_trip(tmp_path / "a.parquet", tmp_path)[1].decode()
    assert parsed(back) == [["a", "b"], *[["x", "1"], ["", "0"], ["?", "1"], ["y, z", "1"]] * 5]


FORGED = [
    {"layout": {"delimiter": 3}},
    {"layout": {"speed": "x"}},
    {"layout": 5},
    {"texts": {"9": {"0": "x"}}},
    {"texts": {"0": {"0": 5}}},
    {"lines": {"30": "x"}},
    {"lines": {"0": 5}},
    {"lines": [1]},
    {"tail": 1},
    {"columns": ["a", "c"]},
    {"columns": ["a", "b", "b"]},
    {"columns": ["a", "b"], "lines": {"0": "x"}},
    {"columns": ["a", "b"], "around": {"2": ["", ""]}},
    {"columns": ["a", "b"], "around": {"0": ["", "x"]}},
    {"columns": ["a", "b"], "around": {"0": [" " * 101, ""]}},
    {"columns": ["a", "b"], "texts": {"2": {}}},
    {"around": {"0": [" "]}},
    {"else": 1},
    [],
    5,
]


@pytest.mark.parametrize("notes", FORGED)
def test_forged_notes_of_a_table_are_refused(notes, tmp_path):
    schema = None
    if isinstance(notes, dict) and "columns" in notes:
        schema = data.infer(["a", "b"], np.array([["x", "y"], ["z", "w"]], object), None, "it")
        notes = {"schema": digest(schema)} | notes
    with pytest.raises(DarnError, match="not genuine"):
        data.check_restore(str(tmp_path / "a.csv"), {"table": notes}, 30, 2, schema)


# ---------------------------------------------------------------- every command

N, BLANK = 300, 24


def lines(rng):
    """Rows of words, with blanks at the edges, codes, quotes, one number in several ways, and empty rows."""
    out = []
    for i in range(N):
        kind = rng.choice(["cat", " cat", "dog ", '"say ""hi"""', "?"])
        code = rng.choice(["01234", "1", "1.0", "01", "1e0"])
        out.append(f"{kind},{code},n {i} ," + ("yes" if i % 2 else "no"))
    for i in rng.choice(N, BLANK, replace=False):
        out[i] = ",,,"
    return out


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A trained table of words and its model."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "t.csv").write_text("kind,code,id,flag\n" + "\n".join(lines(np.random.default_rng(0))) + "\n")
    argv = ["train", folder / "t.csv", "--categorical", "auto", "--drop", "id", "--tiny", "--quiet"]
    assert main([str(a) for a in [*argv, "--out", folder / "run"]]) == 0
    return folder


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A trained table with a column of numbers in bins, one that is dropped, and its model."""
    folder, rng = tmp_path_factory.mktemp("numbers"), np.random.default_rng(1)
    rows = [f"row {i},{rng.gamma(2.0):.2f},{rng.choice(['a', 'b'])}" for i in range(60)]
    (folder / "t.csv").write_text("id,size,kind\n" + "\n".join(rows) + "\n")
    argv = ["train", folder / "t.csv", "--categorical", "auto", "--drop", "id", "--tiny", "--quiet"]
    assert main([str(a) for a in [*argv, "--out", folder / "run"]]) == 0
    return folder


def test_every_row_in_is_a_row_out(words, tmp_path, capsys):
    run, table = words / "run", words / "t.csv"
    assert spoken(capsys, "eval", run, table, "--per-row", tmp_path / "s.npy", "--samples", 2, "--repeats", 1)[0] == 0
    assert np.load(tmp_path / "s.npy").shape == (N,)
    assert spoken(capsys, "encode", run, table, "--out", tmp_path / "h.npy")[0] == 0
    assert len(np.load(tmp_path / "h.npy")) == N
    few = tmp_path / "few.csv"
    few.write_text("".join(table.read_text().splitlines(keepends=True)[:41]))
    assert (
        spoken(capsys, "complete", run, few, "-n", 2, "--out", tmp_path / "f.csv", "--samples", 5, "--sweeps", 1)[0]
        == 0
    )
    before, after = (parsed(p.read_text()) for p in (few, tmp_path / "f.csv"))
    assert after[0] == before[0]
    assert len(after) == 1 + 2 * 40
    for old, new in zip(np.repeat(np.array(before[1:], object), 2, axis=0).tolist(), after[1:]):
        for name, a, b in zip(before[0], old, new):
            if name == "id" or a.strip() not in ("", "?"):
                assert a == b
            else:
                assert b.strip()


def test_compress_gives_the_file_back(words, tmp_path, capsys):
    """The model's own table less the dropped column, 300 of 300 rows and every byte."""
    rows = [",".join(line.split(",")[:2] + line.split(",")[3:]) for line in (words / "t.csv").read_text().splitlines()]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(rows) + "\n")
    status, facts, _ = spoken(capsys, "compress", words / "run", table, tmp_path / "t.drn", "--json", "--quiet")
    assert (status, facts["rows"], facts["read"]) == (0, N, "cells between commas")
    assert spoken(capsys, "decompress", words / "run", tmp_path / "t.drn", tmp_path / "b.csv", "--quiet")[0] == 0
    assert (tmp_path / "b.csv").read_bytes() == table.read_bytes()
    assert ".csv" in spoken(capsys, "decompress", words / "run", tmp_path / "t.drn", tmp_path / "b.npy")[2]


def test_complete_keeps_what_was_given(numbers, tmp_path, capsys):
    """Numbers are neither redrawn inside their bins nor clamped; the dropped column is carried through."""
    holes = tmp_path / "h.csv"
    holes.write_text('kind;extra;size;id\na;1,0;1e1; 007\n;x;100;\nb;"y;z"; ;n\n')
    out = tmp_path / "f.csv"
    argv = ["complete", numbers / "run", holes, "--out", out, "--samples", 5, "--sweeps", 1]
    status, said, _ = spoken(capsys, *argv, "-n", 3)
    assert status == 0
    assert "between semicolons" in said
    rows = parsed(out.read_text(), ";")
    assert rows[0] == ["kind", "extra", "size", "id"]
    assert rows[1:4] == [["a", "1,0", "1e1", " 007"]] * 3
    assert all(r[0] in ("a", "b") and r[1:] == ["x", "100", ""] for r in rows[4:7])
    assert all(r[:2] == ["b", "y;z"] and float(r[2]) >= 0 and r[3] == "n" for r in rows[7:10])
    assert spoken(capsys, *argv, "--delimiter", ",")[0] == 2  # read so, there is no column of that name


def test_hidden_cells_are_all_that_changes(numbers, tmp_path, capsys):
    """Of whole rows too, and of the model's own test rows, which are written as the file has them."""
    out, common = tmp_path / "f.csv", ["--hide", "kind", "--samples", 5, "--sweeps", 1]
    before = parsed((numbers / "t.csv").read_text())
    assert spoken(capsys, "complete", numbers / "run", numbers / "t.csv", *common, "--out", out)[0] == 0
    after = parsed(out.read_text())
    assert [r[:2] for r in after] == [r[:2] for r in before]
    assert spoken(capsys, "complete", numbers / "run", *common, "--out", out)[0] == 0
    own = {r[0]: r[1] for r in before[1:]}
    after = parsed(out.read_text())[1:]
    assert len(after) == 6
    assert all(own[r[0]] == r[1] for r in after)
    test = data.load_rows(numbers / "t.csv", split="test", columns=Columns("auto", drop="id"))
    rest = data.read_table(numbers / "t.csv", split="test")
    schema = data.load(numbers / "t.csv", columns=Columns("auto", drop="id")).schema
    np.testing.assert_array_equal(schema.encode(rest.names, rest.cells, "it").bits, test.unpack())


# ---------------------------------------------------------------- outputs


OUTPUTS = {
    "compress": lambda run, x, out: ["compress", run, x, out],
    "complete": lambda run, x, out: ["complete", run, x, "--out", out],
    "encode": lambda run, x, out: ["encode", run, x, "--out", out],
    "reconstruct": lambda run, x, out: ["encode", run, x, "--out", x.parent / "h.npy", "--reconstruct", out],
    "decompress": lambda run, x, out: ["decompress", run, x, out],
    "eval": lambda run, x, out: ["eval", run, x, "--per-row", out],
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_no_output_over_its_input_a_folder_or_a_pipe(command, words, tmp_path, capsys):
    x = tmp_path / "x.csv"
    x.write_text("".join((words / "t.csv").read_text().splitlines(keepends=True)[:20]))
    before = x.read_bytes()
    (tmp_path / "link.csv").symlink_to(x)
    (tmp_path / "hard.csv").hardlink_to(x)
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "null.csv").symlink_to("/dev/null")
    names = {
        "x.csv": "itself an input",
        "link.csv": "itself an input",
        "hard.csv": "itself an input",
        "folder.csv": "is a folder",
        "pipe.csv": "a device or a pipe",
        "null.csv": "a device or a pipe",
    }
    held = sorted(p.name for p in tmp_path.iterdir())
    for name, why in names.items():
        status, _, err = spoken(capsys, *OUTPUTS[command](words / "run", x, tmp_path / name))
        assert status == 2
        assert why in err
        assert err.count("\n") == 1
    assert x.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == held
    assert (tmp_path / "pipe.csv").is_fifo()


def test_no_output_over_the_model_or_another_output(words, tmp_path, capsys):
    model = words / "run" / "model.safetensors"
    before = model.read_bytes()
    for run in (model, model.parent):
        assert "itself an input" in spoken(capsys, "compress", run, words / "t.csv", model)[2]
    recipe = model.parent / "recipe.json"
    assert "itself an input" in spoken(capsys, "compress", model.parent, words / "t.csv", recipe)[2]
    a = tmp_path / "a.npy"
    assert "two outputs" in spoken(capsys, "sample", model, "--out", a, "--log-joint", a)[2]
    assert "two outputs" in spoken(capsys, "encode", model, words / "t.csv", "--out", a, "--reconstruct", a)[2]
    assert model.read_bytes() == before
    assert not a.exists()


def test_no_output_over_an_image_of_an_input_folder(tmp_path, capsys):
    (tmp_path / "scans").mkdir()
    for name in "ab":
        Image.fromarray(np.eye(4, dtype=bool)).save(tmp_path / "scans" / f"{name}.png")
    model = tmp_path / "m.safetensors"
    save_model(model, build(Architecture(), 16, key=jax.random.key(0)), {"data": {"shape": [4, 4]}})
    argv = ["compress", model, tmp_path / "scans"]
    assert "itself an input" in spoken(capsys, *argv, tmp_path / "scans" / "a.png")[2]
    assert spoken(capsys, *argv, tmp_path / "scans.drn")[0] == 0
    (tmp_path / "out" / "a.png").mkdir(parents=True)
    assert "a.png is a folder" in spoken(capsys, "decompress", model, tmp_path / "scans.drn", tmp_path / "out")[2]
    assert not (tmp_path / "out" / "b.png").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"scans", "m.safetensors", "scans.drn", "out"}


def test_images_of_any_name_come_back(tmp_path, capsys):
    """A name is bytes to the system, and need not be text."""
    (tmp_path / "scans").mkdir()
    names = [b"a b.png", "\N{SNOWMAN}.png".encode(), b"\xff\xfe.png", b"a\nb.png", b"\x1b.png"]
    for i, name in enumerate(names):
        Image.fromarray(np.arange(16).reshape(4, 4) % (i + 2) == 0).save(
            os.path.join(os.fsencode(tmp_path), b"scans", name)
        )
    model = tmp_path / "m.safetensors"
    save_model(model, build(Architecture(), 16, key=jax.random.key(0)), {"data": {"shape": [4, 4]}})
    assert spoken(capsys, "compress", model, tmp_path / "scans", tmp_path / "s.drn")[0] == 0
    assert spoken(capsys, "decompress", model, tmp_path / "s.drn", tmp_path / "out")[0] == 0
    assert sorted(os.listdir(os.fsencode(tmp_path / "out"))) == sorted(names)


ESCAPES = "\x1b]0;owned\x07\x1b[2Jname\x9b\u202e\r"


def test_terminals_do_not_obey_names(tmp_path, capsys):
    """Names of columns, texts of cells and names of files come from strangers: their control characters are shown."""
    path = tmp_path / "a.csv"
    rows = "".join(f'"{ESCAPES}{i % 3}",{i % 2}\n' for i in range(30))
    path.write_text(f'"{ESCAPES}",b\n{rows}', newline="")
    odd = tmp_path / f"{ESCAPES}.csv"
    said = [spoken(capsys, "data", path, "--categorical", "auto"), spoken(capsys, "data", odd)]
    odd.write_bytes(path.read_bytes())
    said += [spoken(capsys, "data", odd, "--categorical", "auto"), spoken(capsys, "data", odd)]
    said += [spoken(capsys, "data", path, "--categorical", "auto", "--drop", "c")]
    assert [status for status, *_ in said] == [0, 2, 0, 2, 2]
    for _, out, err in said:
        assert all(c.isprintable() or c == "\n" for c in out + err), (out, err)
        assert "name" in out + err


@pytest.mark.parametrize("terminal", [True, False])
def test_rows_on_a_terminal_show_control_characters(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with data.open_words(None, [f"a{ESCAPES}", "b"]) as write:
        write([["1\n2", f"{ESCAPES},"]])
    out = capsys.readouterr().out
    if terminal:
        assert all(c.isprintable() or c == "\n" for c in out)
        assert len(out.splitlines()) == 2
    else:  # a program reads what was written
        assert out.count("\x1b[2J") == 2
        assert "1\n2" in out


ENDS = ["a\rb", "\r", "c\nd", "e\r\n", 'f"\r', ""]


def test_line_breaks_of_any_kind_are_quoted_in_what_is_written(tmp_path):
    """Python's csv module leaves a lone carriage return as it is."""
    with data.open_words(str(tmp_path / "w.csv"), ["a\r", "b"]) as write:
        write([[cell, "1"] for cell in ENDS])
    found = data.read_table(tmp_path / "w.csv")
    assert found.cells[:, 0].tolist() == ENDS
    assert found.cells[:, 1].tolist() == ["1"] * len(ENDS)
    for texts in (tuple(ENDS), ("a\rb=words", "c"), ("\n",)):
        assert parse_field("column", show_field(texts)) == texts
    assert data.listed('a\rb,"c\nd"', ["c\nd"]) == ["a", "b", "c\nd"]


def test_pipes_and_devices_are_not_read(words, tmp_path, capsys):
    os.mkfifo(tmp_path / "p.csv")
    for command in ("compress", "complete", "encode", "eval"):
        argv = OUTPUTS[command](words / "run", tmp_path / "p.csv", tmp_path / "out.csv")
        status, _, err = spoken(capsys, *argv)
        assert status == 2
        assert "a device or a pipe" in err


def test_a_header_with_commas_is_quoted(words, tmp_path, capsys):
    path = tmp_path / "r.csv"
    argv = ["encode", words / "run", words / "t.csv", "--out", tmp_path / "h.npy", "--reconstruct", path]
    assert spoken(capsys, *argv)[0] == 0
    rows = parsed(path.read_text())
    assert {len(r) for r in rows} == {len(rows[0])}
    assert 'kind=say "hi"' in rows[0]
