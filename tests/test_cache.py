"""Laws of the cache of compiled programs: it saves compiling, stays small, and can do no harm."""

import json
import os
import subprocess
import sys

import pytest

from darn import cli
from darn.cache import _is_private, _machine, shrink

PROGRAM = """
import json, sys
from darn.cache import use_cache
folder = use_cache()
import jax
from jax import monitoring
found = []
monitoring.register_event_listener(lambda name, **_: found.append(name.rsplit("/", 1)[-1]))
value = jax.jit(lambda v: (v * 3 + 1).sum())(jax.numpy.arange(7.0))
print(json.dumps({"folder": str(folder), "value": float(value), "hits": found.count("cache_hits"),
                  "misses": found.count("cache_misses")}))
"""


def compiled(tmp_path, **env):
    """What a process found in the cache; it must print nothing else."""
    env = os.environ | {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "xdg")} | env
    env = {k: v for k, v in env.items() if v is not None}
    p = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=100)
    assert (p.returncode, p.stderr) == (0, ""), p.stderr
    found = json.loads(p.stdout)
    assert found["value"] == 70
    return found


def test_without_a_home_there_is_no_cache(tmp_path):
    assert compiled(tmp_path, DARN_CACHE="~nobody-of-this-name/x")["folder"] == "None"


def entries(folder):
    return sorted(p for p in folder.rglob("*-cache") if p.is_file())


def test_the_second_process_compiles_nothing_and_a_broken_cache_does_no_harm(tmp_path):
    first = compiled(tmp_path, DARN_CACHE=None)
    folder = tmp_path / "xdg" / "darn" / "compiled"
    assert first["folder"].startswith(str(folder))
    assert (first["hits"], first["misses"]) == (0, len(entries(folder)))
    assert first["misses"] > 1
    again = compiled(tmp_path, DARN_CACHE=str(folder))
    assert (again["hits"], again["misses"]) == (first["misses"], 0)
    assert oct(entries(folder)[0].parent.stat().st_mode)[-3:] == "700"
    for i, path in enumerate(entries(folder)):  # cut short, or full of noise
        path.write_bytes(path.read_bytes()[:-20] if i % 2 else b"noise" * 100)
    assert compiled(tmp_path, DARN_CACHE=str(folder))["hits"] == 0


def test_a_folder_that_others_can_write_to_is_no_cache(tmp_path):
    """They could put programs there."""
    for mode, of in ((0o777, "compiled"), (0o770, "compiled"), (0o777, ".")):
        folder = tmp_path / f"{mode:o}{of}" / "compiled"
        inner = folder / _machine()
        inner.mkdir(parents=True, mode=0o700)
        assert _is_private(inner)
        (inner if of == "compiled" else folder).chmod(mode)
        assert not _is_private(inner)
    folder.chmod(0o1777)  # as /tmp
    assert _is_private(inner)
    inner.chmod(0o777)
    assert compiled(tmp_path, DARN_CACHE=str(folder))["folder"] == "None"


def test_a_folder_that_cannot_be_written_is_no_cache(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert compiled(tmp_path, DARN_CACHE=str(file / "x"))["folder"] == "None"


def test_the_cache_of_a_user_of_jax_stays(tmp_path):
    own = tmp_path / "own"
    found = compiled(tmp_path, DARN_CACHE=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(own))
    assert found["folder"] == str(own)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(("words", "cache"), [([], True), (["--no-cache"], False)])
def test_commands_use_the_cache_unless_told_otherwise(words, cache, tmp_path, monkeypatch):
    used = []
    monkeypatch.setattr("darn.cli._base.use_cache", lambda: used.append(True))
    assert cli.main(["eval", str(tmp_path / "missing"), *words]) == 2
    assert bool(used) == cache


def test_the_files_not_used_for_the_longest_time_go_first(tmp_path):
    for i, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (0, 100 + i) if name != "a" else (500, 0))  # "a" is old, but was read of late
    shrink(tmp_path, 40)
    assert {p.name for p in tmp_path.iterdir()} == set("abcd")
    shrink(tmp_path, 25)
    assert {p.name for p in tmp_path.iterdir()} == set("ad")
