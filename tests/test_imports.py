"""Imports point one way: a law of the architecture, by reading the source."""

import ast
from functools import lru_cache
from pathlib import Path

import darn

ROOT = Path(darn.__file__).parent

# Rooms by storey; an import goes downwards, or stays within its room. A room not named here is on the top
# storey, so that nothing below may lean on it.
STOREYS = [
    {"errors"},
    {"files", "config"},
    {"nn", "gradients", "random"},
    {"layers"},
    {"model"},
    {"objective", "likelihood", "sampling", "sparse", "codec", "model_file", "zoo", "weight_noise"},
    {"training"},
    {"recipes"},
]
SIDEWAYS = {("likelihood", "sampling"), ("codec", "model_file"), ("codec", "sampling")}  # one way each
SIDEWAYS |= {("sparse", "sampling")}
BELOW_DATA = {"errors", "files"}


def storey(room):
    return next((i for i, rooms in enumerate(STOREYS) if room in rooms), len(STOREYS))


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


def test_the_walk_sees_the_imports():
    seen = {(a, b) for _, a, b in arrows()}
    assert {("layers", "nn"), ("layers", "gradients"), ("model", "layers"), ("training", "objective")} <= seen
    assert ("model_file", "layers") in seen  # `from darn import layers, model, nn`


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(ROOT)}: {a} imports {b or 'darn itself'}"
        for path, a, b in arrows()
        if a not in ("", "data") and b != "data"  # `darn` itself only re-exports; data is a wing of its own
        if a != b and storey(b) >= storey(a) < len(STOREYS) and (a, b) not in SIDEWAYS
    ]
    assert not wrong, wrong


def test_only_the_top_storey_imports_the_package_itself():
    wrong = [str(path.relative_to(ROOT)) for path, a, b in arrows() if a and not b and storey(a) < len(STOREYS)]
    assert not wrong, wrong


def test_data_stands_alone():
    allowed = {"data", *BELOW_DATA}
    wrong = [f"{path.relative_to(ROOT)}: {b}" for path, a, b in arrows() if a == "data" and b not in allowed]
    assert not wrong, wrong


def test_data_is_imported_from_above_only():
    wrong = [
        str(path.relative_to(ROOT))
        for path, a, b in arrows()
        if b == "data" and a not in ("data", "") and storey(a) < storey("recipes")
    ]
    assert not wrong, wrong


def test_ground_floor_imports_no_numerics():
    """errors, files and config are read by the command line before anything heavy is loaded."""
    for room in ("errors", "files", "config"):
        tree = ast.parse((ROOT / f"{room}.py").read_text())
        names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not names & {"jax", "equinox", "numpy", "optax", "scipy", "sklearn"}, room


def test_rooms_do_not_go_round_in_circles():
    edges = {}
    for _, a, b in arrows():
        if a != b and a and b:
            edges.setdefault(a, set()).add(b)
    done, path = set(), []

    def visit(room):
        assert room not in path, " -> ".join([*path, room])
        if room not in done:
            path.append(room)
            for other in sorted(edges.get(room, ())):
                visit(other)
            path.pop()
            done.add(room)

    for room in list(edges):
        visit(room)
