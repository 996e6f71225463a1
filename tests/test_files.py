"""Laws of files: what is saved comes back, what is damaged is refused, a name holds a whole file."""

import contextlib
import errno
import json
import resource

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import MODELS, joint, make_model, same, table
from safetensors.numpy import save_file

from darn.errors import DarnError
from darn.files import atomic
from darn.model_file import load_model, save_model

models = pytest.mark.parametrize("name", MODELS)


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


def refused(path):
    with pytest.raises(DarnError) as e:
        load_model(path)
    text = str(e.value)
    assert "\n" not in text
    assert path.name in text
    return text


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.safetensors"
    save_model(path, make_model("2")[0], {"a": 1})
    return path


def test_cut_short(saved):
    whole = saved.read_bytes()
    for cut in {0, 1, 7, 8, 9, 100, *range(200, len(whole), 331), len(whole) - 1}:
        saved.write_bytes(whole[:cut])
        refused(saved)


def test_foreign_files(tmp_path):
    path = tmp_path / "b.safetensors"
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    for content in (b"", b"hello", png, b"{}" * 500, b"\xff" * 1000, bytes(1000)):
        path.write_bytes(content)
        refused(path)
    save_file({"w": np.zeros(3)}, path)
    assert "not a darn model" in refused(path)
    save_file({"w": np.zeros(3)}, path, metadata={"format": "darn-checkpoint"})
    refused(path)


def test_newer_and_broken_heads(tmp_path):
    path = tmp_path / "c.safetensors"
    good = {"format": "darn-model", "version": "1", "info": "{}", "structure": "{}"}
    save_file({"w": np.zeros(3)}, path, metadata=good | {"version": "2"})
    assert "upgrade" in refused(path)
    stack = {"class": "Stack", "fields": {}}
    for head in (
        {"version": "one"},
        {"info": "{"},
        {"structure": "["},
        {"structure": json.dumps({"class": "os.system", "fields": {}})},
        {"structure": json.dumps({"array": "gone"})},
        {"structure": json.dumps(5)},
        {"structure": json.dumps({"class": "Dense", "fields": {"W": {"array": "w"}, "b": None}})},
        {"structure": json.dumps(stack)},
    ):
        save_file({"w": np.zeros(3)}, path, metadata=good | head)
        refused(path)
    save_file({"w": np.zeros(3)}, path, metadata={"format": "darn-model", "version": "1"})
    refused(path)


def test_flipped_bytes_are_refused_or_harmless(saved):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    head = 8 + int.from_bytes(whole[:8], "little")
    for where in (*range(8), *rng.integers(8, head, 250)):
        broken = bytearray(whole)
        broken[where] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(broken))
        with contextlib.suppress(DarnError):
            load_model(saved)


def test_no_model(tmp_path):
    refused(tmp_path / "none.safetensors")
    with pytest.raises(DarnError, match="no model"):
        load_model(tmp_path)


def test_strangers_are_not_saved(tmp_path):
    class Mine(eqx.Module):
        n: int = 3

    model, _ = make_model("factorial")
    model = eqx.tree_at(lambda m: m.decoder[0].layer, model, Mine())
    with pytest.raises(TypeError, match="Mine"):
        save_model(tmp_path / "m.safetensors", model)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- atomic


def fail(path, error):
    with atomic(path) as temporary:
        temporary.write_text("two, but only hal")
        raise error


def test_atomic_writes_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic(path) as temporary:
        temporary.write_text("one")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "one"
    with pytest.raises(RuntimeError, match="half way"):
        fail(path, RuntimeError("half way"))
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_atomic_makes_a_sentence_of_a_failed_write(number, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("one")
    with pytest.raises(DarnError) as e:
        fail(path, OSError(number, "as if"))
    assert "\n" not in str(e.value)
    assert "file.txt" in str(e.value)
    assert ("no space" in str(e.value)) == (number != errno.EACCES)
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


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
