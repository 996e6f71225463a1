"""The package as users install it: a wheel, not a checkout. And the models that do not come with it."""

import io
import os
import shutil
import site
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import darn
from darn.errors import DarnError
from darn.runs import pretrained

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSIDE = PROJECT["tool"]["setuptools"]["data-files"]["share/darn/models"]


def call(*command, **options):
    done = subprocess.run([str(v) for v in command], capture_output=True, text=True, timeout=280, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the checkout."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "darn", copy / "darn", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", *INSIDE):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, copy)
    (found,) = out.glob("*.whl")
    return found


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as z:
        sizes = {i.filename: i.file_size for i in z.infolist()}
    models = {name: size for name, size in sizes.items() if name.endswith(".safetensors")}
    assert {Path(name).name for name in models} == {Path(name).name for name in INSIDE}
    assert sum(models.values()) <= 5_000_000
    assert wheel.stat().st_size <= 6_000_000
    ours = {p.relative_to(ROOT).as_posix() for p in (ROOT / "darn").rglob("*") if p.suffix in (".py", ".pyi", ".txt")}
    assert ours <= set(sizes)
    assert "darn/py.typed" in sizes
    assert not [name for name in sizes if name.split("/")[0] in ("tests", "benchmarks", "results")]


@pytest.mark.slow
def test_an_installed_wheel_works(wheel, tmp_path):
    """In an environment of its own, far from the checkout; only the dependencies are shared, to save the time."""
    home = tmp_path / "env"
    call(sys.executable, "-m", "venv", "--without-pip", home)
    call(sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "-q", "--no-deps", wheel)
    (packages,) = home.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text("\n".join(site.getsitepackages()))
    work = tmp_path / "work"
    work.mkdir()
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DARN_MODELS_URL")}
    env |= {"DARN_DATA": str(tmp_path / "data"), "JAX_PLATFORMS": "cpu"}
    run = lambda *command: call(home / "bin" / command[0], *command[1:], cwd=work, env=env)  # noqa: E731
    place, number = run("python", "-c", "import darn; print(darn.__file__); print(darn.__version__)").split()
    assert Path(place).is_relative_to(home)
    assert number == darn.__version__
    listed = run("darn", "models")
    assert all(Path(name).stem in listed for name in INSIDE)
    run("darn", "sample", "mnist-16", "-n", "5", "--seed", "1", "--out", "new.npy")
    assert np.load(work / "new.npy").shape == (5, 784)
    run("python", "-c", "import darn; assert darn.load('adult').model.n_x == 123")


def test_one_version():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert version("darn") == darn.__version__


# ---------------------------------------------------------------- models by name


def test_the_list_of_checksums_is_of_the_models_here(tmp_path, monkeypatch):
    """`python -m darn.runs.pretrained` writes it anew."""
    monkeypatch.setattr(pretrained, "CHECKSUMS", tmp_path / "models.txt")
    pretrained.write_checksums()
    assert (tmp_path / "models.txt").read_text() == (ROOT / "darn" / "runs" / "models.txt").read_text()


class Answer(io.BytesIO):
    def __init__(self, data, url):
        super().__init__(data)
        self.url, self.length = url, 0


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A machine without models, and a server of them: a function that says what it answers."""
    monkeypatch.setattr(pretrained, "folders", lambda: [tmp_path / "models"])
    monkeypatch.setattr(pretrained, "data_dir", lambda: tmp_path)
    monkeypatch.setenv("DARN_MODELS_URL", "https://models.example/")
    asked = []

    def answer(data, url=None):
        def urlopen(given, timeout):
            asked.append(given)
            return Answer(data, url or given)

        monkeypatch.setattr("urllib.request.urlopen", urlopen)
        return asked

    return answer


CONTENT = (ROOT / "results" / "models" / "mob-dna.safetensors").read_bytes()


def test_a_model_is_downloaded_once(server, tmp_path):
    asked = server(CONTENT)
    for _ in range(2):
        path = pretrained.find("mob-dna")
        assert path == tmp_path / "models" / "mob-dna.safetensors"
        assert path.read_bytes() == CONTENT
    assert asked == ["https://models.example/mob-dna.safetensors"]


@pytest.mark.parametrize(
    ("data", "url", "said"),
    [
        (CONTENT[:-1] + b"x", None, "hash"),
        (CONTENT, "http://models.example/mob-dna.safetensors", "not https"),
        (CONTENT + bytes(1 << 20), None, "larger than"),
    ],
)
def test_bad_downloads_leave_nothing(data, url, said, server, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "MAX_BYTES", 1 << 20)
    server(data, url)
    with pytest.raises(DarnError, match=said) as e:
        pretrained.find("mob-dna")
    assert "\n" not in str(e.value)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_without_an_address_nothing_is_downloaded(server, monkeypatch):
    asked = server(CONTENT)
    monkeypatch.setenv("DARN_MODELS_URL", "http://models.example")
    with pytest.raises(ValueError, match="must be an https address"):
        pretrained.find("mob-dna")
    monkeypatch.delenv("DARN_MODELS_URL")
    with pytest.raises(FileNotFoundError, match="DARN_MODELS_URL"):
        pretrained.find("mob-dna")
    with pytest.raises(FileNotFoundError, match="did you mean mob-dna"):
        pretrained.find("mob-dns")
    assert asked == []
