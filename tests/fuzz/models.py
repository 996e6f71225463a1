"""Model files, damaged, or forged with their checksum computed anew."""

import contextlib
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import darn
from darn import data, zoo
from darn.cli import main
from darn.config import Architecture
from darn.model_file import checksum, read_info, save_model
from darn.runs.recipe import Recipe
from fuzz.drive import SilentChange
from fuzz.mutate import NASTY, damaged, nasty

VECTORS = Path(__file__).parent.parent / "vectors"


def tables(folder: Path) -> tuple[Path, data.Schema]:
    """A table of words and numbers, and its schema."""
    path, rng = folder / "t.csv", np.random.default_rng(0)
    rows = [f"{rng.choice(['a', 'b', ' c'])},{rng.gamma(2.0):.2f},{rng.integers(2)},{i % 3}" for i in range(60)]
    path.write_text("kind,size,flag,class\n" + "\n".join(rows) + "\n")
    schema = data.load(path, columns=data.Columns("auto", drop="class")).schema
    assert schema is not None
    return path, schema


def of_a_table(path: Path, schema: data.Schema) -> None:
    """A model file with everything that training writes: recipe, schema, classes, provenance."""
    n = sum(schema.sizes)
    model = zoo.build(Architecture(n_h=(2,), n_d=()), n, n_context=3, groups=schema.groups, key=jax.random.key(0))
    about = {"name": "t", "sha256": "0" * 64, "n": n, "rows": [48, 6, 6], "shape": None, "columns": list(schema.units)}
    about |= {"classes": ["0", "1", "2"], "table": schema.to_json(), "binarize": None}
    made = {"command": "darn train t.csv", "commit": "0" * 40, "versions": {"jax": "0.10"}, "device": "cpu"}
    recipe = Recipe().replace(source="t.csv", categorical="auto", labels="class").to_json()
    training = {"epoch": 3, "valid_bound": 5.5, "epochs": 4, "seconds": 1.5}
    info = {"recipe": recipe, "data": about, "made": made, "training": training}
    save_model(path, model, info)


@eqx.filter_jit
def _score(model: darn.Stack, x, h, c):
    return jax.vmap(lambda x: jnp.stack([model.log_p(x, h, c), model.log_q(x, h, c)]))(x)


def score(model: darn.Stack) -> np.ndarray:
    x = jnp.asarray(np.random.default_rng(0).random((4, model.n_x)) < 0.5, jnp.float32)
    h = tuple(jnp.ones(n) for n in model.n_h)
    return np.asarray(_score(model, x, h, jnp.ones(model.n_context) if model.n_context else None))


def forged(path: Path, head: dict, arrays: dict) -> None:
    """A file whose checksum is right."""
    sha256 = checksum(head["structure"], head["info"], arrays)
    save_file(arrays, path, metadata=head | {"sha256": sha256})


class Models:
    """Opens a mutated model file by the API, the estimator and now and then by a command."""

    def __init__(self, folder: Path):
        _, schema = tables(folder)
        of_a_table(folder / "whole.safetensors", schema)
        self.seeds = [folder / "whole.safetensors", *sorted(VECTORS.glob("*.safetensors"))]
        self.held = []
        for path in self.seeds:
            with safe_open(path, framework="np") as f:
                head, arrays = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
            self.held.append((path.read_bytes(), head, arrays, score(darn.load(path).model)))

    def __call__(self, rng: np.random.Generator, folder: Path) -> str:
        path = folder / "m.safetensors"
        data, head, arrays, wanted = self.held[int(rng.integers(len(self.held)))]
        kind = "bytes"
        if rng.random() < 0.5:
            path.write_bytes(damaged(rng, data))
        else:
            kind = str(rng.choice(["structure", "structure", "info", "info", "shape", "dtype", "values", "names"]))
            kind = self.forge(rng, kind, path, dict(head), dict(arrays))
        with contextlib.suppress(darn.DarnError):
            read_info(path)
        run = darn.load(path)
        found = score(run.model)
        _ = run.shape, run.columns, run.schema
        self.use(rng, run, path, folder)
        if np.array_equal(found, wanted):
            return "same"
        if kind in ("bytes", "shape", "dtype", "info"):
            raise SilentChange(f"another score, changed by {kind}")
        return "another model"

    def use(self, rng: np.random.Generator, run, path: Path, folder: Path) -> None:
        """What is done with a model: the estimator, and commands that write its columns and classes."""
        for estimator in (darn.DARN, darn.TableDARN):
            with contextlib.suppress(darn.DarnError):
                estimator.load(path)
        if rng.random() < 0.2:
            status = main(["sample", str(path), "-n", "3", "--out", str(folder / f"s.{rng.choice(['csv', 'png'])}")])
            assert status in (0, 2)
        if rng.random() < 0.2 and run.schema is not None:
            rest = ["--samples", "2", "--sweeps", "1", "--out", str(folder / "c.csv")]
            assert main(["complete", str(path), str(folder / "t.csv"), "--hide", "kind", *rest]) in (0, 2)

    def forge(self, rng: np.random.Generator, kind: str, path: Path, head: dict, arrays: dict) -> str:
        """Writes the file; returns what was changed, "structure" where it declares the new shape, too."""
        name = str(rng.choice(sorted(arrays)))
        a = arrays[name]
        if kind in ("structure", "info"):
            value = json.loads(head[kind])
            for _ in range(int(rng.choice([1, 1, 2]))):
                value = nasty(rng, value)
            head[kind] = json.dumps(value)
        elif kind == "shape":
            axis = int(rng.integers(a.ndim))
            ways = (
                lambda: np.take(a, range(int(rng.integers(1, a.shape[axis] + 1))), axis=axis),
                lambda: np.repeat(a, 2, axis=axis),
                lambda: a[None],
                lambda: a.reshape(-1),
                lambda: a.T if a.T.shape != a.shape else a[None],  # a square one would be other values
                lambda: a[:0],
            )
            arrays[name] = np.ascontiguousarray(ways[int(rng.integers(len(ways)))]())
            if arrays[name].shape != a.shape and rng.random() < 0.5:
                kind = "structure"
                head["structure"] = head["structure"].replace(
                    json.dumps(list(a.shape), separators=(",", ":")),
                    json.dumps(list(arrays[name].shape), separators=(",", ":")),
                )
        elif kind == "dtype":
            types = [t for t in ("f4", "f8", "i1", "i4", "u4", "bool") if np.dtype(t) != a.dtype]
            arrays[name] = a.astype(str(rng.choice(types)))
        elif kind == "values":
            arrays[name] = np.full_like(a, rng.choice([np.nan, np.inf, 1e38, 0, -1]) if a.dtype.kind == "f" else 99)
        else:
            arrays[str(rng.choice([*arrays, "x", "decoder.0", ""]))] = arrays.pop(name)
        if rng.random() < 0.05:
            text = str(NASTY[int(rng.integers(len(NASTY)))])
            head[str(rng.choice(sorted(head)))] = text.replace("\ud800", "?")  # which no file can hold as it is
        forged(path, head, arrays)
        return kind
