"""Laws of limits: what a file says is checked before anything is allocated, and refused in one sentence."""

import io
import os
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from helpers import make_model

from darn import codec, data
from darn.cli import main
from darn.codec import _blocks, _container
from darn.codec._bytes import MalformedError, Reader, varint
from darn.codec._container import End, Head, block_bytes
from darn.data import _limits, _notes, _parquet, _sniff, _text_table, unit_mask
from darn.data._pack import MAX_MANIFEST
from darn.data._tiles import cut
from darn.errors import LONGEST, DarnError, FormatError
from darn.jsonable import MAX_DEPTH, FieldError, decode, parse
from darn.model_file import MAX_INFO, load_model
from darn.model_file import read_info as model_file_info
from darn.paper import rbm
from darn.runs.info import MAX_JSON, read_info
from darn.runs.recipe import Recipe
from darn.training._checkpoint import MAX_HOST, load_checkpoint


def peak_of(f) -> int:
    tracemalloc.start()
    with pytest.raises(DarnError) as e:
        f()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(e.value)
    return peak


# ---------------------------------------------------------------- compressed files


def sealed(body: bytes) -> bytes:
    start = _container.MAGIC + bytes([_container.VERSION]) + varint(len(body)) + body
    return start + zlib.crc32(start).to_bytes(4, "little")


def file_of(rows: int, block: bytes, n_x: int = 4) -> bytes:
    row = codec.RowCodec(make_model("factorial")[0], batch=8, workers=1)
    head = Head(row.fingerprint, n_x, rows).to_bytes()
    return head + block_bytes(rows, block) + End((0,), (), 0).to_bytes()


HEADS = {
    "no columns": bytes(8) + varint(0) + varint(1) + varint(0) + varint(0),
    "many columns": bytes(8) + varint(1 << 40) + varint(1) + varint(0) + varint(0),
    "long notes": bytes(8) + varint(4) + varint(1) + varint(1 << 40) + varint(0),
    "notes that are a list": bytes(8) + varint(4) + varint(1) + varint(10) + zlib.compress(b"[]") + varint(0),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_beyond_the_limits(name):
    assert peak_of(lambda: codec.read_head(io.BytesIO(sealed(HEADS[name])))) < 1 << 20


def test_notes_take_no_more_memory_than_the_limit(monkeypatch):
    monkeypatch.setattr(_container, "MAX_NOTES", 1 << 20)
    notes = zlib.compress(bytes(1 << 26))
    body = bytes(8) + varint(4) + varint(1) + varint(len(notes)) + notes + varint(0)
    assert peak_of(lambda: codec.read_head(io.BytesIO(sealed(body)))) < 8 << 20
    deep = zlib.compress(b"[" * 5000 + b"]" * 5000)
    body = bytes(8) + varint(4) + varint(1) + varint(len(deep)) + deep + varint(0)
    assert peak_of(lambda: codec.read_head(io.BytesIO(sealed(body)))) < 8 << 20


@pytest.mark.parametrize("rows", [1 << 24, 1 << 40])
def test_a_block_of_many_rows_takes_no_memory(rows):
    """Forty-eight bytes took nine gigabytes."""
    model = make_model("factorial")[0]
    made = file_of(rows, varint(1) + varint(2 * 1024) + varint(rows >> 10) + bytes(8), model.n_x)
    assert peak_of(lambda: codec.decompress(model, made)) < 1 << 20
    with pytest.raises(DarnError):
        codec.inspect(made)


def test_a_length_that_is_not_true_takes_no_memory():
    made = file_of(1, b"")
    head = len(Head(bytes(8), 4, 1).to_bytes())
    for size in (1 << 27, 1 << 40):
        bad = made[:head] + varint(1) + varint(size) + bytes(8)
        assert peak_of(lambda bad=bad: codec.inspect(bad, verify=True)) < 4 << 20


def test_groups_are_of_at_most_as_many_rows_as_the_writer_codes():
    most = _blocks.MOST_ROWS
    assert _blocks._groups(Reader(varint(1) + varint(2 * most) + varint(1)), most) == [2 * most]
    for group in (0, 1, 2 * (most + 1)):
        with pytest.raises(MalformedError):
            _blocks._groups(Reader(varint(1) + varint(group) + varint(1)), most + 1)


def test_the_writer_keeps_the_readers_limits(monkeypatch):
    for name, head in {
        "MAX_NOTES": Head(bytes(8), 4, 1, {"a": "x" * 100}),
        "MAX_MODEL": Head(bytes(8), 4, 1, model=bytes(100)),
        "MAX_COLUMNS": Head(bytes(8), 100, 1),
    }.items():
        head.to_bytes()
        monkeypatch.setattr(_container, name, 50)
        with pytest.raises(DarnError, match="at most 50"):
            head.to_bytes()
    for n_x in (1, 784, 10**6, 10**8):
        assert _blocks.rows_per_block(n_x) <= _container.most_rows(n_x)


def test_inspect_verifies_if_asked_and_says_if_not(tmp_path, capsys):
    model = make_model("factorial")[0]
    made = codec.compress(model, (np.random.default_rng(0).random((40, model.n_x)) < 0.5).astype(np.uint8))
    path, head = tmp_path / "x.drn", len(Head(bytes(8), model.n_x, 40).to_bytes())
    path.write_bytes(made)
    assert main(["inspect", str(path)]) == 0
    assert "not the rows" in capsys.readouterr().out
    assert main(["inspect", str(path), "--verify"]) == 0
    assert "every block" in capsys.readouterr().out
    at = head + 12
    path.write_bytes(made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :])
    assert main(["inspect", str(path), "--verify"]) == 2
    assert "are damaged" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe.drn")
    for command in (["inspect", tmp_path / "pipe.drn"], ["decompress", tmp_path / "pipe.drn", tmp_path / "y.npy"]):
        assert main([str(word) for word in command]) == 2
        assert "a device or a pipe" in capsys.readouterr().err


FORGED_NOTES = [
    {"images": [["a.png", 1 << 20, 1 << 20]], "tile": [2, 2]},
    {"images": [["a\0.png", 2, 2]], "tile": [2, 2]},
    {"images": [["\ud800.png", 2, 2]], "tile": [2, 2]},
    {"images": [["../a.png", 2, 2]], "tile": [2, 2]},
    {"images": [["a.png", 2, 2]], "tile": [0, 4]},
    {"images": [["a.png", 2]], "tile": [2, 2]},
    {"images": "x", "tile": 5},
    {"dtype": "O"},
    {"dtype": "4u1"},
    {"dtype": ["<f4"]},
    {"shape": [-2, -2]},
    {"shape": [1] * 40 + [4]},
    {"table": {"layout": {"joint": "x" * 1000}}},
    {"table": {"layout": {"quoted": [0] * 1000}}},
    {"table": {"tail": "\ud800"}},
    {"table": {"lines": {"-1": "x"}}},
    {"table": {"lines": {"٣": "x"}}},
    {"else": 1},
]


@pytest.mark.parametrize("notes", FORGED_NOTES)
def test_forged_notes(notes, tmp_path):
    with pytest.raises(DarnError, match="not genuine"):
        data.check_restore(str(tmp_path / "a.npy"), notes, 1, 4)


def test_a_mask_is_of_the_rows_asked_for():
    sizes = [(5, 7), (4, 3), (1, 9)]
    notes = {"images": [[f"{i}.png", *size] for i, size in enumerate(sizes)], "tile": [4, 3]}
    whole = np.concatenate([cut(np.ones(size, bool), (4, 3)) for size in sizes])
    mask = unit_mask(notes)
    for start in range(len(whole)):
        for stop in range(start + 1, len(whole) + 1):
            np.testing.assert_array_equal(mask(start, stop), whole[start:stop])
    huge = {"images": [["a.png", 40_000, 3_001]], "tile": [16, 16]}
    assert unit_mask(huge)(10_000, 10_010).shape == (10, 256)


def test_every_image_that_is_read_can_be_restored():
    assert set(_notes.IMAGES) <= set(data._images.SUFFIXES)


# ---------------------------------------------------------------- safetensors


@pytest.mark.parametrize("of", ["metadata", "arrays"])
def test_a_header_of_many_names_takes_no_memory(of, tmp_path):
    """Fifty-eight megabytes of short names took five gigabytes."""
    entries = [f'"{i:x}":""' for i in range(70_000)] if of == "metadata" else []
    head = '{"__metadata__":{' + ",".join(['"format":"darn-model"', *entries]) + "}"
    if of == "arrays":
        head += "".join(f',"{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(30_000))
    head = (head + "}").encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    for read in (load_model, model_file_info, lambda p: load_checkpoint(p, {}), rbm.load):
        assert peak_of(lambda read=read: read(path)) < 4 * len(head)


# ---------------------------------------------------------------- JSON


def test_json_is_bounded_in_length_and_depth():
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, "it", 1000) is not None
    assert parse("5", "it", 1000) == 5
    for bad in ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "[" * 100_000, "[", "x" * 1001, b"\xff", "1" * 5000):
        with pytest.raises(DarnError):
            parse(bad, "it", 1000 if len(bad) > 200 else 10_000)


def test_types_of_json():
    assert decode(dict[str, float | tuple[float, ...]], {"a": 1, "b": [1, 2.5]}, "it") == {"a": 1.0, "b": (1.0, 2.5)}
    assert decode(tuple[str, int] | None, None, "it") is None
    assert decode(tuple[str, int], ["a", 1], "it") == ("a", 1)
    wrong = [(int, True), (int, 1.0), (int, 10**30), (float, "1"), (tuple[str, int], ["a"]), (dict[str, int], [1])]
    for kind, value in [*wrong, (Recipe, []), (Recipe, {"x": 1}), (list[int], {"a": 1}), (float, 10**400)]:
        with pytest.raises(FieldError):
            decode(kind, value, "it")


INFOS = [
    {"recipe": 7},
    {"recipe": {"training": {"lr": "fast"}}},
    {"data": []},
    {"data": {"shape": [3]}},
    {"data": {"shape": [0, 5]}},
    {"data": {"columns": ["a"]}},
    {"data": {"columns": 5}},
    {"data": {"classes": [1, 2]}},
    {"data": {"classes": ["\ud800"]}},
    {"data": {"columns": ["\udfff"] * 6}},
    {"data": {"table": [{"name": "a"}]}},
    {"data": {"table": [{"name": "a", "kind": "number", "edges": [1.0]}]}},
    {"data": {"table": [{"name": "a", "kind": "category", "values": ["x", "y"]}]}},
    {"training": {"epoch": "x"}},
    {"made": {"versions": 5}},
    {"estimator": []},
    {"table_estimator": []},
    {"table_estimator": {"params": 5}},
]


@pytest.mark.parametrize("value", ["[],", "{},", '{"":0},'])
def test_json_of_many_small_values_fits_into_memory(value, tmp_path):
    """What the smallest values take for each byte of text, at the largest size that any file may have."""
    text = f'{{"sha256": "", "set": [{value * ((1 << 17) // len(value))}0]}}'
    (tmp_path / "manifest.json").write_text(text)
    limits = MAX_MANIFEST, MAX_JSON, MAX_INFO, _container.MAX_NOTES, MAX_HOST
    assert peak_of(lambda: data.load(tmp_path)) / len(text) * max(limits) < 1.5 * 2**30


@pytest.mark.parametrize("info", INFOS)
def test_forged_infos(info):
    with pytest.raises(DarnError) as e:
        read_info(info, make_model("factorial")[0])
    assert "\n" not in str(e.value)


# ---------------------------------------------------------------- readers


def npy(shape: str, body: bytes, kind: str = "|u1") -> bytes:
    head = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + body


def npz(**arrays: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, content in arrays.items():
            z.writestr(f"{name}.npy", content)
    return out.getvalue()


BITS = npy("(4, 5)", bytes(20))
FORGED = {
    "negative.npy": npy("(-1, -5)", bytes(5)),
    "negative.npz": npz(x=npy("(-2, 5, -1)", bytes(10))),
    "one label.npz": npz(train=BITS, y_train=npy("()", bytes(8), "<f8")),
    "many.npz": npz(**{f"{i:04}{'z' * 60}": BITS for i in range(300)}),
    "lines.npz": npz(**{"a\nb": BITS, "c\x1b[2J": BITS}),
    "cells.csv": b"," * 300_000 + b"\n",
    "blanks.txt": (b"0" + b" " * 100_000 + b"1\n") * 50,
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_and_tables(name, tmp_path):
    """Each way of reading takes them or refuses them in one line, at once."""
    (tmp_path / name).write_bytes(FORGED[name])
    path, refused, began = tmp_path / name, [], time.process_time()
    for way in (
        lambda: list(data.open_rows(path).read()),
        lambda: list(data.open_source(str(path), None, None).bits()),
        lambda: data.load_rows(path),
        lambda: data.load(path),
    ):
        try:
            way()
        except DarnError as e:
            refused.append(str(e))
    assert all(text.isprintable() and len(text) <= 500 + len(str(path)) for text in refused)
    assert refused or name == "blanks.txt"
    assert time.process_time() - began < 10


def test_messages_are_one_line_and_bounded():
    assert str(DarnError("a\x1b[2J\nb\u202e")) == "a\\x1b[2J\\nb\\u202e"
    assert len(str(FormatError("x" * 10_000))) == LONGEST


@pytest.mark.parametrize("cell", [",", "日,", "😀,"])
def test_a_line_of_many_cells_fits_into_memory(cell, tmp_path, monkeypatch):
    text = cell * ((1 << 17) // len(cell))
    (tmp_path / "a.csv").write_text(text)
    monkeypatch.setattr(_sniff, "MAX_FIELDS", 1000)
    taken = peak_of(lambda: data.open_rows(tmp_path / "a.csv"))
    assert taken / len(text) * _limits.MAX_LINE < 1.5 * 2**30


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_text_table, "MAX_LINE", 1 << 16)
    (tmp_path / "a.csv").write_bytes(b"0,1\n" * 300_000 + b"0" * (8 << 20))
    assert peak_of(lambda: list(data.open_rows(tmp_path / "a.csv").read())) < 64 << 20
    (tmp_path / "b.csv").write_bytes(b"0" * (1 << 20))
    assert peak_of(lambda: data.open_rows(tmp_path / "b.csv")) < 1 << 20


def test_what_unpacks_to_much_more_than_its_file(tmp_path, monkeypatch):
    import polars as pl

    monkeypatch.setattr(_limits, "MAX_UNPACKED", 1 << 16)
    monkeypatch.setattr(_limits, "MAX_CELLS", 1000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1 << 12, 1 << 10), np.uint8))
    pl.DataFrame({"a": ["x"] * 100_000}).write_parquet(tmp_path / "b.parquet")
    pl.DataFrame({"a": ["y" * 10_000] * 500}).write_parquet(tmp_path / "c.parquet")
    refused = {"a.npz": "unpacks to", "b.parquet": "cells", "c.parquet": "unpacks to", "list.parquet": "lists"}
    pl.DataFrame({"a": [[0] * 1000]}).write_parquet(tmp_path / "list.parquet")
    kinds = {"bytes": pl.Binary, "categories": pl.Categorical, "enum": pl.Enum(["y" * 10_000])}
    for name, kind in kinds.items():
        frame = pl.DataFrame({"a": pl.Series(["y" * 10_000] * 500).cast(kind)})
        frame.write_parquet(tmp_path / f"{name}.parquet")
        refused[f"{name}.parquet"] = "unpacks to"
    for name, said in refused.items():
        for way in (data.load_rows, lambda path: list(data.open_source(str(path), None, None).bits())):
            with pytest.raises(DarnError, match=said):
                way(tmp_path / name)


def test_pages_are_measured_before_they_are_unpacked(tmp_path, monkeypatch):
    """polars takes several times the size of a page: 9 GB for a text of 1.5 GB in a file of 47 kB."""
    import polars as pl

    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"a": [f"w{i % 1000}" for i in range(10_000)], "b": np.arange(10_000)})
    for packing in ("zstd", "snappy", "lz4", "gzip", "uncompressed"):
        frame.write_parquet(path, compression=packing, row_group_size=3000)
        content = path.read_bytes()
        sizes = list(_parquet._pages(content, len(content)))
        assert len(sizes) >= 8  # of two columns in four groups
        assert 80_000 < sum(sizes) < 200_000
        assert packing != "uncompressed" or sum(sizes) < len(content) < 1.1 * sum(sizes)
    pl.DataFrame({"a": ["y" * 30_000_000]}).write_parquet(path)
    monkeypatch.setattr(_limits, "MAX_UNPACKED", 1 << 20)
    monkeypatch.setattr(pl, "scan_parquet", None)
    for way in (data.load_rows, lambda path: list(data.open_rows(path).read())):
        with pytest.raises(DarnError, match="unpacks to 30,000,0"):
            way(path)


FOOTERS = {
    "numbers that are not there": b"\x19\xf7" + varint(1 << 22),
    "a text that is not there": b"\x18" + varint(1 << 40),
    "lists inside each other": b"\x19" + b"\x19" * 3000,
}


@pytest.mark.parametrize("name", FOOTERS)
def test_footers_that_claim_more_than_there_is_take_no_memory(name):
    footer = FOOTERS[name]
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    tracemalloc.start()
    with pytest.raises(ValueError, match="beyond the file|without end"):
        _parquet.check_pages(content, len(content), "a.parquet")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_no_other_image_format_whatever_its_name(tmp_path):
    from PIL import Image

    Image.new("L", (4, 4)).save(tmp_path / "a.tiff")
    os.rename(tmp_path / "a.tiff", tmp_path / "a.png")
    with pytest.raises(DarnError, match="not a readable image"):
        data.load_rows(tmp_path)
    os.remove(tmp_path / "a.png")
    os.mkfifo(tmp_path / "a.png")
    for f in (lambda: data.load_rows(tmp_path), lambda: data.open_source(str(tmp_path / "a.png"), None, None)):
        with pytest.raises(DarnError, match="a device or a pipe"):
            f()
