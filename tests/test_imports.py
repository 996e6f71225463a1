"""Imports point one way: a law of the architecture, by reading the source."""

import ast
from functools import lru_cache
from pathlib import Path

import darn

ROOT = Path(darn.__file__).parent

# Every room has a storey; an import goes downwards, or stays within its room.
STOREYS = [
    {"errors"},
    {"files", "jsonable", "cache", "symbols", "shuffle"},
    {"config"},
    {"data"},
    {"devices"},
    {"batching", "random", "gradients"},
    {"nn"},
    {"layers"},
    {"model"},
    {"model_file", "zoo"},
    {"inference"},
    {"codec"},
    {"training", "fidelity"},
    {"runs"},
    {"report", "cluster"},
    {"paper"},
    {"estimators", "cli"},
    {"__main__"},
]
BELOW_DATA = {"errors", "files", "jsonable", "shuffle", "symbols"}


def storey(room):
    return next(i for i, rooms in enumerate(STOREYS) if room in rooms)


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def is_module(name):
    path = ROOT.joinpath(*name.split(".")[1:])
    return path.with_suffix(".py").exists() or path.is_dir()


@lru_cache
def arrows():
    """(file, room that imports, room that is imported) for every import of ours anywhere in a file."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package = parts[:-1]
        parts = package if parts[-1] == "__init__" else parts
        room = parts[1] if len(parts) > 1 else ""
        for node in ast.walk(ast.parse(path.read_text())):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join([*base, *([node.module] if node.module else [])])
                targets = [f"{base}.{a.name}" if is_module(f"{base}.{a.name}") else base for a in node.names]
            found += [(path, room, room_of(t)) for t in targets if t.split(".")[0] == "darn"]
    return found


def test_every_room_has_a_storey():
    rooms = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert rooms - {"__init__"} == set().union(*STOREYS)


def test_the_root_holds_a_dozen_modules():
    """More than that is a list, not a map: what belongs together gets a room."""
    modules = sorted(p.name for p in ROOT.glob("*.py") if not p.name.startswith("__"))
    assert len(modules) <= 12, modules


def test_contributing_says_what_every_room_is_for():
    page = (ROOT.parent / "CONTRIBUTING.md").read_text()
    lacking = [p.parent.name for p in ROOT.glob("*/__init__.py") if f"| `darn/{p.parent.name}` |" not in page]
    assert not lacking, lacking


def test_the_walk_sees_the_imports():
    seen = {(a, b) for _, a, b in arrows()}
    assert {("layers", "nn"), ("layers", "gradients"), ("model", "layers"), ("training", "inference")} <= seen


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(ROOT)}: {a} imports {b or 'darn itself'}"
        for path, a, b in arrows()
        if a and a != b and (not b or storey(b) >= storey(a))
    ]
    assert not wrong, wrong


def test_private_modules_stay_in_their_room():
    """What another room needs is a name of the package."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("darn."):
                _, other, *rest = node.module.split(".")
                names = [*rest, *(a.name for a in node.names)]
                if other != room.removesuffix(".py") and any(n.startswith("_") for n in names):
                    wrong.append(f"{path.relative_to(ROOT)}: {node.module}")
    assert not wrong, wrong


def test_data_stands_alone():
    allowed = {"data", *BELOW_DATA}
    wrong = [f"{path.relative_to(ROOT)}: {b}" for path, a, b in arrows() if a == "data" and b not in allowed]
    assert not wrong, wrong


def test_models_know_nothing_of_data():
    """A layer, a model or a function of one takes arrays; reading them is for training and above."""
    wrong = [
        str(path.relative_to(ROOT))
        for path, a, b in arrows()
        if b == "data" and a not in ("data", "") and storey(a) < storey("training")
    ]
    assert not wrong, wrong


def test_ground_floor_imports_no_numerics():
    """errors, files and config are read by the command line before anything heavy is loaded."""
    for path in (ROOT / "errors.py", ROOT / "config.py", *ROOT.glob("files/*.py")):
        tree = ast.parse(path.read_text())
        names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not names & {"jax", "equinox", "numpy", "optax", "scipy", "sklearn"}, path
