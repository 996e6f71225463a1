"""Laws of questions to a table: equal to enumeration where exact, honest where estimated, clear where impossible."""

import dataclasses
import itertools
import json
from functools import lru_cache

import jax
import numpy as np
import pandas as pd
import pytest
from helpers import P_VALUE, chi_square, joint, randomised, states

from darn import DarnError, TableDARN
from darn.batching import row_keys
from darn.cli import main
from darn.config import Architecture
from darn.data import Layout, Schema, Table, infer, parse_question, parse_tests, parts_of
from darn.data._draws import RowDraws
from darn.data._fit_number import fit_number
from darn.data._part import Test
from darn.inference import conditional as conditional_of
from darn.inference import constrained
from darn.inference.conditional import Conditional
from darn.model_file import save_model
from darn.runs import questions
from darn.runs.cells import probabilities
from darn.runs.holes import Holes
from darn.runs.questions import variables_of
from darn.zoo import build

# ---------------------------------------------------------------- small tables, whose states can all be listed


@lru_cache
def small_schema():
    """A one-hot column, a bit, a number in cells that may be missing, and a word of bits."""
    rng = np.random.RandomState(0)
    heights = np.array([str(v) for v in (*rng.poisson(9, 60), *[4] * 20)], object)
    words = [["a", "b", "c"][i % 3] for i in range(60)]
    cells = np.array([[w, str(i % 2)] for i, w in enumerate(words)], object)
    plain = infer(["kind", "flag"], cells, None, "it").columns
    number = dataclasses.replace(fit_number("height", "", heights, True, 3), one_hot=True)
    word = dataclasses.replace(plain[0], name="word", one_hot=False, values=("v", "w", "x", "y", "z"))
    return Schema((plain[0], plain[1], number, word))


MODELS = {
    "factorial": ((), "factorial"),
    "1 factorial": ((3,), "factorial"),
    "linear": ((), "linear"),
    "2 linear": ((2, 1), "linear"),
    "1 nade": ((2,), "nade"),
    "mixture": ((), "mixture"),
}


@lru_cache
def small(name):
    """(model, p of every state of bits)."""
    n_h, visible = MODELS[name]
    schema = small_schema()
    arch = Architecture(n_h=n_h, n_d=(3,), visible=visible, n_nade=(4,), n_components=3)
    model = build(arch, len(schema.units), groups=schema.groups, key=jax.random.key(0))
    model = randomised(model, 3, scale=0.9)
    return model, np.exp(joint(model, None)[0]).sum(axis=1)


GIVEN = {
    "last": "word in {w, z}",
    "first and last": "kind!=b, height>=9",
    "cut": "height in 3..8, flag=1",
    "missing": "height is missing, kind in {a, c}",
}


def allowed(parts):
    """(states,) the probability that the texts of each state meet the conditions, by looking at every column."""
    schema, x = small_schema(), states(len(small_schema().units)).astype(np.uint8)
    found, start = np.ones(len(x)), 0
    for i, c in enumerate(schema.columns):
        if i in parts:
            value = c.from_bits(
                x[:, start : start + c.size]
            )  # of a state that spells none, whose probability is 0, too
            found = found * parts[i].weights[np.minimum(value, c.n)]
        start += c.size
    return found


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_and_samples_equal_enumeration(name):
    model, p = small(name)
    schema = small_schema()
    for text in GIVEN.values():
        parts = parts_of(schema, parse_tests(schema, text))
        truth = float(p @ allowed(parts))
        exact = Conditional(model, variables_of(schema, parts)[0])
        assert exact.method == "exact"
        assert exact.log_p == pytest.approx(np.log(truth), abs=2e-4)
        rough = Conditional(model, variables_of(schema, parts)[0], exact=False)
        drawn = rough.draw(3000, seed=4)
        assert drawn.log_p == pytest.approx(np.log(truth), abs=4 * drawn.relative_variance**0.5 + 1e-3)
        assert drawn.log_w.max() < 1e-4
    posterior = p * allowed(parts) / truth
    for found in (exact.sample(2000, seed=1), rough.sample(2000, seed=1, draws=8000)):
        cell = found.x.astype(int) @ (1 << np.arange(found.x.shape[1] - 1, -1, -1))
        assert chi_square(cell, posterior) > P_VALUE


def test_values_of_many_paths_are_drawn_bit_by_bit(monkeypatch):
    monkeypatch.setattr(constrained, "MOST_PATHS", 0)
    model, p = small("linear")
    schema = small_schema()
    parts = parts_of(schema, parse_tests(schema, "kind!=b, height in 3..9, word in {w, z, x}"))
    weights = p * allowed(parts)
    rough = Conditional(model, variables_of(schema, parts)[0], exact=False)
    drawn = rough.draw(4000, seed=4)
    assert drawn.log_p == pytest.approx(np.log(weights.sum()), abs=4 * drawn.relative_variance**0.5)
    assert drawn.ess > 400  # weights that are far from even would have fewer
    x = rough.sample(2000, seed=1, draws=10_000).x.astype(int)
    assert chi_square(x @ (1 << np.arange(x.shape[1] - 1, -1, -1)), weights / weights.sum()) > P_VALUE


def test_estimates_are_honest(monkeypatch):
    """95% intervals hold the truth about as often as they say, and the effective sample size is that of the error."""
    model, p = small("2 linear")
    schema = small_schema()
    given, event = parse_tests(schema, "height>=9"), parse_tests(schema, "kind=a, word in {w, z}")
    base = allowed(parts_of(schema, given))
    both = allowed(parts_of(schema, questions.both(given, event)))
    truth = float(p @ both / (p @ base))
    exact = questions.ask(model, schema, "P(kind=a, word in {w, z} | height>=9)")
    assert exact.method == "exact"
    assert exact.result.value == pytest.approx(truth, rel=1e-4)
    means = schema.columns[2].part(given["height"]).means()
    x = states(len(schema.units)).astype(np.uint8)
    value = schema.columns[2].from_bits(x[:, 4 : 4 + schema.columns[2].size])
    mean = float((p * base) @ np.nan_to_num(np.append(means, 0))[value] / (p @ base))
    assert questions.ask(model, schema, "E(height | height>=9)").result.value == pytest.approx(mean, rel=1e-4)
    monkeypatch.setattr(conditional_of.likelihood, "method_for", lambda model: "importance")
    held, errors, spread = [], [], []
    for rare in (False, True):
        monkeypatch.setattr(questions, "RARE", float(rare))
        for seed in range(25):
            answer = questions.ask(model, schema, "P(kind=a, word in {w, z} | height>=9)", draws=1000, seed=10 * seed)
            assert answer.method == "importance"
            held.append(answer.result.low <= truth <= answer.result.high)
            errors.append(answer.given.value / float(p @ base) - 1)
            spread.append(1 / answer.ess)
    assert np.mean(held) > 0.86
    assert 0.6 < np.std(errors) / np.sqrt(max(np.mean(spread) - 1 / 1000, 1e-9)) < 1.6


def test_codes_and_rows_have_keys_of_their_own(monkeypatch):
    """The keys of the codes that are drawn are none of those that the rows derive from theirs."""
    seen = {}

    def noting(name, at, real):
        monkeypatch.setattr(conditional_of, name, lambda *args: seen.update({name: args[at]}) or real(*args))

    noting("_codes", 1, conditional_of._codes)
    noting("_rows", 5, conditional_of._rows)
    model, _ = small("2 linear")
    Conditional(model, variables_of(small_schema(), {})[0], exact=False).draw(20, seed=3)
    numbers = np.arange(20, dtype=np.uint32)
    codes, rows = (row_keys(seen[name], numbers) for name in ("_codes", "_rows"))
    derived = jax.vmap(lambda key: jax.random.split(key, 20))(rows).reshape(-1)
    words = lambda keys: set(map(tuple, np.asarray(jax.random.key_data(keys)).tolist()))  # noqa: E731
    assert not words(codes) & (words(rows) | words(derived))


def test_distributions_sum_to_one_and_follow_the_conditions():
    model, _ = small("1 factorial")
    schema = small_schema()
    answer = questions.ask(model, schema, "P(kind | flag=1)")
    assert sum(e.value for e in answer.values.values()) == pytest.approx(1)
    for name, e in answer.values.items():
        one = questions.ask(model, schema, f"P(kind={name})", given={"flag": 1})
        assert one.result.value == pytest.approx(e.value, rel=1e-5)
    numbers = questions.ask(model, schema, "P(height | height in 5..9)")
    least, *_, most = (float(t) for t in numbers.quantiles.values())
    assert 5 <= least <= numbers.result.value <= most <= 9
    assert questions.ask(model, schema, "P(height>9 | height<3)").result.value == 0


# ---------------------------------------------------------------- numbers within their cells

NUMBERS = {
    "whole, with a peak": np.array([str(v) for v in np.random.RandomState(1).poisson(30, 600)] + ["40"] * 200, object),
    "in hundredths": np.array([f"{v:.2f}" for v in np.random.RandomState(2).lognormal(1, 1, 900)], object),
    "with gaps": np.array([str(v) for v in np.random.RandomState(3).choice([-900, -5, 0, 7, 8, 5000], 500)], object),
}
TESTS = [
    [Test(">=", ("12",))],
    [Test("<", ("31.5",)), Test("!=", ("8",))],
    [Test("..", ("2", "45"))],
    [Test("in", ("0", "7", "40"))],
    [Test(">", ("60",))],
    [Test("<", ("1e390",)), Test("!=", ("-1e390",))],  # beyond every float
    [Test(">=", ("-1e390",))],
    [Test(">", ("1e390",))],
]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_part_of_a_cell_is_that_part_of_its_density(name):
    """Probability, mean and draws of the allowed numbers of each cell, against the density of every single number."""
    column = fit_number("x", "", NUMBERS[name], False, 6)
    lo, hi = (column.starts[0] - 20_000), (column.ends[-1] + 20_000)  # hardly a number is farther out
    i = np.arange(lo, hi + 1, dtype=np.float64)
    p = np.exp(column._pieces.log_p(i))
    owner = column._pieces.owner[column._pieces.find(i)]
    number = (column.offset + column.step * i) / 10.0**column.decimals
    for tests in TESTS:
        passes = np.ones(len(i), bool)
        for t in tests:
            words = [float(w) for w in t.words]
            checks = {">=": number >= words[0], "<": number < words[0], ">": number > words[0]}
            checks |= {"!=": number != words[0], "in": np.isin(number, words)}
            checks |= {"..": (number >= words[0]) & (number <= words[-1])}
            passes &= checks[t.op]
        part = column.part(tests)
        mass = np.bincount(owner, p * passes, minlength=column.n)
        np.testing.assert_allclose(part.weights[:-1], mass, atol=1e-5)
        cells = np.flatnonzero(mass > 1e-9)
        means = np.bincount(owner, p * passes * number, minlength=column.n)[cells] / mass[cells]
        np.testing.assert_allclose(part.means()[cells], means, rtol=1e-3, atol=1e-3)
        if not len(cells):
            continue
        cell = int(cells[np.argmax(mass[cells])])
        drawn = part.steps(np.full(3000, cell), RowDraws(0, 0, np.arange(3000)))
        mine = p * passes * (owner == cell)
        assert (mine[(drawn - lo).astype(int)] > 0).all()
        if mine.max() < 0.99 * mine.sum():
            assert chi_square((drawn - lo).astype(int), mine / mine.sum()) > P_VALUE


# ---------------------------------------------------------------- how conditions are written


def odd_schema():
    names = ["sex", "w, kg", 'say "hi"', "a<b=c", "made in", "size", "x|y", "id"]
    rows = [
        [s, f"{i / 8:.2f}", q, o, m, z, "01"[i % 2], f"key {i}"]
        for i, (s, q, o, m, z) in enumerate(
            itertools.islice(
                itertools.product(["F", "M"], ["a, b", '"'], ["=", "<=5"], ["in {x}", "y"], ["low", "medium", "high"]),
                48,
            )
        )
    ]
    return infer(names, np.array(rows, object), None, "it")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sex=F", {"sex": [("=", ("F",))]}),
        ("w, kg>=2.5, w, kg<3 , sex = F", {"w, kg": [(">=", ("2.5",)), ("<", ("3",))], "sex": [("=", ("F",))]}),
        ('say "hi"="a, b"', {'say "hi"': [("=", ("a, b",))]}),
        ('\'say "hi"\' in {\'"\', "a, b"}', {'say "hi"': [("in", ('"', "a, b"))]}),
        ("a<b=c=<=5", {"a<b=c": [("=", ("<=5",))]}),
        ('"a<b=c"!="="', {"a<b=c": [("!=", ("=",))]}),
        ('made in="in {x}", size>=medium', {"made in": [("=", ("in {x}",))], "size": [(">=", ("medium",))]}),
        ("made in not in {y}", {"made in": [("not in", ("y",))]}),
        ("w, kg in 1..2.5,x|y=1", {"w, kg": [("..", ("1", "2.5"))], "x|y": [("=", ("1",))]}),
        ("size is missing, sex is given", {"size": [("is missing", ())], "sex": [("is given", ())]}),
    ],
)
def test_conditions_are_read(text, expected):
    schema = odd_schema()
    found = parse_tests(schema, text)
    assert {k: [tuple(t) for t in v] for k, v in found.items()} == expected
    asked = parse_question(schema, f"P(x|y=1 | {text})")
    assert asked.given == found
    assert asked.event == {"x|y": (Test("=", ("1",)),)}


def test_mappings_say_the_same_as_texts():
    schema = odd_schema()
    found = parse_tests(schema, {"sex": "F", "w, kg": (2.5, None), "made in": ["y"], "size": None})
    assert found == parse_tests(schema, "sex=F, w, kg>=2.5, made in in {y}, size is missing")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("P(sxe=F | size>=huge, w, kg<x, id=3, sex>M, when=3)", "'sxe' (did you mean 'sex'?)|huge|'x' is not a number|"
         "set aside|no order|no column 'when'"),
        ("P(sex=F | w, kg>3, w, kg<2)", "impossible: no value is left in column 'w, kg' (> 3 and < 2)"),
        ("P(sex=F | size is missing)", "impossible"),
        ("P(sex=F | w, kg=1.001)", "impossible"),
        ("E(sex)", "no mean: ask P(sex)"),
        ("E(sex=F)", "takes the name of a column"),
        ("sex=F", "is not a question"),
        ("P(sex | )", "name of a column is missing"),
        ("P(sex | size)", "no operator after 'size'"),
        ("P(sex | size=1,234 kg)", "no operator after '234 kg' (a value that has a comma needs double quotes)"),
        ("P(sex | size=)", "a value is missing"),
        ("P(sex | size in {low)", "not closed"),
        ('P(sex="F)', "not closed"),
        ("P(sex | size in low)", "a set {a, b} or a range"),
        ("P(sex | size=low or size=high)", "there is no 'or'|size in {a, b}"),
        ("P(sex=F and size=low)", "joined by a comma, not by 'and'"),
    ],
)  # fmt: skip
def test_refusals_are_one_sentence_that_names_everything(question, said):
    schema = odd_schema()
    model = build(Architecture(n_h=()), len(schema.units), groups=schema.groups, key=jax.random.key(0))
    with pytest.raises(DarnError) as e:
        questions.ask(model, schema, question)
    for piece in said.split("|"):
        assert piece in str(e.value)
    assert "\n" not in str(e.value)


# ---------------------------------------------------------------- the command line and the estimator


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    kind = rng.choice(["cat", "dog"], 120)
    weight = np.where(kind == "cat", 4.0, 11.0) + rng.normal(0, 1, 120).round(1)
    return pd.DataFrame({"kind": kind, "weight": weight.round(1), "legs": rng.integers(2, 5, 120)})


@pytest.fixture(scope="module")
def fitted(frame):
    return TableDARN({"weight": "number"}, epochs=2, random_state=0).fit(frame)


def test_every_sampled_row_meets_the_conditions(fitted, tmp_path, capsys):
    text = "weight in 4.4..10.9, kind=cat, legs!=3"
    new, info = fitted.sample(200, random_state=1, given=text, return_info=True)
    assert len(new) == len(info.x) == 200
    assert (new.kind == "cat").all()
    assert new.weight.between(4.4, 10.9).all()
    assert set(new.legs) <= {2, 4}
    assert info.given == pytest.approx(fitted.query(f"P({text})", random_state=0).result.value, rel=0.1)
    path = str(tmp_path / "m.safetensors")
    fitted.save(path)
    out = tmp_path / "rows.csv"
    capsys.readouterr()
    assert main(["sample", path, "-n", "50", "--given", text, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = pd.read_csv(out)
    assert rows.weight.between(4.4, 10.9).all()
    assert (rows.kind == "cat").all()
    assert told["given"]["method"] == info.method
    assert main(["query", path, "P(kind=cat | legs=2)", "E(weight)", "P(kind)", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [a["kind"] for a in answers] == ["probability", "mean", "distribution"]
    assert answers[0]["result"]["low"] <= answers[0]["result"]["value"] <= answers[0]["result"]["high"]
    assert main(["query", path, "P(kind | legs=2)"]) == 0
    said = capsys.readouterr().out
    assert "cat" in said
    assert "the conditions have probability 0." in said
    assert main(["query", path, "P(legs>=2)", "P(kind)"]) == 0
    assert "conditions" not in capsys.readouterr().out
    assert main(["query", path, "P(kindd=cat)"]) == 2
    assert "no column 'kindd' (did you mean 'kind'?)" in capsys.readouterr().err


def test_plain_rows_with_names_take_conditions(tmp_path, capsys):
    model = build(Architecture(n_h=(), visible="eonade", n_nade=(3,), n_orderings=2), 4, key=jax.random.key(1))
    model = randomised(model, 5)
    path = str(tmp_path / "m.safetensors")
    info = {"recipe": {}, "data": {"name": "", "n": 4, "columns": list("abcd")}}
    save_model(path, model, info)
    capsys.readouterr()
    assert main(["query", path, "P(a=1 | c=0, d=1)", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    p, x = np.exp(joint(model, None)[0]).sum(axis=1), states(4)
    fits = (x[:, 2] == 0) & (x[:, 3] == 1)
    assert told["method"] == "exact"
    assert told["result"]["value"] == pytest.approx(float(p @ (fits & (x[:, 0] == 1)) / (p @ fits)), rel=1e-4)
    assert main(["sample", path, "--given", "c=0", "--out", str(tmp_path / "a.npy")]) == 0
    assert (np.load(tmp_path / "a.npy")[:, 2] == 0).all()


def test_a_missing_cell_of_a_column_of_one_value_has_a_line():
    """It has no unit that could be unknown."""
    rows = np.array([["a", "x", "n1"], ["b", "x", "n2"]] * 20, object)
    schema = infer(["k", "c", "id"], rows, None, "it", kinds={"id": "id"})
    holes = np.array([["a", "", ""], ["", "x", ""], ["b", "x", "n"]], object)
    found = schema.encode(schema.names, holes, "it", holes=True)
    part = Holes(found.bits, found.unknown, None, Table(schema.names, holes, Layout()), holes == "")
    lines = list(probabilities(schema, part, np.repeat(found.bits[:, None], 4, axis=1), 1, {}))
    assert [line[:4] for line in lines] == [["2", "k", "a", "1"], ["1", "c", "x", "1"]]
