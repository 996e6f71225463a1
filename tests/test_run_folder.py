"""Laws of run folders: one process at a time, and whatever is killed can be started again or resumed."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from safetensors.numpy import load_file

from darn.errors import DarnError
from darn.files import atomic, locked
from darn.files._lock import LOCK
from darn.runs import folder
from darn.runs.place import WRITTEN, is_new
from darn.runs.recipe import Recipe, override
from darn.runs.run import load

BITS = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(np.uint8)


@pytest.fixture
def recipe(tmp_path):
    np.save(tmp_path / "own.npy", BITS)
    fields = {"source": str(tmp_path / "own.npy"), "n_h": (2,), "n_d": (), "epochs": 3, "validate_every": 1}
    return override(Recipe(), fields)


def contents(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def process(code, *argv):
    """A Python process of its own, its standard output ours to read."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, argv)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


HOLD = """
    import sys
    from darn.files import locked
    with locked(sys.argv[1], []):
        print("held", flush=True)
        sys.stdin.read()
"""


def hold(path):
    """A process that holds the folder until it is killed."""
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(path)]
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None
    assert p.stdout.readline() == "held\n"
    return p


def test_a_second_process_is_turned_away(recipe, tmp_path):
    out = tmp_path / "run"
    folder.train(recipe, out, progress=False)
    holder = hold(out)
    before = contents(tmp_path)
    for other, resume in ((out, True), (out, False)):
        with pytest.raises(DarnError, match="another process|exists already"):
            folder.train(recipe, other, resume=resume, progress=False)
    with pytest.raises(DarnError, match="another process"):
        folder.train(recipe, out, resume=True, progress=False)
    assert contents(tmp_path) == before
    holder.kill()  # however it ends, the lock ends with it
    holder.communicate()
    assert folder.train(recipe, out, resume=True, progress=False).epochs == 3


def test_two_starts_in_one_new_folder(recipe, tmp_path, monkeypatch):
    """Both find the folder unused; the one that locks it first wins, the other writes nothing."""
    out = tmp_path / "deep" / "run"
    real = folder.new_model
    holders = []

    def overtaken(*args):
        holders.append(hold(out))
        return real(*args)

    monkeypatch.setattr(folder, "new_model", overtaken)
    with pytest.raises(DarnError, match="another process"):
        folder.train(recipe, out, progress=False)
    assert contents(tmp_path / "deep") == {"run/.lock": b""}
    holders[0].kill()
    holders[0].communicate()

    def finished(*args):
        monkeypatch.setattr(folder, "new_model", real)
        folder.train(recipe, out, progress=False)
        return real(*args)

    monkeypatch.setattr(folder, "new_model", finished)
    with pytest.raises(DarnError, match="exists already"):
        folder.train(recipe, out, progress=False)
    assert load(out).recipe == recipe


def test_a_lock_is_on_the_file_that_is_there(tmp_path, monkeypatch):
    """The last holder may remove the folder while another is about to lock it."""
    real, removed = fcntl.flock, []

    def slow(handle, how):
        if not removed:
            removed.append(True)
            shutil.rmtree(tmp_path / "run")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with locked(tmp_path / "run", WRITTEN):
        assert (tmp_path / "run" / LOCK).exists()
        with pytest.raises(DarnError, match="another process"), locked(tmp_path / "run", WRITTEN):
            pass
    with locked(tmp_path / "run", WRITTEN):
        pass


KILLED = """
    import os, signal, sys
    from darn.runs import folder
    from darn.runs.recipe import Recipe, override

    name, when = sys.argv[3], sys.argv[4]
    real = os.replace

    def replace(source, target):
        if str(target).endswith(name):
            if when == "after":
                real(source, target)
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)

    os.replace = replace
    fields = {"source": sys.argv[1], "n_h": (2,), "n_d": (), "epochs": 3, "validate_every": 1, "checkpoint_every": 0.0}
    folder.train(override(Recipe(), fields), sys.argv[2], progress=False)
"""


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("recipe.json", "before"),
        ("recipe.json", "after"),
        ("model.safetensors", "before"),
        ("model.safetensors", "after"),
        ("checkpoint.safetensors", "before"),
    ],
)
def test_killed_while_writing(name, when, recipe, tmp_path):
    """What SIGKILL leaves behind is started again or resumed, ends in the same weights, and is swept."""
    recipe = recipe.replace(checkpoint_every=0.0)
    out = tmp_path / "run"
    p = process(KILLED, recipe.data.source, out, name, when)
    _, err = p.communicate(timeout=120)
    assert p.returncode == -signal.SIGKILL, err
    left = [f for f in os.listdir(out) if f.startswith(".") and f != LOCK]
    assert bool(left) == (when == "before")
    started = (out / "recipe.json").exists()
    assert started == (name != "recipe.json" or when == "after")
    folder.train(recipe, out, resume=started, progress=False)
    assert not [f for f in os.listdir(out) if f.startswith(".") and f != LOCK]
    folder.train(recipe, tmp_path / "whole", progress=False)
    a, b = (load(tmp_path / d) for d in ("run", "whole"))
    assert a.recipe == b.recipe
    mine, whole = (load_file(tmp_path / d / "model.safetensors") for d in ("run", "whole"))
    assert all((mine[k] == whole[k]).all() for k in whole)


def test_unused_folders(tmp_path):
    assert is_new(tmp_path / "none")
    for name in ("empty", "remains", "taken", "foreign"):
        (tmp_path / name).mkdir()
    assert is_new(tmp_path / "empty")
    with pytest.raises(RuntimeError), atomic(tmp_path / "remains" / "recipe.json") as f:
        shutil.copy(f, f"{f}.kept")
        os.rename(f"{f}.kept", tmp_path / "kept")
        kept = f.name
        raise RuntimeError
    os.rename(tmp_path / "kept", tmp_path / "remains" / kept)
    (tmp_path / "remains" / LOCK).touch()
    assert is_new(tmp_path / "remains")
    (tmp_path / "taken" / "recipe.json").touch()
    (tmp_path / "foreign" / ".profile").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "foreign", "file", "link"):
        assert not is_new(tmp_path / name)
    with locked(tmp_path / "remains", WRITTEN), locked(tmp_path / "foreign", WRITTEN):
        pass
    assert os.listdir(tmp_path / "remains") == [LOCK]
    assert sorted(os.listdir(tmp_path / "foreign")) == [LOCK, ".profile"]


def test_a_failed_start_leaves_nothing(recipe, tmp_path, monkeypatch):
    def failing(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("darn.training.fit", failing)
    (tmp_path / "mine").mkdir()
    for out in ("new/deep", "mine"):
        with pytest.raises(KeyboardInterrupt):
            folder.train(recipe, tmp_path / out, progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "own.npy"]
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b"[]", b'{"recipe": 3}', b"\xff\xfe", b"[" * 100_000, b'{"recipe": [], "data": {}, "made": {}}'],
)
def test_a_damaged_recipe_is_refused(damaged, recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_bytes(damaged)
    before = contents(tmp_path)
    with pytest.raises(DarnError, match=r"recipe\.json( is damaged|: not a readable recipe)"):
        folder.train(recipe, tmp_path / "run", resume=True, progress=False)
    assert contents(tmp_path) == before


def test_a_recipe_of_another_kind_is_refused(recipe, tmp_path):
    folder.train(recipe, tmp_path / "run", progress=False)
    path = tmp_path / "run" / "recipe.json"
    path.write_text(path.read_text().replace('"epochs": 3', '"epochs": "three"'))
    with pytest.raises(DarnError, match=r"recipe\.json: .*epochs must be a whole number"):
        folder.train(recipe, tmp_path / "run", resume=True, progress=False)


def test_the_lock_makes_no_file_elsewhere(recipe, tmp_path):
    """A run folder may come from a stranger, with links in it."""
    folder.train(recipe, tmp_path / "run", progress=False)
    (tmp_path / "run" / LOCK).unlink()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DarnError, match="cannot write"):
        folder.train(recipe, tmp_path / "run", resume=True, progress=False)
    assert not (tmp_path / "elsewhere").exists()


def test_links_in_a_run_folder_are_replaced_not_followed(recipe, tmp_path):
    folder.train(recipe, tmp_path / "run", progress=False)
    kept = {}
    for name in ("metrics.jsonl", "model.safetensors"):
        kept[tmp_path / name] = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).rename(tmp_path / name)
        (tmp_path / "run" / name).symlink_to(tmp_path / name)
    folder.train(recipe, tmp_path / "run", resume=True, progress=False)
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert not any((tmp_path / "run" / path.name).is_symlink() for path in kept)


def test_a_recipe_is_not_read_beyond_its_limit(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / "recipe.json", "wb") as f:
        f.truncate(1 << 40)  # a sparse file: reading it would take all memory
    with pytest.raises(DarnError, match="larger than"):
        folder.train(recipe, tmp_path / "run", resume=True, progress=False)
