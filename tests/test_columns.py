"""Laws of the columns of a table, over a list of kinds: texts to bits and back, and a distribution over the texts."""

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
import pytest
from helpers import P_VALUE, chi_square
from reference import spelled

from darn import DarnError
from darn.codec._ans import Ans
from darn.codec._symbols import Reading, Writing
from darn.data import Columns, Schema, _text_table, open_rows, parse_tests, parts_of
from darn.data._column import Category
from darn.data._draws import RowDraws
from darn.data._fit_number import fit_number
from darn.data._infer import infer
from darn.data._number import Number
from darn.data._place import FARTHEST
from darn.data._spelled import AbstractSpelled

RNG = np.random.RandomState(0)
OWN = np.random.RandomState(5)
N = 1200


def draws(n, stream=0):
    return RowDraws(0, stream, np.arange(n))


def days(values):
    return [str(np.datetime64("2014-01-01") + int(v)) for v in values]


def holed(words, every=7):
    return [("?" if i % every == 0 else w) for i, w in enumerate(words)]


GONE = ("?", "", "-", "inf")  # how missing values are written


def given(words):
    return words[~np.isin(words, GONE)]


def zoned(minutes, zones):
    moments = (np.datetime64("2014-03-01T00:00:00") + np.timedelta64(60 * int(v), "s") for v in minutes)
    return [f"{moment}{zones[i % len(zones)]}" for i, moment in enumerate(moments)]


GERMAN = str.maketrans(",.", ".,")
MOMENTS = [datetime(2020, 1, 1) + timedelta(microseconds=int(v)) for v in OWN.randint(0, 9**6, N)]
LATER = [datetime(2020, 1, 1) + timedelta(minutes=int(v)) for v in OWN.randint(0, 10**6, N)]

# name: (texts, what the column is to be taken for, "" for what it is)
COLUMNS = {
    "category": (RNG.choice(["red", "green", "blue, dark", "="], N), ""),
    "category, holes": (holed(RNG.choice(["red", "green", "blue"], N)), ""),
    "category, two": (RNG.choice(["<=50K", ">50K"], N), ""),
    "category, two, holes": (holed(RNG.choice(["x", "y"], N)), ""),
    "category, one": (["x"] * N, ""),
    "category, one, holes": (holed(["x"] * N), ""),
    "category, many": ([f"w{int(v)}" for v in RNG.gamma(1.0, 60, N)], ""),
    "category, many, holes": (holed([f"w{int(v)}" for v in RNG.gamma(1.0, 60, N)]), ""),
    "category, leading zeros": ([f"0{v}" for v in RNG.randint(100, 300, N)], ""),
    "category, of numbers": ([f"{v}" for v in RNG.randint(0, 300, N)], "category"),
    "id, always missing": ([""] * N, ""),
    "id, a category that is always missing": (["?"] * N, "category"),
    "ordered category": ([str(v) for v in RNG.randint(0, 9, N)], ""),
    "ordered category, scale": (RNG.choice(["Low", "Medium", "High"], N), ""),
    "ordered category, agreement": (
        RNG.choice(["Agree", "Disagree", "Neutral", "Strongly agree", "Strongly disagree"], N),
        "",
    ),
    "boolean": ([str(v) for v in RNG.randint(0, 2, N)], ""),
    "boolean, words": (RNG.choice(["yes", "no"], N), ""),
    "boolean, holes": (holed(RNG.choice(["TRUE", "FALSE"], N)), ""),
    "whole number": ([str(v) for v in RNG.poisson(60, N)], ""),
    "whole number, holes": (holed([str(v) for v in RNG.poisson(60, N)]), ""),
    "whole number, mostly 0": ([str(v) for v in np.where(RNG.random_sample(N) < 0.9, 0, RNG.randint(0, 9999, N))], ""),
    "whole number, heaps": (
        [str(v) for v in np.where(RNG.random_sample(N) < 0.5, 40, RNG.normal(40, 12, N).astype(int))],
        "",
    ),
    "whole number, negative": ([str(-v - 1) for v in RNG.poisson(300, N)], ""),
    "whole number, steps of 5": ([str(3 + 5 * v) for v in RNG.poisson(60, N)], ""),
    "whole number, few": ([str(v) for v in RNG.randint(0, 5, N)], "number"),
    "real number": ([f"{v:.2f}" for v in RNG.normal(0, 3, N)], ""),
    "real number, all digits": ([repr(float(v)) for v in RNG.standard_cauchy(N)], ""),
    "whole number, as floats": ([repr(float(v)) for v in RNG.poisson(60, N)], ""),
    "real number, exponents": ([f"{v:.4g}" for v in RNG.lognormal(0, 5, N)], ""),
    "whole number, large": ([f"{v:.4g}" for v in RNG.lognormal(60, 5, N)], ""),
    "scientific": ([f"{v:.3e}" for v in OWN.normal(0, 1e-7, N)], ""),
    "scientific, large, holes": (holed([f"{v:.0E}" for v in OWN.lognormal(60, 1, N)]), ""),
    "date": (days(RNG.randint(0, 900, N)), ""),
    "date, holes": (holed(days(RNG.randint(0, 900, N))), ""),
    "real number, holes that are dashes": (["-", *(f"{v:.2f}" for v in OWN.normal(0, 3, N - 1))], ""),
    "whole number, holes that are infinite": (["inf", "inf", *OWN.poisson(90, N - 2)], ""),
    "date, holes that are dashes": (["-", *days(OWN.randint(0, 900, N - 1))], ""),
    "category, yes and no in several writings": (OWN.choice(["yes", "Yes", "no", "NO"], N), ""),
    "date, minutes": (
        [str(np.datetime64("2014-01-01T00:00") + int(v)).replace("T", " ") for v in RNG.randint(0, 9**6, N)],
        "",
    ),
    "date, time of day": ([f"{v // 60:02}:{v % 60:02}" for v in RNG.randint(0, 1440, N)], ""),
    "date, American": ([f"{m:02}/{d:02}/2014" for m, d in zip(RNG.randint(1, 13, N), RNG.randint(1, 29, N))], "date"),
    "date, month by name": ([f"{v:%d %b %Y}" for v in LATER], ""),
    "date, month in full": ([f"{v:%B} {v.day}, {v.year}" for v in LATER], ""),
    "date, twelve hours": ([f"{v:%m/%d/%y %I:%M %p}" for v in LATER], ""),
    "date, without leading zeros": ([f"{v.month}/{v.day}/{v.year} {v.hour}:{v:%M}" for v in LATER], ""),
    "date, digits": ([f"{v:%Y%m%d}" for v in LATER], ""),
    "date, time zone": (zoned(OWN.randint(0, 9**6, N), ["+02:00"]), ""),
    "date, two time zones": (zoned(OWN.randint(0, 9**6, N), ["+0100", "+0100", "+0200"]), ""),
    "date, milliseconds, holes": (
        holed([str(np.datetime64("2016-02-29T23:59:59.990") + int(v)) for v in OWN.randint(0, 9**9, N)]),
        "",
    ),
    "date, nanoseconds": ([f"{v:%Y-%m-%d %H:%M:%S}.{v.microsecond:06}500 UTC" for v in MOMENTS], ""),
    "amount, percent": ([f"{v:.1f}%" for v in OWN.normal(0, 30, N)], ""),
    "amount, thousands, holes": (holed([f"{v:,}" for v in OWN.randint(0, 9**6, N)]), ""),
    "amount, dollars": ([f"{'-' * int(v < 0)}${abs(v):,.2f}" for v in OWN.normal(900, 999, N)], ""),
    "amount, below 0 in parentheses": (
        [f"{v:,.2f}" if v > 0 else f"({-v:,.2f})" for v in OWN.normal(0, 9999, N)],
        "",
    ),
    "amount, with a plus": ([f"{v:+.2f}%" for v in OWN.normal(0, 30, N)], ""),
    "amount, plain but with a plus": ([f"{v:+.2f}" for v in OWN.normal(9, 30, N)], ""),
    "amount, euros": ([f"{v:,.2f} \u20ac".translate(GERMAN) for v in OWN.lognormal(7, 2, N)], ""),
    "amount, decimal comma, no thousands": ([f"{v:.2f}".replace(".", ",") for v in OWN.normal(0, 3000, N)], ""),
    "amount, decimal comma": ([f"{v:.2f}".translate(GERMAN) for v in OWN.normal(0, 3, N)], ""),
    "ordered category, of amounts": ([f"{v}%" for v in OWN.randint(5, 20, N)], ""),
    "whole number, beyond floats": ([str(2**60 + int(v) ** 2) for v in OWN.randint(0, 900, N)], ""),
    "whole number, negative and beyond floats": ([str(-(10**17) - int(v)) for v in OWN.poisson(60, N)], ""),
    "real number, beyond floats": ([f"{1580000000 + v}.{v:06}" for v in OWN.randint(0, 900, N)], ""),
    "id": ([f"n {i}" for i in range(N)], ""),
    "id, counted": ([str(7 + i) for i in range(N)], ""),
}
KINDS = {"whole number": "number", "real number": "number", "ordered category": "category", "boolean": "category"}


COLUMNS |= {
    f"{name} | word": COLUMNS[name]
    for name in ("category, holes", "whole number", "whole number, holes", "real number", "date, holes")
}


@lru_cache
def column_of(name):
    """(schema, cells) of a table with the column."""
    words, asked = COLUMNS[name]
    cells = np.array([[str(w), "ab"[i % 2]] for i, w in enumerate(words)], object)
    kinds = {"c=1, d": asked} if asked else {}
    schema = infer(["c=1, d", "beside"], cells, None, "it", kinds=kinds)
    if name.endswith("| word"):
        first, *others = schema.columns
        schema = Schema((replace(first, one_hot=False), *others))
    return schema, cells


every_column = pytest.mark.parametrize("name", COLUMNS)


@every_column
def test_what_a_column_is(name):
    schema, _ = column_of(name)
    column, said = schema.columns[0], schema.statement()[0]
    kind = name.split(",")[0].split(" |")[0]
    assert column.kind == KINDS.get(kind, kind)
    if column.n > 1:
        assert kind in said
    assert ("or missing" in said) == ("holes" in name)
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@every_column
def test_texts_come_back(name):
    """Those of values that are texts as they were; of cells, some text of the cell in the same writing."""
    schema, cells = column_of(name)
    column, rows = schema.columns[0], schema.encode(["c=1, d", "beside"], cells, "it")
    assert rows.bits.shape == (N, len(schema.units))
    back = schema.decode(rows.bits, seed=1)
    words = cells[:, 0].tolist()
    if column.exact:
        assert [r[0] for r in back] == words
        assert not rows.log_density.any()
    elif column.kind == "id":
        assert back[0][0] == ("7" if "counted" in name else "")
        return
    again = schema.encode(["beside", "c=1, d"], np.array(back, object)[:, ::-1], "it")
    np.testing.assert_array_equal(again.bits, rows.bits)
    assert [r[0] if r[0] in GONE else "given" for r in back] == [w if w in GONE else "given" for w in words]
    assert not rows.unknown.any()


@every_column
def test_bits_spell_the_values_and_nothing_else(name):
    column = column_of(name)[0].columns[0]
    values = np.arange(column.n + column.optional)
    bits = column.to_bits(values)
    np.testing.assert_array_equal(column.from_bits(bits), values)
    if column.size:
        assert {tuple(map(float, b)) for b in bits} == set(spelled(column.group))
    else:
        assert len(values) == 1


@every_column
def test_a_hole_may_be_filled_by_every_value_and_by_no_missing_one(name):
    column = column_of(name)[0].columns[0]
    bits, unknown = column.blank()
    able = (column.to_bits(np.arange(column.n + column.optional))[:, ~unknown] == bits[~unknown]).all(axis=1)
    np.testing.assert_array_equal(able, np.arange(column.n + column.optional) < column.n)


NUMBERS = [name for name in COLUMNS if isinstance(column_of(name)[0].columns[0], Number)]


def pieces(column, c):
    """(first, last, log p of each step) of parts of the line on which cell c has one density each."""
    ends = [*column.cells, len(column.starts)]
    edges = []
    for k in range(ends[c], ends[c + 1]):
        lo, hi = column.starts[k], column.ends[k]
        known = [i for i, _ in column.common if lo <= i <= hi]
        edges += [lo, hi + 1, *known, *(i + 1 for i in known), *np.linspace(lo, hi + 1, 5).astype(np.int64).tolist()]
    if c < column.n - 1:
        edges.append(column.starts[ends[c + 1]])
    for end, side, at in ((0, -1, column.starts[0]), (column.n - 1, 1, column.ends[-1] + 1)):
        if c == end:
            steps = np.geomspace(1, 60 * column._pieces.scale[int(side > 0)] + 1, 10**4)
            edges += (at + side * steps.astype(np.int64)).tolist()
    edges = np.unique(np.array(edges, np.float64))
    first, last = edges[:-1], edges[1:] - 1
    return first, last, column._pieces.log_p(np.floor((first + last) / 2))


@pytest.mark.parametrize("name", NUMBERS)
def test_the_mass_of_numbers_sums_to_one_in_every_cell(name):
    column = column_of(name)[0].columns[0]
    for c in range(column.n):
        first, last, log_p = pieces(column, c)
        assert np.sum((last - first + 1) * np.exp(log_p)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_drawn_by_their_density(name):
    column = column_of(name)[0].columns[0]
    for c in {0, column.n // 2, column.n - 1, column._pieces.owner[np.argmax(column.counts)]}:
        first, last, log_p = pieces(column, c)
        p = (last - first + 1) * np.exp(log_p)
        drawn = column._pieces.draw(np.full(4000, c), draws(4000, c))
        assert np.isfinite(column._pieces.log_p(drawn)).all()
        found = np.searchsorted(first, drawn, side="right") - 1
        assert (drawn <= last[found]).all()
        if np.sum(4000 * p > 5) > 1:
            assert chi_square(found, p) > P_VALUE


@pytest.mark.parametrize("name", [n for n in COLUMNS if not column_of(n)[0].columns[0].exact and n[:2] != "id"])
def test_every_number_has_a_density(name):
    column = column_of(name)[0].columns[0]
    if column.kind in ("date", "amount"):
        words = np.array(column.draw(np.arange(column.n), draws(column.n)), object)
    else:
        words = np.array(["0", "-3.7", "12345678901", "1e-9", "-2e250", "3e18", "40.5", "1e-999"], object)
    values = column.find(words)
    assert (values >= 0).all()
    assert np.isfinite(column.log_density(words, values)).all()
    assert column.find(np.array(["pink", "nan", "inf", "1_0"], object)).tolist() == [-1] * 4


@pytest.mark.parametrize("size", [1e-290, 1e-300, 1e-306, 1e-320])
def test_numbers_near_the_smallest_float_are_numbers(size):
    words = np.array([repr(float(v) * size) for v in np.random.RandomState(0).random_sample(100)], object)
    column = fit_number("x", "", words, False, 8)
    assert column.is_sound()
    assert np.isfinite(column.log_density(words, column.find(words))).all()
    assert all(abs(float(w)) < 3 * size + 1e-308 for w in column.draw(column.find(words), draws(len(words))))


def code(column, values, place):
    """(places written and read again, length in nats)"""
    ans, writing = Ans(), Writing()
    column.code(writing, values, place)
    beside, bits = writing.finish(ans)
    back = column.code(Reading(Ans.from_bytes(ans.to_bytes()), beside), values)
    return back, bits * np.log(2)


@pytest.mark.parametrize("name", NUMBERS)
def test_places_come_back_at_the_length_that_the_density_says(name):
    """In whole numbers, so that it is the same on every machine, and all but the same as in floats."""
    column = column_of(name)[0].columns[0]
    drawn = column._pieces.draw(RNG.randint(0, column.n, 4000), draws(4000))
    drawn = drawn[np.abs(drawn) < FARTHEST]
    values = column._pieces.owner[column._pieces.find(drawn)]
    back, nats = code(column, values, drawn.astype(np.int64))
    np.testing.assert_array_equal(back, drawn)
    # Beyond the range, half-lives are counted instead of steps: a nat or so for each of these.
    beyond = np.sum((drawn < column.starts[0]) | (drawn > column.ends[-1]))
    assert nats == pytest.approx(-column._pieces.log_p(drawn).sum(), rel=1e-4, abs=3 * beyond + 0.5)


@pytest.mark.parametrize("name", NUMBERS)
def test_any_place_of_a_cell_can_be_coded(name):
    """Far beyond the range, in gaps, at the edges of all pieces."""
    column = column_of(name)[0].columns[0]
    edges = np.array([*column.starts, *column.ends, *(i for i, _ in column.common), 0])
    i = np.unique(np.concatenate([*(edges + d for d in (-1, 0, 1)), [-FARTHEST, FARTHEST, -(10**9), 12345678901]]))
    values = column._pieces.owner[column._pieces.find(i.astype(float))]
    np.testing.assert_array_equal(code(column, values, i)[0], i)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_written_with_the_digits_of_the_table(name):
    """All digits of a float, and exponents, are beyond what a column keeps."""
    schema, cells = column_of(name)
    column, words = schema.columns[0], given(cells[:, 0])
    texts = column.texts(column.places_of(words, column.find(words)))
    if not any(w in name for w in ("all digits", "exponents", "large")):
        assert texts == [w.replace("-0.00", "0.00") if not float(w) else w for w in words]
    else:
        np.testing.assert_allclose([float(t) for t in texts], [float(w) for w in words], atol=column.length)


SPELLED = [name for name in COLUMNS if isinstance(column_of(name)[0].columns[0], AbstractSpelled)]


@pytest.mark.parametrize("name", SPELLED)
def test_numbers_in_another_writing_come_back_as_written(name):
    """The places of texts give these texts again: so compressed files need no texts of their own."""
    schema, cells = column_of(name)
    column, words = schema.columns[0], given(cells[:, 0])
    values = column.find(words)
    texts = column.written(values, column.places_of(words, values))
    same = np.array(texts, object) == [w[1:] if re.fullmatch("-[0,.]+%?", w) else w for w in words]
    assert same.all() if "two time zones" not in name else 0.6 < same.mean() < 0.7
    numbers = [[float(v) for v in column.numbers(np.array(w, object))] for w in (texts, words)]
    assert numbers[0] == numbers[1]


# (texts of a column, another column, what the first is said to be, the number that 1,234 or 1.234 is, in the reason)
COMMAS = [f"{i},{i:03}" for i in range(1, 300)]
POINTS = [f"{i}.{i:03}" for i in range(1, 300)]
SIGNS = {
    "nothing else": (
        COMMAS,
        ["a", "b"],
        "auto",
        1001,
        "commas between thousands, or else it is a column decimal-comma",
    ),
    "said to be decimal": (COMMAS, ["a", "b"], "decimal-comma", 1.001, "as asked"),
    "beside decimal commas": (
        COMMAS,
        ["3,5", "12,25"],
        "auto",
        1.001,
        "decimal commas, as the decimal comma of column",
    ),
    "said to be thousands": (COMMAS, ["3,5", "12,25"], "decimal-point", 1001, "as asked"),
    "beside decimal points": (COMMAS, ["3.5", "12.25"], "auto", 1001, "thousands, as the decimal point of column 'b'"),
    "beside both": ([*COMMAS, "1,5"], ["3.5", "12.25"], "auto", 1.001, "amounts"),
    "points": (POINTS, ["a", "b"], "auto", 1.001, "different numbers"),
    "points beside decimal commas": (
        POINTS,
        ["3,5", "12,25"],
        "auto",
        1001,
        "points between thousands, as the decimal",
    ),
    "points said to be thousands": (POINTS, ["a", "b"], "decimal-comma", 1001, "as asked"),
    "whole numbers beside decimal commas": (
        ["1001", *map(str, range(300))],
        ["3,5"],
        "auto",
        1001,
        "different numbers",
    ),
}


@pytest.mark.parametrize("name", SIGNS)
def test_a_comma_is_what_the_table_or_the_user_says(name):
    """1,234 could be either: other columns decide, the reason says how it was read, the user has the last word."""
    words, other, kind, number, why = SIGNS[name]
    cells = np.array([[w, other[i % len(other)]] for i, w in enumerate(words)], object)
    column = infer(["a", "b"], cells, None, "it", kinds={"a": kind}).columns[0]
    found = column.numbers(np.array(words, object)) if isinstance(column, AbstractSpelled) else words
    assert float(found[0]) == number
    assert why in column.why
    assert column.draw(column.find(np.array(words[:50], object)), draws(50))  # in the same writing
    wrong = "decimal-point" if "1,5" in words else "decimal-comma" if "3.5" in other else ""
    if wrong:
        with pytest.raises(DarnError, match=r"where (points|commas) are to be decimal"):
            infer(["a", "b"], cells, None, "it", kinds={"a" if wrong == "decimal-point" else "b": wrong})


def test_dates_of_several_zones_are_moments():
    """11:00 in Berlin and 10:00 in London are one moment; samples are written in the usual zone."""
    words = np.array(["2014-01-01T11:00+01:00"] * 30 + [f"2014-01-{d:02}T10:00Z" for d in range(1, 29)], object)
    schema = infer(["when"], words[:, None], None, "it")
    (column,) = schema.columns
    assert column.numbers(words[[0, 30]]).tolist() == ["1388570400", "1388570400"]
    assert "1 of them in other time zones" in schema.statement()[0]
    drawn = column.draw(RNG.randint(0, column.n, 100), draws(100))
    assert all(w.endswith("Z") for w in drawn)
    later = parts_of(schema, parse_tests(schema, "when>=2014-01-20"))[0]  # a day, from its beginning on
    assert later.allows(np.array(["2014-01-19T10:00Z", "2014-01-20T10:00Z"], object)).tolist() == [False, True]


ALMOST = {
    "12 kg": ([f"{i}.5" for i in range(40)], "numbers"),
    "1kg": ([f"{i}" for i in range(40)], "numbers"),
    "2014-02-30": (days(range(40)), "dates as %Y-%m-%d"),
    "n.a. 2": ([f"{i}%" for i in range(40)], "amounts like"),
}


@pytest.mark.parametrize("odd", ALMOST)
def test_the_cell_that_makes_a_column_of_numbers_texts_is_named(odd):
    words, what = ALMOST[odd]
    words = [*words[:17], odd, *words[17:]]
    cells = np.array([[w, "ab"[i % 2]] for i, w in enumerate(words)], object)
    said = infer(["v", "k"], cells, None, "it").statement()[0]
    assert f"all but {odd!r} in row 18 are {what}" in said
    kind = "date" if "date" in what else "number"
    with pytest.raises(DarnError, match=re.escape(f"{odd!r} in row 18")):
        infer(["v", "k"], cells, None, "it", kinds={"v": kind})


def test_dates_in_several_formats_are_named():
    words = [f"{v:%Y-%m-%d}" if i % 2 else f"{v:%d/%m/%Y}" for i, v in enumerate(LATER[:60])]
    cells = np.array([[w, "ab"[i % 2]] for i, w in enumerate(words)], object)
    column = infer(["v", "k"], cells, None, "it").columns[0]
    assert column.kind == "id"
    assert re.search(r"dates are in several formats, like '\d{4}-\d\d-\d\d' and '\d\d/\d\d/\d{4}'", column.why)


def test_words_among_numbers_stand_for_missing_values():
    """They are named, and are no holes; samples are written as most missing values are."""
    words = [*(f"{i}.5" for i in range(40)), "-", "#N/A", "-", "n/a"]
    cells = np.array([[w, "ab"[i % 2]] for i, w in enumerate(words)], object)
    schema = infer(["v", "k"], cells, None, "it")
    assert "'#N/A' in row 42, '-' in row 41 stand for a missing value" in schema.statement()[0]
    assert schema == replace(infer(["v", "k"], cells, None, "it", kinds={"v": "number"}), columns=schema.columns)
    rows = schema.encode(["v", "k"], cells, "it", holes=True)
    assert rows.unknown.any(axis=1).tolist() == [False] * 43 + [True]
    assert schema.decode(rows.bits)[41][0] == "-"
    for large in ("1e300", "-1e308"):  # beyond all numbers that can be modelled
        found = infer(["v", "k"], np.array([[large, "a"], *cells[:40].tolist()], object), None, "it").columns[0]
        assert (found.kind, found.missing) == ("number", (large,))
    codes = [["A7", "a"], *([f"{i}", "b"] for i in range(40))]  # a text with a digit may mean more than nothing
    assert "all but 'A7'" in infer(["v", "k"], np.array(codes, object), None, "it").statement()[0]


def test_the_nearest_of_long_texts_is_found_at_once():
    values = [f"word {i}" for i in range(2000)] + ["a" * 10**6, "B" * 10**6]
    column = Category("v", "", False, False, tuple(values), "category")
    assert column.nearest("a" * 10**6 + "!") == "a" * 10**6
    assert column.nearest("b" * 10**6) == "B" * 10**6
    assert column.nearest("wurd 17") == "word 17"


HOSTILE = {
    "1e-999999999": [f"{i}e-999999999" for i in range(40)],
    "0e9999999999999999999": [f"{i}" for i in range(40)],
    "1e-9999999999999999999": [f"{i}" for i in range(40)],
    "$" + "9" * 400: ["$" + "9" * (360 + i) for i in range(40)],
    "$" + "9" * 5000: [f"${i}" for i in range(40)],
    "(" + "9" * 5000 + ")": [f"{i}" for i in range(40)],
    "+" + "9" * 400: [f"+{i}" for i in range(40)],
    "\0": ["a\0b", "\0\0"] * 20,
    "0." + "0" * 5000 + "1": ["0." + "0" * 5000 + f"{i}" for i in range(40)],
}


@pytest.mark.parametrize("odd", HOSTILE, ids=lambda word: repr(word[:30]))
def test_odd_cells_become_no_large_ones(odd):
    """Exponents and digits without end are read quickly, or refused, and what is drawn is short."""
    cells = np.array([[w, "ab"[i % 2]] for i, w in enumerate([odd, *HOSTILE[odd]])], object)
    for kind in ("auto", "number", "ordered"):
        try:
            schema = infer(["v", "k"], cells, None, "it", kinds={"v": kind})
        except DarnError:
            assert kind == "number"
            continue
        assert len(schema.statement()[0]) < 3000
        assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
        rows = schema.encode(["v", "k"], cells, "it")
        assert np.isfinite(rows.log_density).all()
        if kind == "auto":
            assert max(len(text) for row in schema.decode(rows.bits) for text in row) < 1000


def test_the_density_of_few_numbers_is_smooth():
    """Held-out rows of 150 have nearly the density that they were drawn from, wherever they lie."""
    rng = np.random.default_rng(0)
    for most, entropy, draw in (
        (0.1, 0.5 * np.log(2 * np.pi * np.e), lambda n: rng.normal(0, 1, n)),
        (0.1, 1.7735, lambda n: rng.standard_t(3, n)),
        (0.42, np.log(2), lambda n: rng.random(n) + 1000 * (rng.random(n) < 0.5)),  # two heaps, far from each other
    ):
        lost = []
        for _ in range(5):
            words, new = (np.array([f"{v:.4f}" for v in draw(n)], object) for n in (150, 1000))
            column = fit_number("x", "", words, False, 8, fine=50)
            values, share = column.find(new), np.array(column.counts) / sum(column.counts)
            lost.append(-entropy - np.mean(np.log(share[values]) + column.log_density(new, values)))
        assert np.mean(lost) < most


def test_all_columns_that_are_not_what_they_are_said_to_be_are_named():
    cells = np.array([[f"w{i}", f"x{i}", "ab"[i % 2]] for i in range(40)], object)
    with pytest.raises(DarnError, match="column 'a' has 'w0' in row 1.*column 'b' is not of dates.*row 1"):
        infer(["a", "b", "c"], cells, None, "it", kinds={"a": "number", "b": "date"})


def test_frequent_numbers_keep_their_frequencies():
    for name, at in (("whole number, mostly 0", "0"), ("whole number, heaps", "40")):
        schema, cells = column_of(name)
        share = np.mean(cells[:, 0] == at)
        bits = schema.encode(["c=1, d", "beside"], cells, "it").bits
        drawn = np.array(schema.decode(np.tile(bits, (5, 1)), 3), object)[:, 0]
        assert np.mean(drawn == at) == pytest.approx(share, abs=0.002)


def test_samples_cross_zero_only_where_the_training_rows_do():
    for name, sign in (("whole number", 1), ("whole number, mostly 0", 1), ("whole number, negative", -1)):
        column = column_of(name)[0].columns[0]
        drawn = column._pieces.draw(RNG.randint(0, column.n, 10**5), draws(10**5))
        assert (sign * drawn >= 0).all()


def test_times_stay_within_the_day():
    column = column_of("date, time of day")[0].columns[0]
    ends = np.array(column.draw(np.repeat([0, column.n - 1], 5000), draws(10_000)), object)
    np.testing.assert_array_equal(column.find(ends), np.repeat([0, column.n - 1], 5000))


def test_the_density_does_not_depend_on_the_cells():
    """Of normal numbers, log p of the histogram of cells and the densities within them is near the entropy."""
    x = np.random.RandomState(1).normal(0, 1, 20_000)
    words = np.array([[f"{v:.3f}"] for v in x], object)
    found = []
    for cells in (2, 8, 32):
        column = fit_number("x", "", words[:10_000, 0], False, cells)
        test = words[10_000:, 0]
        values = column.find(test)
        share = np.bincount(column._pieces.owner, column.counts) / sum(column.counts)
        found.append(float(np.mean(np.log(share[values]) + column.log_density(test, values))))
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(found, -entropy, atol=0.03)


def test_wide_tables_have_bounded_units():
    rng = np.random.RandomState(2)
    cells = np.array([[f"v{v}" for v in rng.randint(0, 60, 150)] for _ in range(800)], object)
    schema = infer([f"c{i}" for i in range(150)], cells, None, "it")
    assert sum(schema.sizes) == 150 * 6
    assert np.all(schema.encode(schema.names, cells, "it").bits.sum(axis=1) <= 900)


def test_unseen_texts_of_all_parts_are_named_together(tmp_path, monkeypatch):
    """However the file is cut into parts, and with a list that does not grow with the file."""
    monkeypatch.setattr(_text_table, "PART", 2000)
    names, words = ["k", "v", "w"], np.array([["x", "a", "c"], ["y", "b", "d"]] * 10, object)
    schema, path = infer(names, words, None, "it"), tmp_path / "t.csv"
    rows = [["x", "a", "c"]] * 3000
    rows[5], rows[1500], rows[2999] = ["early", "a", "c"], ["x", "middle", "c"], ["late", "a", ""]
    path.write_text("k,v,w\n" + "\n".join(map(",".join, rows)) + "\n")
    said = "'early', 'late' in column 'k'; 'middle' in column 'v'; a missing value in column 'w'"
    with pytest.raises(DarnError, match=said):
        open_rows(path, columns=Columns(schema=schema))
    path.write_text("k,v,w\n" + "".join(f"{'long' * 99}{i},a,c\n" for i in range(3000)))
    with pytest.raises(DarnError, match="at least 995 more") as e:
        open_rows(path, columns=Columns(schema=schema))
    assert len(str(e.value)) < 600


def test_unseen_texts():
    schema, _ = column_of("category, holes")
    names = ["c=1, d", "beside"]
    strange = np.array([["pink", "z"], ["Gren", "a"], ["", "a"], ["grey", "b"]], object)
    with pytest.raises(DarnError, match=r"'pink', 'Gren', 'grey' in column 'c=1, d'; 'z' in column 'beside'"):
        schema.encode(names, strange, "it")
    near = schema.decode(schema.encode(names, strange, "it", unseen="nearest").bits)
    assert [r[0] for r in near[1:]] == ["green", "?", "green"]
    assert near[0][0] in ("red", "green", "blue")
    with pytest.raises(DarnError, match="'z' in column 'beside'"):  # which has no missing values
        schema.encode(names, strange, "it", unseen="missing")
    gone = schema.encode(names, strange, "it", unseen="missing", holes=True)
    np.testing.assert_array_equal(gone.unknown[:, :3], np.ones((4, 3), bool))
    np.testing.assert_array_equal(gone.unknown[:, -1], [True, False, False, False])
    ordered, _ = column_of("ordered category")
    assert ordered.columns[0].nearest("7.4") == "7"
    for word, near in (("1e300", -1), ("-inf", 0)):  # beyond all numbers that can be modelled
        number, _ = column_of("whole number")
        bits = number.encode(names, np.array([[word, "a"]], object), "it", unseen="nearest").bits
        assert number.columns[0].from_bits(bits[:, : number.sizes[0]])[0] == range(number.columns[0].n)[near]
    percent, _ = column_of("amount, percent")
    assert [percent.columns[0].nearest(w) for w in ("7.26", "x")] == ["7.3%", None]
    assert percent.columns[0].nearest("-inf") == percent.columns[0].ends()[0]
    with pytest.raises(DarnError, match="nothing is near"):
        percent.encode(names, np.array([["x", "a"]], object), "it", unseen="nearest")
    with pytest.raises(DarnError, match="no training row had a missing value"):
        percent.encode(names, np.array([["x", "a"]], object), "it", unseen="missing")
    with pytest.raises(DarnError, match=r"no column 'c=1, d', 'beside', .* add them"):
        percent.encode(["other"], np.array([["x"]], object), "it")
    with pytest.raises(DarnError, match="'x' in column"):
        column_of("whole number")[0].encode(names, np.array([["x", "a"]], object), "it", unseen="nearest")


def test_refusals():
    names, cells = ["c", "d"], np.array([[f"w{i % 30}", f"{i}.5"] for i in range(100)], object)
    for kinds, said in (
        ({"c": "number"}, "'w0' in row 1, 'w1' in row 2, .* where numbers are expected"),
        ({"c": "boolean"}, "30 different values"),
        ({"c": "date"}, "not of dates"),
        ({"c": "colour"}, "choose one of auto, category"),
        ({"e": "number"}, "no column named 'e'"),
        ({"xx": "number", "dd": "date"}, r"'xx', 'dd' .did you mean 'd'"),
    ):
        with pytest.raises(DarnError, match=said):
            infer(names, cells, None, "it", kinds=kinds)
    with pytest.raises(DarnError, match="nothing is left to model"):
        infer(["c"], cells[:, :1], None, "it", kinds={"c": "id"})
