"""Writes tests/vectors: small model files, the log-probabilities that they must give, and compressed rows.

    python tests/make_vectors.py

Files of a released format are promised to stay readable: add to the list, and never make a vector anew to get a test
to pass. Weights are multiples of 1/8 from NumPy's generator, so that a file depends on no version of anything else.
"""

import json
import zlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.codec import compress
from darn.config import Architecture, LocalLayer, Window
from darn.model import Stack
from darn.model_file import save_model
from darn.zoo import build

FOLDER = Path(__file__).parent / "vectors"
ROWS = 4

_SMALL = {"n_h": (), "n_nade": (4,), "n_orderings": 3, "n_components": 3, "n_d": (3,)}
_GRID = {"visible": "grid", "n_d": (), "activation": "relu", "period": 2, "ar": Window(3, 2), "ar_h": Window(3, 2)}

# name: (architecture, units, options of `build`)
VECTORS = {
    "factorial": ({"visible": "factorial"}, 6, {}),
    "linear": ({"visible": "linear"}, 6, {}),
    "linear-context": ({"visible": "linear", "n_d": ()}, 5, {"n_context": 2}),
    "nade": ({"visible": "nade", "n_nade": (4, 3)}, 6, {}),
    "eonade": ({"visible": "eonade"}, 6, {}),
    "mixture": ({"visible": "mixture"}, 6, {}),
    "one-hot": ({"visible": "linear"}, 6, {"groups": (3, 1, 2)}),
    "grid": ({"n_h": (3,), "local": (LocalLayer(2, 2, 2), LocalLayer(2, 1, 1)), **_GRID}, 6, {"shape": (2, 3)}),
    "two-layers": ({"n_h": (3, 2), "visible": "linear", "encoder": "linear", "skip": True}, 5, {}),
}


def make(name: str) -> Stack:
    """The model, its weights from its name."""
    fields, n, options = VECTORS[name]
    model = build(Architecture(**(_SMALL | fields)), n, **options, key=jax.random.key(0))
    rng = np.random.default_rng(zlib.crc32(name.encode()))

    def weights(w):
        if eqx.is_inexact_array(w):
            return jnp.asarray(np.round(8 * rng.normal(size=w.shape)) / 8, jnp.float32)
        return jnp.asarray(rng.permuted(np.broadcast_to(np.arange(w.shape[1]), w.shape), axis=1), jnp.int32)

    return jax.tree.map(weights, model)


def rows(name: str, model: Stack) -> dict:
    """Some x, h and context of the model."""
    rng = np.random.default_rng(1)
    bits = lambda n: rng.integers(0, 2, (ROWS, n)).tolist()  # noqa: E731
    x = bits(model.n_x)
    if name == "one-hot":  # one of three, a free bit, one of two
        x = [[1, 0, 0, 1, 0, 1], [0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1]]
    return {"x": x, "h": [bits(n) for n in model.n_h], "context": bits(model.n_context) if model.n_context else None}


def scores(model: Stack, given: dict) -> dict:
    """log p(x, h) and log q(h | x) of each row."""
    arrays = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), given, is_leaf=_is_matrix)

    def score(x, h, context):
        return model.log_p(x, h, context), model.log_q(x, h, context)

    log_p, log_q = jax.vmap(score)(arrays["x"], tuple(arrays["h"]), arrays["context"])
    return {"log_p": np.asarray(log_p, np.float64).tolist(), "log_q": np.asarray(log_q, np.float64).tolist()}


def _is_matrix(v) -> bool:
    return isinstance(v, list) and bool(v) and isinstance(v[0], list) and isinstance(v[0][0], int)


COMPRESSED = ("factorial", "linear", "nade", "eonade", "one-hot", "grid", "two-layers")


def rows_to_compress(name: str, expected: dict) -> np.ndarray:
    """Forty rows, those of the model's own kind over and over."""
    return np.resize(np.asarray(expected[name]["x"], np.uint8), (40, len(expected[name]["x"][0])))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    for name in VECTORS:
        model = make(name)
        save_model(FOLDER / f"{name}.safetensors", model, {"vector": name}, dtype="float16")
        given = rows(name, model)
        expected[name] = given | scores(model, given)
        if name in COMPRESSED:
            (FOLDER / f"{name}.drn").write_bytes(compress(model, rows_to_compress(name, expected)))
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
