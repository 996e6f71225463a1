"""What the README and the documentation show, runs; what they link to, exists; the site builds clean."""

import inspect
import os
import pkgutil
import pydoc
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import helpers
import jax
import numpy as np
import pytest
import test_layers

from darn import cli, data
from darn.cli._main import CommandLine
from darn.layers import AbstractBinaryLayer
from darn.nn import AbstractMap
from darn.paper.recipes import RECIPES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = {p.name: p.read_text() for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Of the shell lines only the size is changed, so that they run in seconds.
SMALLER = {
    "train": ["--tiny", "--quiet", "--epochs", "2"],
    "sweep": ["--tiny", "--quiet", "--epochs", "2"],
    "complete": ["--samples", "5", "--sweeps", "1", "--every", "2500"],
    "eval": ["--samples", "5", "--repeats", "2", "--every", "50"],
    "query": ["--samples", "500"],
    "report": ["--rows", "10", "--samples", "5", "--repeats", "2"],
    "compare": ["--rows", "10", "--samples", "5", "--repeats", "2"],
}


def blocks(page):
    return [(kind, text) for kind, text in BLOCK.findall(PAGES[page]) if kind in ("python", "sh")]


def shell_lines(text):
    return [line for line in text.splitlines() if line.startswith("darn ")]


def test_every_block_says_what_it_is():
    """No snippet escapes for want of a language."""
    for page, text in PAGES.items():
        assert {kind for kind, _ in BLOCK.findall(text)} <= {"python", "sh", "bibtex", "text"}, page
        assert text.count("```") == 2 * len(BLOCK.findall(text)), page


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as a reader would have it: a file or two of one's own, and what the repository holds."""
    bits = (np.random.default_rng(0).random((60, 6)) < 0.5).astype(int)
    for name in ("my.csv", "my_other_rows.csv"):
        np.savetxt(tmp_path / name, bits, fmt="%d", delimiter=",")
    pets = "kind,size,age\n" + "".join(f"{k},{s},{a}\n" for k in ("cat", "dog") for s in "SML" for a in range(10))
    (tmp_path / "pets.csv").write_text(pets)
    (tmp_path / "pets_with_holes.csv").write_text("kind,size,age\ncat,,3\n,L,\n")
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def absent(line, missing):
    """Whether a line needs a published data set that is not on this machine, or a run trained on one."""
    words = shlex.split(line, comments=True)[1:]
    sets = {s["name"] for s in data.describe() if not s["present"]}
    if any("atari" in word for word in words):  # recording and a game's network take minutes: test_atari.py
        missing.append("Atari")
        return True
    for word in words[1:]:
        name = word.removeprefix("runs/").split("/")[-1].removesuffix(".safetensors")
        needs = RECIPES[name].data.source if name in RECIPES else name
        if needs in sets and words[0] != "recipes":
            missing.append(needs)
            return True
    return False


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_snippets_run(page, folder, capsys):
    space, missing = {}, []
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec"), space)
            continue
        for line in shell_lines(text):
            if absent(line, missing):
                continue
            words = shlex.split(line, comments=True)[1:]
            with jax.numpy_dtype_promotion("standard" if words[0] == "train" else "strict"):  # optax mixes types
                smaller = [] if "--quick" in words else SMALLER.get(words[0], [])
                assert cli.main([*words, *smaller]) == 0, (line, capsys.readouterr().err)
    if page == "README.md":  # between 10 and 20 nats: it has learned
        assert re.search(r"-log p 1\d\.\d+ ± \d", capsys.readouterr().out)
    if page == "extend.md":  # a layer from outside the package, trained in a folder and used by all functions
        assert (folder / "runs" / "urn" / "model.safetensors").exists()
    if missing:
        pytest.skip(f"all but the lines about {', '.join(sorted(set(missing)))}, which DARN_DATA does not hold")


@pytest.mark.parametrize("line", [line for page in PAGES for _, text in blocks(page) for line in shell_lines(text)])
def test_shell_lines_parse(line):
    words = shlex.split(line, comments=True)[1:]
    args, unknown = CommandLine().top.parse_known_args(words)
    assert args.command == words[0]
    assert unknown == []


def test_make_targets_exist():
    known = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {w for text in PAGES.values() for w in re.findall(r"^`?make (\w+)", text, re.MULTILINE)}
    assert named
    assert named <= known


def links():
    for page, text in PAGES.items():
        here = ROOT if page == "README.md" else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", BLOCK.sub("", text)):
            yield pytest.param(here, target, id=f"{page}: {target}")


@pytest.mark.parametrize(("here", "target"), list(links()))
def test_links_lead_somewhere(here, target):
    assert target.startswith("https://") or (here / target).exists()


def _mapped_names():
    """The code of each equation, as the paper map names it."""
    for line in PAGES["paper_map.md"].splitlines():
        if len(cells := re.split(r"(?<!\\)\|", line)) == 6:
            yield from re.findall(r"`([a-z_]+\.[\w.]+)`", cells[3])


@pytest.mark.parametrize("name", sorted(set(_mapped_names())))
def test_the_paper_map_names_code_that_exists(name):
    assert pkgutil.resolve_name(f"darn.{name}") is not None


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+\.py)`", PAGES["paper_map.md"]))))
def test_the_paper_map_names_tests_that_exist(name):
    assert (ROOT / "tests" / name).exists()


# ---------------------------------------------------------------- the layer of "Add a layer"

LAWS = [  # every law of layers
    law
    for law in vars(test_layers).values()
    if any(mark.args[:1] == ("name",) and "nade" in mark.args[1] for mark in getattr(law, "pytestmark", ()))
]
assert len(LAWS) >= 15


@pytest.fixture(scope="module")
def urn():
    space = {}
    exec(compile(blocks("extend.md")[0][1], "extend.md", "exec"), space)
    cls = space["Urn"]
    with pytest.MonkeyPatch.context() as patch:
        for name, n_c in (("urn", 0), ("urn | c", helpers.N_C)):
            patch.setitem(helpers.LAYERS, name, lambda key, n_c=n_c: cls(5, n_c, key=key))
        yield


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", ["urn", "urn | c"])
def test_the_layer_of_the_documentation_obeys_the_laws(urn, law, name):
    law(name)


def test_that_layer_takes_fifty_lines_or_fewer():
    assert len(blocks("extend.md")[0][1].splitlines()) <= 50


# ---------------------------------------------------------------- the reference

REFERENCE = re.findall(r"^::: ([\w.]+)", PAGES["api.md"], re.MULTILINE)
PROTOCOLS = (AbstractMap, AbstractBinaryLayer)  # what follows one is described there


def described(name):
    """(name, what the docstring describes, its function) of all that the reference shows under a name."""
    found = pydoc.locate(name)
    if inspect.isfunction(found):
        return [(name, found, found)]
    written = lambda v: inspect.isfunction(v) and inspect.unwrap(v).__code__.co_filename != "<string>"  # noqa: E731
    own = {k: v for k, v in vars(found).items() if written(v) and (k == "__init__" or not k.startswith("_"))}
    if inspect.ismodule(found):
        return [(f"{name}.{k}", v, v) for k, v in own.items() if v.__module__ == name]
    if issubclass(found, PROTOCOLS) and not inspect.isabstract(found):
        own = {k: v for k, v in own.items() if k == "__init__"}
    return [(f"{name}.{k}", found if k == "__init__" else v, v) for k, v in own.items()]


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_describes_every_argument(name):
    lacking = []
    for shown, source, function in described(name):
        given = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        text = f"{inspect.getdoc(source)}\n{inspect.getdoc(function)}"  # of a constructor: the class's, or its own
        lacking += [f"{shown}({p})" for p in given if p != "self" and f"\n    {p}: " not in text]
    assert not lacking, lacking


# ---------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the documentation's tools are not installed: pip install -e '.[docs]'")
    pytest.importorskip("latex2mathml", reason="the documentation's tools are not installed: pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="the documentation's tools are not installed: pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield out
    shutil.rmtree(out)


def test_the_site_builds_clean(site):
    for page in PAGES:
        if page != "README.md":
            assert (site / page.replace(".md", ".html")).exists()


def test_the_site_fetches_nothing_from_elsewhere(site):
    for path in site.glob("*.html"):
        text = path.read_text()
        fetched = re.findall(r'<(?:script|img|iframe)[^>]*src="([^"]+)"', text)
        fetched += re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', text)
        assert fetched
        assert not [u for u in fetched if re.match(r"(https?:)?//", u)], path.name


def test_equations_are_drawn_by_the_browser(site):
    for page in ("paper", "gradient"):
        text = (site / f"{page}.html").read_text()
        assert text.count("<math") >= 8
        visible = re.sub(r"<(pre|code|script|math)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "$" not in visible
        assert "\\frac" not in re.sub(r"<annotation.*?</annotation>", "", visible)


def test_every_public_name_is_in_the_reference(site):
    import darn

    text = (site / "api.html").read_text()
    shown = {anchor.split(".")[-1] for anchor in re.findall(r'id="(darn\.[\w.]+)"', text)}
    public = {name for name in darn.__all__ if not isinstance(getattr(darn, name), types.ModuleType)}
    # the table of recipes is data, shown by `darn recipes`
    assert public - shown <= {"RECIPES"}
