"""The report page: its numbers are the library's, it stands alone, and it works in a browser."""

import base64
import contextlib
import html
import io
import itertools
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import chromium
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_model
from test_cli import BITS, csv, darn, facts, ok, refused

from darn.data import read_table
from darn.inference import likelihood
from darn.inference.code import code_use, lengths
from darn.layers import AbstractBinaryLayer, Groups, LinearAutoregressive
from darn.model_file import load_model, save_model
from darn.report import _measure
from darn.report._document import policy
from darn.runs.run import load

# What a stranger may put into a column's name, a class or a recipe. If any of it runs, the probe sees the mark.
RUNS_SCRIPT = "document.documentElement.dataset.forged='yes'"
NASTY = f"<script>{RUNS_SCRIPT}</script><img src=x onerror={RUNS_SCRIPT}>"
ATTRIBUTE = f'\'" onmouseover={RUNS_SCRIPT} autofocus onfocus={RUNS_SCRIPT} x="'
ENDS = f"</script></style></title><!--{NASTY}{{{{ 7 * 7 }}}}&lt;b&gt;"
SCORING = ("--rows", 20, "--samples", 10, "--repeats", 2)

# name: what is trained; images and tables, with classes and without, with no, one and two hidden layers; every other
# model has its report in test_products.py
RUNS = {
    "digits": ("digits", "--sparsity", 0.2),
    "deep": ("digits", "--n_h", "4,3", "--visible", "factorial", "--n_samples", 2, "--weighted"),
    "intensity": ("digits", "--binarize", "intensity", "--visible", "factorial"),
    "table": ("table.csv", "--labels", "kind"),
    "eonade": ("table.csv", "--labels", "kind", "--n_h", "", "--visible", "eonade"),
    "categories": ("pets.csv", "--categorical", "auto"),
    "categories, no code": ("pets.csv", "--categorical", "auto", "--n_h", "", "--visible", "nade"),
    "grid with a code": ("digits", "--visible", "grid", "--local", "3/2/2", "--n_h", "4", "--n_d", ""),
}
NO_CODE = [name for name, words in RUNS.items() if ("--n_h", "") in itertools.pairwise(words)]


class Home:
    """A folder with every run and its report, each made when first asked for."""

    def __init__(self, folder):
        self.folder = folder
        rows = [[*r, "cat & dog" if i % 2 else "<b>dog</b>"] for i, r in enumerate(BITS.tolist())]
        csv(folder / "table.csv", rows, [NASTY, ATTRIBUTE.replace('"', ""), *"cdef", "kind"])
        pets = [[k, s, f"{0.31 * i * i % 7:.2f}"] for k in ("cat", "<i>dog</i>") for s in "SML" for i in range(25)]
        csv(folder / "pets.csv", pets, ["kind", ENDS, "age"])

    def run(self, name):
        """The run's folder, with its report in it."""
        path = self.folder / name
        if not path.exists():
            with contextlib.redirect_stdout(io.StringIO()):
                if name == "forged":
                    forge(shutil.copytree(self.run("deep"), path))
                else:
                    data, *fields = RUNS[name]
                    source = self.folder / data if data.endswith(".csv") else data
                    assert darn("train", source, *fields, "--tiny", "--quiet", "--out", path) == 0
                assert darn("report", path, *SCORING) == 0
        return path

    def page(self, name):
        """The file of a report or a comparison."""
        if name in REPORTS:
            return self.run(name) / "report.html"
        path = self.folder / f"{name}.html"
        if not path.exists():
            runs = [self.run(n) for n in ("digits", "deep", *(["table"] if name == "other" else []))]
            with contextlib.redirect_stdout(io.StringIO()):
                assert darn("compare", *runs, *SCORING, "--out", path) == 0
        return path

    def pages(self):
        return {name: self.page(name) for name in PAGES}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("report"))


def forge(run):
    """Makes every text that a run's files carry hostile."""
    (run / "report.html").unlink()
    path = run / "model.safetensors"
    model, info = load_model(path)
    nasty = lambda name: f"{name}{NASTY}{ATTRIBUTE}{ENDS}"  # noqa: E731
    info["recipe"]["description"] = nasty("description") + "\ud800"  # half a character, which no file can hold
    for key in ("name", "binarize"):
        info["data"][key] = nasty(key)
    info["made"] = {k: nasty(k) for k in ("command", "commit", "device")} | {"versions": {nasty("jax"): nasty("1")}}
    info["data"] |= {"classes": [nasty("class")], "columns": [nasty(f"c{j}") for j in range(model.n_x)]}
    save_model(path, model, info)


REPORTS = [*RUNS, "forged"]
PAGES = [*REPORTS, "same", "other"]


class Elements(HTMLParser):
    """All elements of a page, with their attributes; and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.all, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("name", PAGES)
def test_it_stands_alone(home, name):
    text = home.page(name).read_text()
    found = Elements(text)
    for tag, attrs in found.all:
        for key in ("src", "href", "action", "data-difference"):
            value = attrs.get(key)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert "url(" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    ids = [attrs["id"] for _, attrs in found.all if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for t, a in found.all if t == "a" and a["href"].startswith("#")} <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_pictures_have_pixels_and_words(home, name):
    from PIL import Image

    elements = Elements(home.page(name).read_text()).all
    found = [attrs for tag, attrs in elements if tag == "img"]
    assert len(found) >= 8 or sum(a.get("class") == "cells" for _, a in elements) >= 8  # rows of a table are texts
    for attrs in found:
        assert attrs["alt"].strip()
        kind, data = attrs["src"].split(",")
        assert kind == "data:image/png;base64"
        Image.open(io.BytesIO(base64.b64decode(data))).load()
    plots = [a for t, a in Elements(home.page(name).read_text()).all if "plot" in a.get("class", "").split()]
    assert plots
    assert all(a["role"] == "img" and len(a["aria-label"]) > 10 for a in plots)


def charts(path):
    def refuse(word):
        raise AssertionError(word)

    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(data[1], parse_constant=refuse)["charts"]


TAGS = """html head meta title link style body header div p button h1 nav a main dl dt dd small noscript section h2 h3
figure figcaption table thead tbody tr th td label input output span img svg rect text tspan path details summary select
option footer script"""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_from_a_file_becomes_markup(home, name):
    """Hostile names and recipes are text: no element, attribute or script that the templates do not write."""
    text = home.page(name).read_text()
    found = Elements(text).all
    assert {tag for tag, _ in found} <= set(TAGS.split())
    assert [tag for tag, _ in found].count("script") == 2  # the numbers, and the page's own
    assert {
        key for _, attrs in found for key in attrs if key.startswith("on") or key in ("style", "autofocus")
    } == set()
    assert "7 * 7 }}" in text or name not in ("forged", "categories")  # shown as it is, not computed
    if name in ("table", "eonade"):
        assert charts(home.page(name))["means"]["names"][0] == NASTY


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_pages_own_script_and_nothing_else(home, name):
    text = home.page(name).read_text()
    (given,) = [a["content"] for _, a in Elements(text).all if a.get("http-equiv") == "Content-Security-Policy"]
    assert "unsafe" not in given
    script, style = re.findall(r"<script>(.*?)</script>|<style>(.*?)</style>", text, re.DOTALL)[::-1]
    assert given == policy(script[0], style[1])


@pytest.mark.parametrize("name", RUNS)
def test_what_it_says_is_what_eval_says(home, name, capsys):
    shown = {row["name"]: row["value"] for row in charts(home.page(name))["likelihood"]["rows"]}
    run = load(home.run(name))
    rows = run.rows(split="test")
    index = np.unique(np.linspace(0, len(rows) - 1, 20).round().astype(int)) if len(rows) > 20 else np.arange(len(rows))
    chosen = rows.take(index)
    options = {"context": chosen.context, "log_density": chosen.log_density, "n_samples": 10, "repeats": 2}
    found = likelihood.evaluate(run.model, chosen.unpack(), **options)
    if name.startswith("categories") and len(index) == len(rows):
        assert found.log_density is not None
        capsys.readouterr()
        assert darn("eval", home.run(name), "--samples", 10, "--repeats", 2, "--json") == 0
        assert json.loads(capsys.readouterr().out)["nll"] == pytest.approx(found.nll, rel=1e-4)
    np.testing.assert_allclose(shown["this model, −log p"], found.nll, rtol=1e-4)
    if run.model.n_layers:
        np.testing.assert_allclose(shown["this model, bound"], found.bound, rtol=1e-4)


def test_sections_follow_the_model(home):
    ids = {n: {a["id"] for t, a in Elements(p.read_text()).all if t == "section"} for n, p in home.pages().items()}
    everywhere = {"likelihood", "learning", "samples", "rows", "recipe"}
    for name in RUNS:
        deep = {"reconstructions", "code"} if name not in NO_CODE else set()
        table = {"marginals", "associations", "privacy"} if RUNS[name][0] == "pets.csv" else set()
        assert ids[name] == everywhere | deep | table | {"completions"}
    assert "columns" in charts(home.page("table"))
    assert "columns" in charts(home.page("categories"))
    assert "columns" not in charts(home.page("eonade"))  # a mean over orders has no cost by column
    assert len(charts(home.page("deep"))["parts"]["series"]) == 3
    assert charts(home.page("deep"))["bound"]["series"][0]["name"] == "validation bound of 2 encodings"
    assert "active" in charts(home.page("digits"))


def test_the_cells_to_blame_are_those_of_the_file(home):
    """Of every expensive row the costs of its cells add up, and its texts are those of the table."""
    text = html.unescape((home.run("categories, no code") / "report.html").read_text())
    run = load(home.run("categories, no code"))
    rows = re.findall(
        r'<td class="n" data-v="[\d.]+">(\d+)</td>\s*<td class="n" data-v="(-?[\d.]+)">[^<]*</td>\s*<td>(.*?)</td>',
        text,
    )
    table = read_table(home.folder / "pets.csv", split="test", seed=run.recipe.training.seed)
    assert len(rows) == len(table)
    for place, cost, cells in rows:
        kind, size, age = table.cells[int(place) - 1]  # rows are counted from 1
        nats = [float(v) for v in re.findall(r"\((-?[\d.]+)\)(?:, |$)", cells)]
        assert sum(nats) == pytest.approx(float(cost), abs=0.16)  # without a code, and rounded
        for cell in (f"kind = {kind} (", f" = {size} (", f"age = {age} ("):
            assert cell in cells


def test_rows_of_a_table_are_shown_as_its_cells(home):
    """Known cells are those of the file, and half of the columns are completed."""
    run = home.run("categories")
    table = read_table(home.folder / "pets.csv", split="test", seed=load(run).recipe.training.seed)
    page = (run / "report.html").read_text()
    (section,) = re.findall(r'<section id="completions".*?</section>', page, re.DOTALL)
    cards = section.split('<div class="card')[1:]
    assert cards
    for card in cards:
        lines = {}
        for name, cells in re.findall(r'<th scope="row"[^>]*>([^<]*)</th>(.*?)</tr>', card, re.DOTALL):
            lines[name] = [html.unescape(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", cells)]
        kind, size, _ = table.cells[int(re.findall(r"<span>row (\d+)</span>", card)[0]) - 1]
        assert lines["original"][:2] == [kind, size]
        assert lines["known"] == [kind, "?", "?"]
        assert all("?" not in "".join(cells) for name, cells in lines.items() if name != "known")


def test_an_idle_code_is_named(tmp_path, capsys):
    """By `train`, `encode` and the report."""
    path = csv(
        tmp_path / "quiet.csv", (np.random.default_rng(0).random((200, 5)) < 0.02).astype(int).tolist(), list("abcde")
    )
    run = tmp_path / "run"
    capsys.readouterr()
    assert darn("train", path, "--n_h", 4, "--n_d", "", "--epochs", 9, "--quiet", "--out", run) == 0
    assert "the code is idle" in capsys.readouterr().err
    assert darn("encode", run, "--out", tmp_path / "h.npy") == 0
    assert "the code is idle" in capsys.readouterr().err
    assert darn("report", run, *SCORING) == 0
    assert "the code is idle" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("nats", "h", "idle"), [(0.0, [0, 1, 0], True), (2.0, [1, 1, 1], True), (2.0, [0, 1, 0], False), (0.0, [1], False)]
)
def test_what_an_idle_code_is(nats, h, idle):
    use = code_use(np.full((len(h), 1), nats), [np.array(h, np.uint8)[:, None]])
    assert use.idle == idle
    assert bool(use.warning) == idle
    assert use.distinct == len(set(h))


def test_the_epoch_is_that_of_the_model(home, tmp_path):
    """Another may have a lower bound, with a code not as sparse as asked for."""
    run = shutil.copytree(home.run("digits"), tmp_path / "run")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = load(run).info["training"]["epoch"]
    other = next(r for r in rows if r["epoch"] != kept)
    other["valid"]["bound"] = 0.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert darn("report", run, *SCORING) == 0
    assert charts(run / "report.html")["bound"]["mark"]["x"] == kept


def test_a_model_file_alone_gets_a_page_without_curves(home, tmp_path, capsys):
    model = tmp_path / "my model.safetensors"
    model.write_bytes((home.run("digits") / "model.safetensors").read_bytes())
    found = facts(capsys, "report", model, *SCORING)
    assert found["out"] == str(tmp_path / "my model.html")
    text = (tmp_path / "my model.html").read_text()
    assert "<h1>my model</h1>" in text
    assert 'id="learning"' not in text
    assert found["rows"] == 20


def test_the_comparison_pairs_rows_and_puts_the_best_first(home, capsys, tmp_path):
    out = tmp_path / "c.html"
    found = facts(capsys, "compare", home.run("digits"), home.run("deep"), *SCORING, "--out", out)["runs"]
    assert [r["nll"] for r in found] == sorted(r["nll"] for r in found)
    assert "lead over the next" in out.read_text()
    assert "lead over the next" not in home.page("other").read_text()  # nats of different data
    assert "do not compare" in home.page("other").read_text()
    table = re.search(r"<th[^>]*>field</th>.*?</table>", out.read_text(), re.DOTALL)[0]
    assert "n_h" in table
    assert "lr" not in table  # the same in both


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("report", "nowhere"), "there is no model"),
        (("report", "RUN", "--out", "a.pdf"), ".html"),
        (("report", "RUN", "--rows", 0), "--rows"),
        (("report", "RUN", "--seed", -1), "--seed"),
        (("compare", "RUN"), "two runs"),
        (("compare", "RUN", "RUN"), "two runs"),
        (("report", "RUN", "--out", "file/a.html"), "cannot write"),
    ],
)
def test_refusals(home, capsys, argv, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert part in refused(capsys, *(home.run("digits") if a == "RUN" else a for a in argv))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


# ---------------------------------------------------------------- the measures


@pytest.mark.parametrize("name", ["1 linear, linear encoder", "2 skip", "2 skip, linear encoder | c", "nade"])
def test_parts_add_up_to_the_bound(name):
    model, c = make_model(name)
    x = (np.random.default_rng(1).random((400, model.n_x)) < 0.5).astype(np.uint8)
    context = None if c is None else np.repeat(c[None], len(x), axis=0)
    x_given_h, h = lengths(model, x, context)
    assert h.shape == (len(x), model.n_layers)
    exact = likelihood.exact(model, x, context=context).row_bound
    gap = x_given_h + h.sum(axis=1) - exact
    assert abs(gap.mean()) < 4 * gap.std() / len(x) ** 0.5 + 1e-4


@pytest.mark.parametrize("name", ["factorial", "fvsbn", "nade", "mixture", "fvsbn | c"])
def test_the_cost_of_units_adds_up_to_the_cost_of_rows(name):
    model, c = make_model(name)
    x = (np.random.default_rng(2).random((30, model.n_x)) < 0.5).astype(np.uint8)
    context = None if c is None else np.repeat(c[None], len(x), axis=0)
    each = _measure.unit_costs(model, x, context)
    np.testing.assert_allclose(each.sum(axis=1), -likelihood.exact(model, x, context=context).log_p, rtol=1e-5)
    assert _measure.unit_costs(make_model("eonade")[0], x[:, :5]) is None


def test_responses_are_differences_of_means():
    rng = np.random.default_rng(3)
    h, x = rng.integers(0, 2, (40, 5)), rng.integers(0, 2, (40, 7))
    h[:, 4] = 1  # never off: nothing to compare with
    found = _measure.responses(h, x)
    for j in range(4):
        np.testing.assert_allclose(found[j], x[h[:, j] == 1].mean(axis=0) - x[h[:, j] == 0].mean(axis=0), atol=1e-6)
    assert not found[4].any()


@pytest.mark.parametrize(
    ("name", "words"), [("LinearAutoregressive", "linear autoregressive"), ("EoNADE", "EoNADE"), ("OneTwo", "one two")]
)
def test_layers_in_words(name, words):
    assert AbstractBinaryLayer.title.fget(type(name, (), {})()) == words


def test_a_wrapped_layer_keeps_its_name():
    assert Groups(LinearAutoregressive(3), (3,)).title == "linear autoregressive"


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.pop("valid"),
        lambda r: r["valid"].update(h=[]),
        lambda r: r.update(epoch="one"),
        lambda r: r["train"].update(bound="<b>"),
        lambda r: r["valid"].update(active=[[]]),
    ],
)
def test_curves_that_training_did_not_write_are_left_out(home, tmp_path, change):
    run = shutil.copytree(home.run("digits"), tmp_path / "run")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert _measure.history(load(run)) == rows
    change(rows[-1])
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert _measure.history(load(run)) == []


def test_layers_shared_from_the_top_down(home):
    run = load(home.run("deep"))
    s = _measure.scored(run, limit=5, n_samples=2, repeats=1)
    drawn = _measure.draws(s)
    levels = _measure.from_layer(s, drawn, 6)
    assert [rows.shape for rows in levels] == [(6, 64)] * 2
    h = tuple(jnp.asarray(np.repeat(y[:1], 6, axis=0)) for y in drawn.h)
    from darn.inference import sampling

    np.testing.assert_array_equal(levels[-1], sampling.sample(run.model, 6, seed=2, h=h).x)


# ---------------------------------------------------------------- in the browser

PROBE = (Path(__file__).parent / "report_probe.js").read_text()


@pytest.fixture(scope="module")
def seen(home):
    if chromium.FOUND is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test pages in a browser")
    return chromium.look(home.pages(), PROBE)


def test_the_browser_has_nothing_to_say(seen):
    found, console = seen
    assert console == []
    assert set(found) == {(name, width) for name in PAGES for width in chromium.WIDTHS}
    assert [key for key, f in found.items() if "failed" in f or f["ready"] != "yes"] == []
    assert [key for key, f in found.items() if f["forged"]] == []


def test_the_policy_stops_a_script_that_got_into_the_page(home, tmp_path):
    """The second line of defence: markup that no template would let through."""
    if chromium.FOUND is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test pages in a browser")
    page = home.page("digits").read_text()
    copies = {"forged": page.replace("<main>", f"<main>{NASTY}"), "unguarded": page.replace("<main>", f"<main>{NASTY}")}
    copies["unguarded"] = copies["unguarded"].replace("Content-Security-Policy", "no-policy")
    for name, text in copies.items():
        (tmp_path / f"{name}.html").write_text(text)
    found, console = chromium.look({name: tmp_path / f"{name}.html" for name in copies}, PROBE)
    assert all(found["forged", width]["forged"] is None for width in chromium.WIDTHS)
    assert all(found["forged", width]["ready"] == "yes" for width in chromium.WIDTHS)
    assert all(found["unguarded", width]["forged"] == "yes" for width in chromium.WIDTHS)  # the attack is one
    assert any("Content Security Policy" in line for line in console)


@pytest.mark.parametrize("width", chromium.WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_it_looks_right(seen, name, width):
    f = seen[0][name, width]
    assert f["overflow"] <= 0
    assert f["broken"] == 0
    assert f["empty"] == 0
    assert f["cut"] == []
    for _, _, contrast in f["themes"]:
        assert contrast >= 4.5
    assert sorted(t[0] for t in f["themes"]) == ["auto", "dark", "light"]
    assert len({t[1] for t in f["themes"]}) == 2  # two papers, one light and one dark
    assert f["back"] == f["themes"][0][0]


@pytest.mark.parametrize("width", chromium.WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_its_controls_work(seen, name, width):
    f = seen[0][name, width]
    before, less, again = f["lines"]
    assert less == before - 1
    assert again == before
    assert f["tip"]
    assert f["tipInside"]
    falling, rising = f["table"]
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)
    if name in REPORTS:
        assert all(wanted == shown for wanted, shown in f["shown"])
        if not name.startswith("categories"):  # there the cells that differ are always marked
            assert f["marked"]
            assert f["unmarked"]
        for way, values in f["sorted"]:
            assert values == sorted(values, reverse=way == "down")
            assert len(values) <= 16


def test_help_names_both_commands(capsys):
    text = ok(capsys, "--help")
    assert "report" in text
    assert "compare" in text
