"""Laws of model files: what is saved comes back, and what is damaged or forged is refused in one sentence."""

import hashlib
import inspect
import json
import re
import resource

import equinox as eqx
import jax
import jax.numpy as jnp
import make_vectors
import numpy as np
import pytest
from helpers import LAYERS, MODELS, joint, make_layer, make_model, randomised, same, table
from safetensors import safe_open
from safetensors.numpy import save_file

import darn.layers
import darn.model
import darn.nn
from darn import Conditional, DarnError, Stack, Training, fit
from darn.cli import main
from darn.data import Rows
from darn.layers import AbstractBinaryLayer, Factorial, Groups
from darn.model_file import check, describe, load_model, rebuild, save_model
from darn.nn import REGISTRY, AbstractMap, register, replaced, tuning_field
from darn.training._checkpoint import load_checkpoint
from darn.training._record import read_host

models = pytest.mark.parametrize("name", MODELS)


# ---------------------------------------------------------------- what is saved comes back


@models
def test_round_trip(name, tmp_path):
    model, c = make_model(name)
    info = {"recipe": {"n_h": [3]}, "text": "ünïcode\n", "none": None}
    save_model(tmp_path / "model.safetensors", model, info)
    for place in (tmp_path, tmp_path / "model.safetensors", str(tmp_path)):
        found, carried = load_model(place)
        assert carried == info
        same(found, model)
    for v, w in zip(joint(found, c), table(name)):  # the same program, since the structure is the same
        np.testing.assert_array_equal(v, w)


@models
def test_half_precision(name, tmp_path):
    model, c = make_model(name)
    save_model(tmp_path / "half.safetensors", model, dtype="float16")
    found, _ = load_model(tmp_path / "half.safetensors")
    rounded = lambda w: w.astype(jnp.float16).astype(jnp.float32) if eqx.is_inexact_array(w) else w  # noqa: E731
    same(found, jax.tree.map(rounded, model))
    np.testing.assert_allclose(joint(found, c)[0], table(name)[0], atol=0.05)


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_comes_back(name):
    layer = make_layer(name)[0]
    model = Stack((Conditional(layer),), n_context=3 if "| c" in name else 0)
    found = rebuild(*describe(model))
    assert describe(found)[0] == describe(model)[0]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_class_has_a_name():
    for room in (darn.nn, darn.layers, darn.model):
        for cls in vars(room).values():
            if isinstance(cls, type) and issubclass(cls, eqx.Module) and not inspect.isabstract(cls):
                assert cls in REGISTRY.values(), cls


def test_names_are_unique_and_of_modules():
    with pytest.raises(ValueError, match="linear"):
        register("linear")(type("Other", (AbstractMap,), {"__call__": lambda self, c: c}))
    with pytest.raises(TypeError, match="equinox|Type-check"):
        register("a number")(int)
    assert "a number" not in REGISTRY


TUNED = {"linear": "W", "nade": "", "grid": "W", "factorial, local context | c": "U"}


@pytest.mark.parametrize("name", TUNED)
def test_tuning_stays_out(name):
    """Speed knobs are neither in the file nor in the fingerprint, and change no score."""
    layer, c = make_layer(name)
    part = getattr(layer, TUNED[name]) if TUNED[name] else layer
    knobs = [k for k in ("block", "tile") if hasattr(part, k)]
    assert knobs
    tuned = replaced(part, **dict.fromkeys(knobs, 3))
    tuned = replaced(layer, **{TUNED[name]: tuned}) if TUNED[name] else tuned
    stacks = [Stack((Conditional(v),), n_context=0 if c is None else len(c)) for v in (layer, tuned)]
    assert jax.tree.structure(stacks[0]) != jax.tree.structure(stacks[1])
    assert describe(stacks[0])[0] == describe(stacks[1])[0]
    assert not any(k in describe(stacks[1])[0] for k in knobs)
    y = jnp.ones(layer.n)
    np.testing.assert_allclose(rebuild(*describe(stacks[1])).log_p(y, (), c), stacks[1].log_p(y, (), c), rtol=1e-5)


def test_fields_added_later_have_their_defaults():
    @register("test-grown")
    class Grown(AbstractMap):
        W: jax.Array
        offset: float = eqx.field(static=True, default=0.0)

        def __call__(self, c):
            return self.W @ c + self.offset

    try:
        layer = Factorial(4, U=Grown(jnp.ones((4, 2))))
        model = Stack((Conditional(layer),), n_context=2)
        structure, arrays = describe(model)
        assert "offset" not in structure  # what an older version wrote
        assert rebuild(structure, arrays).decoder[0].layer.U.offset == 0.0
        moved = eqx.tree_at(lambda m: m.decoder[0].layer.U, model, Grown(jnp.ones((4, 2)), 0.5))
        assert rebuild(*describe(moved)).decoder[0].layer.U.offset == 0.5
    finally:
        del REGISTRY["test-grown"]


# ---------------------------------------------------------------- what is damaged is refused


def refused(path, match=""):
    with pytest.raises(DarnError, match=match or None) as e:
        load_model(path)
    text = str(e.value)
    assert "\n" not in text
    assert len(text) < 600
    assert path.name in text
    return text


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.safetensors"
    save_model(path, make_model("2")[0], {"a": 1})
    return path


def contents(path):
    with safe_open(path, framework="np") as f:
        return f.metadata(), {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118


def forge(path, head, arrays):
    """A file with a right checksum, computed as docs/formats.md describes it."""
    digest = hashlib.sha256()
    pieces = [head["structure"].encode(), head["info"].encode()]
    for name in sorted(arrays):
        a = arrays[name]
        pieces += [name.encode(), f"{a.dtype.str}{list(a.shape)}".encode(), a.tobytes()]
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little") + piece)
    save_file(arrays, path, metadata=head | {"sha256": digest.hexdigest()})


def test_forging_by_the_documented_rule_works(saved):
    before = load_model(saved)[0]
    head, arrays = contents(saved)
    arrays["decoder.0.layer.b"] = arrays["decoder.0.layer.b"] + np.float32(1)
    forge(saved, head, arrays)
    found = load_model(saved)[0]
    np.testing.assert_array_equal(found.decoder[0].layer.b, before.decoder[0].layer.b + 1)


def test_cut_short(saved):
    whole = saved.read_bytes()
    for cut in {0, 1, 7, 8, 9, 100, *range(200, len(whole), 331), len(whole) - 1}:
        saved.write_bytes(whole[:cut])
        refused(saved)


def test_flipped_bits_are_refused(saved):
    """Anywhere: in the weights the checksum tells, in the head it or the parser."""
    model, whole = load_model(saved)[0], saved.read_bytes()
    rng = np.random.default_rng(0)
    head = 8 + int.from_bytes(whole[:8], "little")
    harmless = 0
    for where in (*range(8), *rng.integers(8, head, 250), *rng.integers(head, len(whole), 250)):
        broken = bytearray(whole)
        broken[where] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(broken))
        try:
            same(load_model(saved)[0], model)  # a blank that became a tab, say
            harmless += 1
        except DarnError as e:
            assert "\n" not in str(e)  # noqa: PT017
    assert harmless < 10


def test_foreign_files(tmp_path):
    path = tmp_path / "b.safetensors"
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    for content in (b"", b"hello", png, b"{}" * 500, b"\xff" * 1000, bytes(1000)):
        path.write_bytes(content)
        refused(path)
    save_file({"w": np.zeros(3)}, path)
    refused(path, "another program")
    save_file({"w": np.zeros(3)}, path, metadata={"format": "darn-checkpoint"})
    refused(path, "another program")
    for version in ("1", "3", "two"):
        save_file({"w": np.zeros(3)}, path, metadata={"format": "darn-model", "version": version})
        refused(path, f"format version {version}")
    save_file({"w": np.zeros(3)}, path, metadata={"format": "darn-model", "version": "2"})
    refused(path)


def test_no_model(tmp_path):
    refused(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="no model"):
        load_model(tmp_path)


# ---------------------------------------------------------------- what is forged is refused


def free(key, a, axis):
    """Whether no other part tells the length: the period of a local map, the kernel of a causal convolution, the
    number of an EoNADE's orders."""
    return (
        (a.ndim == 6 and axis < 2)
        or (key.endswith("W") and a.ndim == 4 and axis < 2)
        or (key.endswith("orders") and axis == 0)
    )


@models
def test_no_array_can_be_cut(name, tmp_path):
    """Every array of every model, along every axis, with its declared shape and the checksum made to match."""
    path = tmp_path / "m.safetensors"
    save_model(path, make_model(name)[0])
    head, arrays = contents(path)
    for key, a in arrays.items():
        for axis in range(a.ndim):
            if a.shape[axis] == 1 or free(key, a, axis):
                continue
            cut = np.ascontiguousarray(np.take(a, [0], axis=axis))
            forge(path, head, arrays | {key: cut})
            refused(path, f"{key} is of shape")
            structure = json.loads(head["structure"])
            node = structure
            for part in key.split("."):
                node = node[int(part)] if isinstance(node, list) else node["fields"][part]
            node["shape"] = list(cut.shape)
            forge(path, head | {"structure": json.dumps(structure)}, arrays | {key: cut})
            refused(path)


def test_forged_values(saved):
    head, arrays = contents(saved)
    key = "decoder.0.layer.b"
    for bad, said in (
        (arrays[key] * np.nan, "not finite"),
        (np.full_like(arrays[key], np.inf), "not finite"),
        (np.full_like(arrays[key], -3e38), "products are not finite"),
        (arrays[key].astype(np.int32), "int32, not of floats"),
        (arrays[key].astype(np.float64), "float64"),
        (arrays[key][None], "shape"),
    ):
        forge(saved, head, arrays | {key: bad})
        refused(saved, said)
    forge(saved, head, arrays | {"decoder.9.layer.b": arrays[key]})
    refused(saved, "not part of the model")
    forge(saved, head, {k: v for k, v in arrays.items() if k != key})
    refused(saved, f"{key} is missing")
    save_file(arrays | {key: arrays[key] + 1}, saved, metadata=head)
    refused(saved, "checksum")


def test_types_of_safetensors_that_numpy_lacks(tmp_path):
    path = tmp_path / "m.safetensors"
    for kind, bits in {"F8_E4M3": 8, "F8_E5M2": 8, "BF16": 16, "F64": 64, "C64": 64, "F4": 4}.items():
        head = {"__metadata__": {"format": "darn-model", "version": "2", "structure": "{}", "info": "{}", "sha256": ""}}
        head["a"] = {"dtype": kind, "shape": [2], "data_offsets": [0, bits // 4]}
        text = json.dumps(head).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(bits // 4))
        refused(path)
        with pytest.raises(DarnError, match="checkpoint"):
            read_host(path)
        with pytest.raises(DarnError, match="checkpoint"):
            load_checkpoint(path, ())


@pytest.mark.parametrize("name", ["eonade", "on a grid, conv, 1"])
def test_orders_must_be_orders(name, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(path, make_model(name)[0])
    head, arrays = contents(path)
    (key,) = (k for k in arrays if k.endswith(("orders", "places")))
    forge(path, head, arrays | {key: np.zeros_like(arrays[key])})
    refused(path)


def changed(structure, *path, to):
    """The structure with the node at `path` replaced."""
    root = json.loads(structure)
    node = root
    for part in path[:-1]:
        node = node[part]
    if to is None:
        del node[path[-1]]
    else:
        node[path[-1]] = to
    return json.dumps(root)


LAYER = ("fields", "decoder", 0, "fields", "layer")
DEEP = "[" * 100_000 + "]" * 100_000
FORGERIES = {
    "not JSON": (lambda s: "[", "valid JSON"),
    "a number": (lambda s: "5", ""),
    "deep beyond Python's stack": (lambda s: DEEP, "valid JSON|nested"),
    "deep": (lambda s: "[" * 40 + "]" * 40, "nested"),
    "long": (lambda s: " " * (5 << 20) + s, "longer than"),
    "a key twice": (lambda s: s.replace('"n":', '"n":4,"n":', 1), "valid JSON"),
    "not a stack": (lambda s: json.dumps(json.loads(s)["fields"]["decoder"][0]), "missing|part|stack"),
    "an unknown class": (lambda s: changed(s, *LAYER, "module", to="os.system"), "import the package that defines it"),
    "another class": (lambda s: changed(s, *LAYER, "module", to="dense"), "no field"),
    "a class in the wrong place": (lambda s: changed(s, *LAYER, "module", to="conditional"), "no field"),
    "a long name": (lambda s: changed(s, *LAYER, "module", to="x" * 100_000), "no class is registered"),
    "an unknown field": (lambda s: changed(s, *LAYER, "fields", "block", to=3), "no field block"),
    "a field less": (lambda s: changed(s, *LAYER, "fields", "n", to=None), "field n of a .* is missing"),
    "an unknown node": (lambda s: changed(s, *LAYER, "fields", "n", to={"set": 3}), "neither a module nor an array"),
    "another size": (lambda s: changed(s, *LAYER, "fields", "n", to=3), ""),
    "a negative size": (lambda s: changed(s, *LAYER, "fields", "n", to=-4), ""),
    "a huge size": (lambda s: changed(s, *LAYER, "fields", "n", to=10**30), ""),
    "a float for a size": (lambda s: changed(s, *LAYER, "fields", "n", to=4.0), "field n"),
    "a string for a size": (lambda s: changed(s, *LAYER, "fields", "n", to="4"), "field n"),
    "true for a size": (lambda s: changed(s, *LAYER, "fields", "n", to=True), "field n"),
    "a number for a module": (lambda s: changed(s, *LAYER, "fields", "U", "fields", "b", to=1.5), "field b"),
    "context that is not there": (lambda s: changed(s, "fields", "n_context", to=2), "fit together"),
    "skip where it is nearest": (lambda s: changed(s, "fields", "skip", to=True), "fit together"),
    "a layer less": (lambda s: changed(s, "fields", "encoder", to=[]), "part of the model"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_structures(forgery, saved, capsys):
    head, arrays = contents(saved)
    forged, said = FORGERIES[forgery]
    text = forged(head["structure"])
    assert text != head["structure"]
    forge(saved, head | {"structure": text}, arrays)
    refused(saved, said)
    assert main(["sample", str(saved)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("info", ["{", "[]", "5", '{"a":' * 50_000 + "1" + "}" * 50_000])
def test_forged_info(info, saved):
    head, arrays = contents(saved)
    forge(saved, head | {"info": info}, arrays)
    refused(saved)


def test_groups_must_sum_to_the_units():
    model = Stack((Conditional(Groups(Factorial(6), (3, 1, 2))),))
    structure, arrays = describe(model)
    for groups in (
        [3, 1, 3],
        [6, 0],
        [7, -1],
        [],
        [2.0, 4],
        "6",
        [5, [1, 0]],
        [4, [9, True]],
        [5, [2**60, False]],
        [[]],
    ):
        with pytest.raises(DarnError):
            rebuild(changed(structure, *LAYER, "fields", "groups", to=groups), arrays)
    # One unit that is broadcast to six.
    structure, arrays = describe(Stack((Conditional(Groups(Factorial(1), (1,))),)))
    forged = changed(structure, *LAYER, "fields", "groups", to=[6])
    with pytest.raises(DarnError):
        rebuild(changed(forged, *LAYER, "fields", "n", to=6), arrays)


def test_a_grid_has_its_own_number_of_units():
    structure, arrays = describe(make_model("on a grid, fvsbn")[0])
    for n in (7, 10**30):
        with pytest.raises(DarnError, match="fit together"):
            rebuild(changed(structure, *LAYER, "fields", "W", "fields", "n", to=n), arrays)


# ---------------------------------------------------------------- what is not saved


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    model, _ = make_model("factorial")
    b = model.decoder[0].layer.b
    where = lambda m: m.decoder[0].layer.b  # noqa: E731
    for bad, options in (
        (b.at[0].set(jnp.nan), {}),
        (b.at[0].set(1e6), {"dtype": "float16"}),
        (b, {"dtype": "float64"}),
        (b[:1], {}),
    ):
        with pytest.raises(ValueError, match="finite|stored as|shape") as e:
            save_model(tmp_path / "m.safetensors", eqx.tree_at(where, model, bad), **options)
        assert isinstance(e.value, DarnError)
    assert list(tmp_path.iterdir()) == []


def test_a_class_without_a_name_is_not_saved(tmp_path):
    class Mine(eqx.Module):
        n: int = 3

    model, _ = make_model("factorial")
    model = eqx.tree_at(lambda m: m.decoder[0].layer, model, Mine())
    with pytest.raises(TypeError, match="Mine.*register"):
        save_model(tmp_path / "m.safetensors", model)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- classes of other packages


def urn():
    """A layer as another package would define it: each unit looks at how many of those before it are on."""

    @register("test-urn")
    class Urn(AbstractBinaryLayer):
        b: jax.Array
        w: jax.Array
        n: int = eqx.field(static=True)
        unroll: int = tuning_field(default=1)

        def __init__(self, n):
            self.n, self.b, self.w, self.unroll = n, jnp.zeros(n), jnp.zeros(n), 1

        def logits(self, y, c=None, *, order=0):
            return self.b + self.w * (jnp.cumsum(y) - y)

        def start(self, c=None, *, order=0):
            return jnp.zeros(())

        def read(self, state, j):
            return self.b[j] + self.w[j] * state

        def write(self, state, j, y_j):
            return state + y_j

    return Urn


def test_a_registered_class_is_trained_saved_and_loaded(tmp_path):
    model = randomised(Stack((Conditional(urn()(5)),)), 0)
    rows = Rows.from_array((np.random.default_rng(0).random((40, 5)) < 0.3).astype(int))
    try:
        found = fit(model, rows, rows, Training(epochs=2, batch=20), folder=tmp_path, progress=False)
        same(load_model(tmp_path)[0], found.model)
        del REGISTRY["test-urn"]
        text = refused(tmp_path / "model.safetensors", "import the package that defines it first")
        assert "'test-urn'" in text
        urn()
        assert load_model(tmp_path)[0].n_x == 5
    finally:
        REGISTRY.pop("test-urn", None)


def test_installed_packages_register_by_an_entry_point(tmp_path, monkeypatch):
    """`[project.entry-points.darn]` of an installed package is imported when a file names a class not known yet."""
    save_model(tmp_path / "m.safetensors", Stack((Conditional(urn()(5)),)))
    del REGISTRY["test-urn"]

    class Plugin:
        load = staticmethod(urn)

    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: [Plugin] if group == "darn" else [])
    try:
        assert load_model(tmp_path / "m.safetensors")[0].n_x == 5
    finally:
        REGISTRY.pop("test-urn", None)


def test_check_says_which_field():
    layer = make_layer("linear")[0]
    check(layer)
    with pytest.raises(DarnError, match=re.escape("the field b of a LinearAutoregressive is of shape (1,)")):
        check(eqx.tree_at(lambda m: m.b, layer, layer.b[:1]))


def test_a_full_disk_leaves_the_old_model(saved):
    """Files may not grow beyond 100 bytes for a moment, which is how a full disk looks to the writer."""
    before = saved.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(DarnError) as e:
            save_model(saved, make_model("3 skip")[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(e.value)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


# ---------------------------------------------------------------- through the API


def test_one_load(saved):
    """A file that was saved without a recipe opens too; only rows must then be named."""
    run = darn.load(saved)
    same(run.model, make_model("2")[0])
    assert run.info["a"] == 1
    with pytest.raises(DarnError, match="name the rows"):
        run.rows()
    assert not {"load_model", "open_run"} & set(dir(darn))
    save_model(saved, run.model, {"recipe": 7})
    with pytest.raises(DarnError, match="not a readable recipe"):
        darn.load(saved)
    with pytest.raises(FileNotFoundError):
        darn.load("no-such-model-anywhere")


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (darn.InputError, ValueError),
        (darn.FormatError, ValueError),
        (darn.InputTypeError, TypeError),
        (darn.NotFoundError, FileNotFoundError),
    ],
)
def test_errors_are_caught_as_what_they_are(ours, builtin):
    assert issubclass(ours, DarnError)
    assert issubclass(ours, builtin)
    assert str(ours("one sentence")) == "one sentence"


# ---------------------------------------------------------------- files of released formats

EXPECTED = json.loads((make_vectors.FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_released_formats_open_and_score_alike(name):
    path = make_vectors.FOLDER / f"{name}.safetensors"
    assert path.stat().st_size < 10_000
    model, info = load_model(path)
    assert info == {"vector": name}
    wanted = EXPECTED[name]
    found = make_vectors.scores(model, wanted)
    for k in ("log_p", "log_q"):
        np.testing.assert_allclose(found[k], wanted[k], atol=1e-4)
    assert max(map(abs, found["log_p"])) > 1


def test_every_vector_is_tested():
    stored = {p.stem for p in make_vectors.FOLDER.glob("*.safetensors")}
    assert stored == set(EXPECTED) == set(make_vectors.VECTORS)
