"""Laws of darn.data on the user's files: rows come out as they went in, bad input is refused."""

import hashlib
import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import darn
from darn import data
from darn.data import _load
from darn.errors import DarnError

RNG = np.random.RandomState(7)
BITS = (RNG.random_sample((40, 11)) < 0.3).astype(np.uint8)
GREY = RNG.randint(0, 256, (40, 12)).astype(np.uint8)
GREY[0, 0], GREY[1, 1] = 0, 255
MODES = ("threshold", "static", "dynamic", "intensity")


def splits(s):
    return {"train": s.train, "valid": s.valid, "test": s.test}


def multiset(X):
    return sorted(map(bytes, np.ascontiguousarray(X)))


def write(path, X, delimiter=",", header=None):
    lines = [delimiter.join(map(str, row)) for row in np.asarray(X).tolist()]
    path.write_text("\n".join(([header] if header else []) + lines) + "\n")
    return path


# ---- rows


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 64])
def test_pack_round_trip(dtype, n):
    X = RNG.random_sample((13, n)) < 0.5
    rows = data.Rows.from_array(X.astype(dtype), context=np.arange(26).reshape(13, 2))
    assert (len(rows), rows.n, rows.values.shape) == (13, n, (13, -(-n // 8)))
    assert (rows.unpack() == X).all()
    assert rows.unpack().dtype == np.uint8
    np.testing.assert_array_equal(rows.values, np.packbits(X, axis=1))
    for index in (slice(2, 9, 3), np.array([12, 0, 0]), np.arange(13) % 2 == 0, 5):
        got = rows.take(index)
        np.testing.assert_array_equal(got.unpack(), np.atleast_2d(X[index]))
        np.testing.assert_array_equal(got.context, np.atleast_2d(rows.context[index]))
    assert rows.context.dtype == np.float32
    few = rows.subsample(5)
    assert len(few) == 5
    assert (np.diff(few.context[:, 0]) > 0).all()
    np.testing.assert_array_equal(few.unpack(), X[few.context[:, 0].astype(int) // 2])
    assert rows.subsample(13) is rows


def test_sparse_lists_and_images_are_arrays_too():
    from scipy.sparse import csr_matrix

    assert (data.Rows.from_array(csr_matrix(BITS)).unpack() == BITS).all()
    assert (data.Rows.from_array(BITS.tolist()).unpack() == BITS).all()
    assert data.Rows.from_array(BITS[:, :10].reshape(40, 2, 5)).n == 10


NAN = BITS.astype(float)
NAN[4, 2] = np.nan
INF = BITS.astype(float)
INF[39, 10] = -np.inf
LABELLED = np.column_stack([BITS, np.arange(40) % 10])
COUNTED = np.column_stack([np.arange(40), BITS])
REFUSED_ARRAYS = {
    "nan": (NAN, ["nan", "row 5", "column 3", "from 1"]),
    "inf": (INF, ["-inf", "row 40", "column 11"]),
    "grey": (GREY, ["row 1", "0 to 255", *MODES]),
    "fractions": (GREY / 255, ["0 to 1", "binarize"]),
    "large": (BITS.astype(int) + 300, ["row 1", "recode"]),
    "negative": (BITS.astype(int) * -7, ["-7", "recode"]),
    "label": (LABELLED, ["row 3", "column 12", "value 2", "labels = 11"]),
    "row numbers": (COUNTED, ["row 3", "column 1 ", "counts the rows"]),
    "bytes going round": (
        np.column_stack([np.arange(300) % 256, [1] * 300]).astype(np.uint8),
        ["class label"],
    ),
    "1-D": (BITS[0], ["1-D", "reshape"]),
    "0-D": (np.float64(1), ["0-D"]),
    "4-D": (np.zeros((2, 2, 2, 2)), ["4-D", "(2, 2, 2, 2)"]),
    "no rows": (BITS[:0], ["no rows"]),
    "no columns": (BITS[:, :0], ["no columns"]),
    "objects": (BITS.astype(object), ["objects"]),
    "complex": (BITS.astype(complex), ["complex"]),
    "text": (BITS.astype(str), ["text"]),
    "ragged": ([[0, 1], [1]], ["different lengths"]),
}


def refused(call, *facts):
    """The call is refused in one line that has all the facts."""
    with pytest.raises(DarnError) as e:
        call()
    said = str(e.value)
    assert "\n" not in said
    assert len(said) < 700
    for fact in facts:
        assert fact in said, f"{fact!r} not in {said!r}"
    return said


@pytest.mark.parametrize("case", REFUSED_ARRAYS)
def test_from_array_refuses(case):
    X, facts = REFUSED_ARRAYS[case]
    refused(lambda: data.Rows.from_array(X), *facts)


def test_context_is_checked():
    refused(lambda: data.Rows.from_array(BITS, context=np.zeros((39, 2))), "39", "40", "context")
    refused(lambda: data.Rows.from_array(BITS, context=np.zeros(40)), "context", "1-D")
    refused(lambda: data.Rows.from_array(BITS, context=np.full((40, 1), np.nan)), "context", "nan")


# ---- the user's files


def save_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


FILES = {
    "npy": lambda d: (np.save(d / "a.npy", BITS), d / "a.npy")[1],
    "npz": lambda d: save_npz(d / "a.npz", rows=BITS.astype(float)),
    "packed": lambda d: save_npz(d / "a.npz", rows=np.packbits(BITS, axis=1), n=11),
    "comma": lambda d: write(d / "a.csv", BITS),
    "header": lambda d: write(d / "a.csv", BITS, header=",".join(f'"c{i}"' for i in range(11))),
    "pandas header": lambda d: write(d / "a.csv", BITS, header=",".join(map(str, range(11)))),
    "semicolon": lambda d: write(d / "a.txt", BITS, ";"),
    "comma and blank": lambda d: write(d / "a.csv", BITS, ", "),
    "tab": lambda d: write(d / "a.tsv", BITS, "\t"),
    "blank": lambda d: write(d / "a.amat", BITS, " "),
    "blanks": lambda d: write(d / "a.data", BITS, "   "),
    "floats": lambda d: write(d / "a.csv", BITS.astype(float)),
    "quoted": lambda d: write(d / "a.csv", [[f'"{v}"' for v in row] for row in BITS]),
    "windows": lambda d: (
        (d / "a.csv").write_bytes(b"\xef\xbb\xbf" + write(d / "b.csv", BITS).read_bytes().replace(b"\n", b"\r\n")),
        d / "a.csv",
    )[1],
    "comments": lambda d: (
        (d / "a.txt").write_text("# made by hand\n\n" + write(d / "b.csv", BITS).read_text() + "\n\n"),
        d / "a.txt",
    )[1],
}


@pytest.mark.parametrize("kind", FILES)
def test_file_round_trip_and_division(kind, tmp_path):
    path = FILES[kind](tmp_path)
    whole = data.load_rows(path, n=11)
    np.testing.assert_array_equal(whole.unpack(), BITS)
    s = data.load(str(path), seed=3)
    assert [len(r) for r in splits(s).values()] == [32, 4, 4]
    assert multiset(np.concatenate([r.unpack() for r in splits(s).values()])) == multiset(BITS)
    assert s.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (s.name, s.binarize) == ("a", None)
    assert str(tmp_path) not in s.source
    assert (s.columns is not None) == ("header" in kind)
    again, other = data.load(path, seed=3), data.load(path, seed=4)
    for k, r in splits(again).items():
        np.testing.assert_array_equal(r.values, splits(s)[k].values)
        np.testing.assert_array_equal(data.load_rows(path, split=k, seed=3).values, r.values)
    assert (other.train.values != s.train.values).any()
    for mode in MODES:  # bits stay bits
        b = data.load(path, seed=3, binarize=mode)
        assert b.binarize is None
        assert not b.train.grey
        np.testing.assert_array_equal(b.train.values, s.train.values)


def test_npz_with_its_own_splits(tmp_path):
    parts = {"train": BITS[:20], "valid": BITS[20:30], "test": BITS[30:]}
    for i, name in enumerate(("{}", "{}_data", "X_{}")):
        path = save_npz(tmp_path / f"{i}.npz", **{name.format(k): v for k, v in parts.items()})
        s = data.load(path)
        for k, r in splits(s).items():
            np.testing.assert_array_equal(r.unpack(), parts[k])
            np.testing.assert_array_equal(data.load_rows(path, split=k).unpack(), parts[k])
        refused(lambda p=path: data.load_rows(p), "train", "valid", "test", "split")
    path = save_npz(tmp_path / "two.npz", x_train=BITS[:30], x_test=BITS[30:], y_train=np.arange(30) % 3)
    s = data.load(path)
    assert [len(r) for r in splits(s).values()] == [27, 3, 10]
    assert multiset(np.concatenate([s.train.unpack(), s.valid.unpack()])) == multiset(BITS[:30])
    np.testing.assert_array_equal(data.load_rows(path, split="train").values, s.train.values)
    path = save_npz(tmp_path / "ab.npz", a=BITS, b=BITS[:5])
    refused(lambda: data.load(path), "a, b")
    assert len(data.load_rows(path, split="b")) == 5
    refused(lambda: data.load_rows(path, split="c"), "'c'", "a, b")
    refused(lambda: data.load(save_npz(tmp_path / "w.npz", train=BITS, valid=BITS, test=BITS[:, 1:])), "11", "10")
    refused(lambda: data.load(save_npz(tmp_path / "v.npz", train=BITS, valid=BITS)), "no test")
    context = {f"{k}_context": np.ones((len(v), 2)) for k, v in parts.items()}
    assert data.load(save_npz(tmp_path / "c.npz", **parts, **context)).valid.context.shape == (10, 2)
    context["valid_context"] = np.ones((9, 2))
    refused(lambda: data.load(save_npz(tmp_path / "d.npz", **parts, **context)), "context", "9", "10")


def test_images_in_an_array_keep_their_shape(tmp_path):
    np.save(tmp_path / "a.npy", GREY.reshape(40, 3, 4))
    s = data.load(tmp_path / "a.npy", binarize="intensity")
    assert s.shape == (3, 4)
    assert multiset(np.concatenate([r.values for r in splits(s).values()])) == multiset(GREY)


def raw(name, content):
    def make(d):
        (d / name).write_bytes(content)
        return d / name

    return make


def cut_npz(d):
    path = FILES["packed"](d)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def bent_npz(d):
    path = FILES["packed"](d)
    content = bytearray(path.read_bytes())
    content[150] ^= 255  # inside the first array
    path.write_bytes(content)
    return path


def twice_npz(d):
    """Two arrays of one name, of which readers would take different ones."""
    with zipfile.ZipFile(d / "a.npz", "w") as z:
        for name, value in (("rows.npy", BITS), ("rows", 1 - BITS)):
            content = io.BytesIO()
            np.save(content, value)
            z.writestr(name, content.getvalue())
    return d / "a.npz"


def padded(d):
    return save_npz(d / "a.npz", rows=np.full((40, 2), 255, np.uint8), n=11)


REFUSED_FILES = {
    "ragged": (raw("a.csv", b"0,1,0\n1,1,1\n0,1\n"), ["line 3", "2 values", "3"]),
    "ragged under a header": (raw("a.csv", b"a,b\n0,1\n1,0,1\n"), ["line 3", "3 values", "header has 2"]),
    "word": (raw("a.csv", b"a,b\n0,1\n1,cat\n"), ["line 3", "column 2", "'cat'", "labels = 'b'"]),
    "word in line 1": (raw("a.csv", b"0,x,1\n0,1,1\n"), ["line 1", "column 2", "'x'"]),
    "underscore": (raw("a.csv", b"0,1,1\n0,1_0,1\n"), ["line 2", "column 2", "'1_0'"]),
    "hole": (raw("a.csv", b"0,1,1\n0,,1\n"), ["line 2", "column 2", "empty"]),
    "decimal comma": (raw("a.csv", b"0,5;1\n0,5;1\n"), ["line 1", "'0,5'"]),
    "nan text": (raw("a.csv", b"a,b\n0,1\nnan,1\n"), ["nan", "row 2", "column 1 'a'"]),
    "grey text": (raw("a.csv", b"0,17\n255,1\n" * 9), ["17", "row 1", "column 2", "binarize"]),
    "label text": (write, ["column 12", "labels = 11"]),
    "binary as text": (raw("a.csv", b"\0\1\2"), ["not text"]),
    "latin text": (raw("a.csv", b"0,1\n0,\xe9\n"), ["UTF-8"]),
    "empty": (raw("a.csv", b""), ["empty"]),
    "empty npy": (raw("a.npy", b""), ["empty"]),
    "blank text": (raw("a.txt", b"\n  \n# nothing\n"), ["empty"]),
    "header alone": (raw("a.csv", b"a,b,c\n"), ["no rows"]),
    "one row": (raw("a.csv", b"0,1,1\n"), ["1 row,", "10"]),
    "nine rows": (raw("a.csv", b"0,1,1\n" * 9), ["9 rows", "10"]),
    "ending": (raw("a.xyz", b"0,1"), [".npy", ".csv", "folder"]),
    "no npy": (raw("a.npy", b"hello there"), ["a.npy", "NumPy"]),
    "no npz": (raw("a.npz", b"PK\3\4hello there"), ["a.npz", "damaged"]),
    "cut npz": (cut_npz, ["damaged"]),
    "bent npz": (bent_npz, ["damaged"]),
    "one name twice": (twice_npz, ["two arrays 'rows'"]),
    "bits beyond n": (padded, ["beyond its 11 columns"]),
    "wrong n": (
        lambda d: save_npz(d / "a.npz", rows=np.zeros((40, 5), np.uint8), n=11),
        ["5 bytes", "11 columns"],
    ),
    "pickle": (
        lambda d: (np.save(d / "a.npy", BITS.astype(object), allow_pickle=True), d / "a.npy")[1],
        ["objects"],
    ),
    "no arrays": (lambda d: save_npz(d / "a.npz"), ["nothing"]),
    "folder": (lambda d: d, ["without images", ".png"]),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_load_refuses_file(case, tmp_path):
    make, facts = REFUSED_FILES[case]
    path = write(tmp_path / "a.csv", LABELLED) if make is write else make(tmp_path)
    refused(lambda: data.load(path), *facts)


@pytest.mark.parametrize("case", [c for c in REFUSED_ARRAYS if c not in ("objects", "ragged")])
def test_load_refuses_array_file(case, tmp_path):
    X, facts = REFUSED_ARRAYS[case]
    np.save(tmp_path / "a.npy", X)
    refused(lambda: data.load(tmp_path / "a.npy"), "a.npy", *facts)


def test_width_and_few_rows(tmp_path):
    path = FILES["comma"](tmp_path)
    refused(lambda: data.load_rows(path, n=12), "11 columns", "12")
    assert len(data.load_rows(raw("b.csv", b"0,1,1\n")(tmp_path), n=3)) == 1
    refused(lambda: data.load_rows(path, split="middle"), "'middle'")


def test_unknown_names_and_unreadable_files(tmp_path, monkeypatch):
    refused(lambda: data.load("mushroom"), "mushrooms")
    refused(lambda: data.load("binarised_mnist"), "binarized_mnist")
    refused(lambda: data.load("zzzzzz"), "zzzzzz", "`darn data` lists the sets")
    refused(lambda: data.load_rows("adlut"), "adult")
    refused(lambda: data.load(""), "adult")
    refused(lambda: data.load(tmp_path / "none.csv"), "none.csv")
    path = FILES["comma"](tmp_path)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("darn.files._read.open", denied, raising=False)
    refused(lambda: data.load(path), "a.csv", "Permission denied")


@pytest.mark.parametrize(
    ("option", "facts"),
    [
        ({"binarize": "fuzzy"}, ["fuzzy", *MODES]),
        ({"threshold": 0}, ["threshold"]),
        ({"threshold": 2.0}, ["threshold"]),
        ({"threshold": float("nan")}, ["threshold"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 1.5}, ["seed"]),
    ],
)
def test_options_are_checked(option, facts):
    refused(lambda: data.load("digits", **option), *facts)


# ---- labels


def test_labels_become_context(tmp_path):
    words = np.array(["cat", "dog", "eel"])[np.arange(40) % 3]
    named = write(tmp_path / "named.csv", np.column_stack([words, BITS]), header=",".join(["kind", *"abcdefghijk"]))
    numbers = write(tmp_path / "numbers.csv", LABELLED)
    np.save(tmp_path / "array.npy", LABELLED)
    np.save(tmp_path / "first.npy", np.roll(LABELLED, 1, axis=1))
    both = save_npz(tmp_path / "both.npz", data=LABELLED, y=np.zeros(40, int))
    npz = save_npz(tmp_path / "beside.npz", data=BITS, y=np.arange(40) % 10)
    for path, column, classes in (
        (numbers, -1, 10),
        (numbers, "11", 10),
        (tmp_path / "array.npy", 11, 10),
        (tmp_path / "first.npy", 0, 10),
        (npz, "label", 10),
        (both, -1, 10),
        (named, "kind", 3),
        (named, 0, 3),
    ):
        rows = data.load_rows(path, n=11, labels=column)
        np.testing.assert_array_equal(rows.unpack(), BITS)
        np.testing.assert_array_equal(rows.labels, np.arange(40) % classes)
        np.testing.assert_array_equal(rows.context, np.eye(classes)[np.arange(40) % classes])
        assert rows.context.dtype == np.float32
        s = data.load(path, labels=column)
        assert len(s.classes) == classes
        for r in splits(s).values():
            np.testing.assert_array_equal(r.context.argmax(1), r.labels)
            for bits, y in zip(r.unpack(), r.labels):  # the label went with its row
                assert any((BITS[i] == bits).all() for i in range(40) if i % classes == y)
    s = data.load(named, labels="kind")
    assert s.classes == ("cat", "dog", "eel")
    assert s.columns == tuple("abcdefghijk")
    few = write(tmp_path / "few.csv", LABELLED[7:9])
    assert data.load_rows(few, labels=-1).context.shape == (2, 2)
    assert data.load_rows(few, labels=-1, classes=tuple("0123456789")).labels.tolist() == [7, 8]
    refused(lambda: data.load_rows(few, labels=-1, classes=("0", "7")), "'8'")
    refused(lambda: data.load(named, labels="colour"), "colour", "kind")
    refused(lambda: data.load(numbers, labels=12), "12 columns", "labels = 12")
    refused(lambda: data.load(numbers, binarize="threshold"), "class label")
    refused(lambda: data.load("digits", labels=3), "'label'")
    for i, hole in enumerate(("", "nan")):
        gap = write(tmp_path / f"gap{i}.csv", [[0, 1, "a"], [1, 1, hole]])
        refused(lambda p=gap: data.load_rows(p, labels=-1), "row 2", "missing")


# ---- grey levels


@pytest.mark.parametrize("kind", ["bytes", "text", "fractions"])
def test_binarize(kind, tmp_path):
    path = tmp_path / ("a.csv" if kind == "text" else "a.npz")
    cut = {"train": GREY[:20], "valid": GREY[20:30], "test": GREY[30:]}
    if kind == "text":
        write(path, GREY)
        cut = {k: r.values for k, r in splits(data.load(path, binarize="intensity")).items()}
    else:
        np.savez(path, **{k: v if kind == "bytes" else v / 255 for k, v in cut.items()})
    for mode in MODES:
        s, again = data.load(path, binarize=mode), data.load(path, binarize=mode)
        other = data.load(path, binarize=mode, seed=1)
        assert s.binarize == mode
        for k, r in splits(s).items():
            X = cut[k]
            assert r.grey == (mode == "intensity" or (mode == "dynamic" and k == "train"))
            np.testing.assert_array_equal(r.values, splits(again)[k].values)
            if r.grey:
                np.testing.assert_array_equal(r.values, X)
                np.testing.assert_allclose(r.unpack(), X / 255, atol=1e-6)
                assert r.unpack().dtype == np.float32
            elif mode == "threshold":
                np.testing.assert_array_equal(r.unpack(), X / 255 >= 0.5)
            else:
                assert (r.unpack()[X == 0] == 0).all()
                assert (r.unpack()[X == 255] == 1).all()
                assert (r.values != splits(other)[k].values).any()
            rows = data.load_rows(path, split=k, binarize=mode)
            assert rows.grey == (mode == "intensity")
            if not (mode == "dynamic" and k == "train"):
                np.testing.assert_array_equal(rows.values, r.values)
    low = data.load(path, binarize="threshold", threshold=0.25)
    np.testing.assert_array_equal(low.test.unpack(), cut["test"] / 255 >= 0.25)


def test_static_draws_follow_the_intensity(tmp_path):
    levels = np.tile(np.array([0, 51, 102, 204, 255], np.uint8), (4000, 1))
    np.save(tmp_path / "a.npy", levels)
    mean = data.load_rows(tmp_path / "a.npy", binarize="static").unpack().mean(0)
    np.testing.assert_allclose(mean, [0, 0.2, 0.4, 0.8, 1], atol=0.03)


@pytest.mark.parametrize(
    ("X", "facts"),
    [
        (GREY.astype(int) * 2, ["0 to", "whole numbers 0 to 255"]),
        (GREY - 10.0, ["-10", "fractions 0 to 1"]),
        (GREY / 100, ["2.55", "fractions 0 to 1"]),
        (GREY // 16, ["largest is 15", "threshold"]),
    ],
)
def test_binarize_refuses(X, facts, tmp_path):
    np.save(tmp_path / "a.npy", X)
    refused(lambda: data.load(tmp_path / "a.npy", binarize="threshold"), *facts)


def test_one_scale_for_all_splits(tmp_path):
    path = save_npz(tmp_path / "a.npz", train=GREY, valid=GREY, test=GREY / 255)
    refused(lambda: data.load(path, binarize="static"), "scale")
    dark = save_npz(tmp_path / "b.npz", train=GREY, valid=GREY, test=np.ones((3, 12), np.uint8))
    assert data.load(dark, binarize="threshold").test.unpack().sum() == 0
    dark = save_npz(tmp_path / "c.npz", train=np.ones((30, 12), np.uint8), valid=GREY, test=GREY)
    s = data.load(dark, binarize="threshold")
    assert s.train.unpack().sum() == 0
    np.testing.assert_array_equal(s.test.unpack(), GREY > 127)


# ---- images


def save_images(folder, pixels, mode, ending):
    from PIL import Image

    for i, p in enumerate(pixels):
        Image.fromarray(p).convert(mode).save(folder / f"{i:03}.{ending}")


@pytest.mark.parametrize(("mode", "ending"), [("1", "png"), ("1", "pbm"), ("L", "png"), ("L", "bmp"), ("L", "gif")])
def test_folder_of_images(mode, ending, tmp_path):
    pixels = GREY.reshape(40, 3, 4)
    black_white = np.where(pixels > 127, 255, 0).astype(np.uint8)
    save_images(tmp_path, black_white if mode == "1" else pixels, mode, ending)
    (tmp_path / "notes.txt").write_text("not an image")
    if mode == "1":
        np.testing.assert_array_equal(data.load_rows(tmp_path).unpack(), (GREY > 127))
        assert data.load(tmp_path).shape == (3, 4)
    else:
        refused(lambda: data.load(tmp_path), "0 to 255", *MODES)
        np.testing.assert_array_equal(data.load_rows(tmp_path, binarize="intensity").values, GREY)
    save_images(tmp_path, [np.zeros((4, 3), np.uint8)] * 41, mode, ending)
    save_images(tmp_path, black_white[:1], mode, ending)
    refused(lambda: data.load_rows(tmp_path), f"001.{ending}", "3x4", "4x3", "one size")


def test_bad_images(tmp_path):
    save_images(tmp_path, GREY.reshape(40, 3, 4), "L", "png")
    good = (tmp_path / "004.png").read_bytes()
    (tmp_path / "004.png").write_bytes(good[:40])
    refused(lambda: data.load(tmp_path, binarize="static"), "004.png", "damaged")
    refused(lambda: data.load(tmp_path, labels=1), "labels")


# ---- the nearest row


@pytest.mark.parametrize("n", [11, 64, 77])
@pytest.mark.parametrize("grey", [False, True])
def test_nearest_is_the_nearest(grey, n):
    rng = np.random.default_rng(0)
    train, x = rng.random((50, n)), (rng.random((20, n)) < 0.5).astype(np.uint8)
    values = np.round(255 * train).astype(np.uint8)
    rows = data.Rows(values, n, grey=True) if grey else data.Rows.from_array(train < 0.5)
    x[3] = rows.unpack()[17] >= 0.5
    every = np.abs(x[:, None].astype(float) - rows.unpack()[None].astype(float)).sum(axis=2)
    for block in (1, 7, 256):
        where, distance = data.nearest(rows, x, block=block)
        np.testing.assert_allclose(distance, every.min(axis=1), atol=1e-3)
        np.testing.assert_allclose(every[np.arange(20), where], distance, atol=1e-3)
        if not grey:
            np.testing.assert_array_equal(where, every.argmin(axis=1))
            assert (where[3], distance[3]) == (17, 0)


def test_import_is_light():
    """What darn.data itself brings in: a bare `darn` stands in for the package, whose API has jax in it."""
    heavy = ["jax", "sklearn", "PIL", "scipy", "urllib.request", "matplotlib"]
    bare = f"d = types.ModuleType('darn'); d.__path__ = {list(darn.__path__)}; sys.modules['darn'] = d"
    code = f"import sys, types; {bare}; import darn.data; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_nothing_is_unpickled():
    import pathlib

    for path in pathlib.Path(_load.__file__).parent.glob("*.py"):
        assert "allow_pickle=True" not in path.read_text()
        assert "import pickle" not in path.read_text()
