"""Trainings that are killed, raced, or find the disk full: resumed, they end in the same bits and leave nothing else.

Every training is a child process, forked before JAX has started a device, so that none pays for the imports.
"""

import errno
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from darn.errors import DarnError
from darn.runs import folder as runs
from darn.runs import lock
from darn.training import _fit
from fuzz.drive import SilentChange
from fuzz.folders import recipe

TRAININGS: dict[str, dict] = {
    "plain": {},
    "no code": {"n_h": ()},
    "two layers, skip": {"n_h": (3, 2), "skip": True},
    "deterministic": {"n_d": (3,), "activation": "relu"},
    "nade": {"visible": "nade", "n_nade": (3,)},
    "eonade": {"visible": "eonade", "n_h": (), "n_nade": (3,), "n_orderings": 2},
    "sparse": {"sparsity": 0.3},
    "noise": {"noise": "matrix"},
    "averaged, clipped": {"average": 0.9, "clip": 0.5},
    "weighted": {"n_samples": 2, "weighted": True},
    "disarm": {"estimator": "disarm"},
}
WRITES = ("checkpoint.safetensors", "model.safetensors", "recipe.json", "metrics.jsonl")
EPOCHS = 12


def forked(work: Callable[[], None]) -> int:
    """The process id of a child that does the work; it ends with 0, 2 for a DarnError, 1 for anything else."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        work()
        status = 0
    except DarnError:
        status = 2
    finally:
        os._exit(status)
    return 0


def ended(pid: int) -> int:
    """The exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def aim(name: str, when: str, times: int) -> None:
    """Kills this process at a write of the file: before it has its name, just after, or half way through a line."""
    left, real_replace, real_add = [times], os.replace, _fit.Journal.add

    def replace(source, target):
        hit = str(target).endswith(name)
        left[0] -= hit
        if hit and left[0] < 0 and when == "before":
            kill()
        real_replace(source, target)
        if hit and left[0] < 0:
            kill()

    def add(journal, row):
        left[0] -= 1
        if left[0] < 0:
            with open(journal.path, "a") as f:
                f.write(str(row)[:20])
            kill()
        real_add(journal, row)

    os.replace = replace
    if name == "metrics.jsonl" and when == "during":
        _fit.Journal.add = add  # type: ignore[method-assign]


class Kills:
    """One training, stopped in some way and resumed until it ends."""

    def __init__(self, way: str, folder: Path):
        self.way, self.cache = way, folder / "cache"
        self.wanted: dict[str, tuple] = {}  # what each training gives when it is left alone
        self.seconds: dict[str, float] = {}

    def know(self, name: str, made, folder: Path) -> None:
        if name not in self.wanted:
            began, out = time.monotonic(), folder / "whole" / name
            assert ended(forked(lambda: self.train(made, out))) == 0, name
            self.wanted[name] = self.outcome(out)
            self.seconds[name] = time.monotonic() - began

    def train(self, made, out: Path, resume: bool = False) -> None:
        import jax

        jax.config.update("jax_compilation_cache_dir", str(self.cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        runs.train(made, out, resume=resume, progress=False)

    def outcome(self, out: Path):
        """Weights and validations. The means over training rows may differ in their last bit: they are summed call by
        call, and how many epochs a call takes depends on the clock."""
        arrays = load_file(out / "model.safetensors")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {k: v.tobytes() for k, v in arrays.items()}, [line | {"train": None} for line in lines]

    def __call__(self, rng: np.random.Generator, folder: Path) -> str:
        name = str(rng.choice(list(TRAININGS)))
        made = recipe(folder, epochs=EPOCHS, validate_every=2, **TRAININGS[name])
        self.know(name, made, folder)
        out = folder / "runs" / "run"
        shutil.rmtree(out.parent, ignore_errors=True)
        stopped = 0
        for attempt in range(6):
            resume = (out / "recipe.json").exists()
            status = getattr(self, f"_{self.way.split()[0]}")(rng, made, out, resume, name, attempt)
            stopped += status != 0
            if not status:
                break
        if status:
            raise SilentChange(f"{name}: still stopped after {attempt + 1} attempts, status {status}")
        self.check(out, name)
        return f"stopped {min(stopped, 2)} times" if stopped < 2 else "stopped twice or more"

    def check(self, out: Path, name: str) -> None:
        left = [f for f in os.listdir(out) if f.startswith(".") and f != lock.LOCK]
        if left:
            raise SilentChange(f"{name}: files left: {left}")
        if self.outcome(out) != self.wanted[name]:
            raise SilentChange(f"{name}: other weights or metrics after resuming")

    # Each way trains once, perhaps to the end; the last attempts are left alone.

    def _random(self, rng, made, out, resume, name, attempt) -> int:
        pid = forked(lambda: self.train(made, out, resume))
        if attempt < 2:
            time.sleep(float(rng.random()) * self.seconds[name])
            os.kill(pid, signal.SIGKILL)
        return ended(pid)

    def _aimed(self, rng, made, out, resume, name, attempt) -> int:
        target, when = self.way.split()[1], str(rng.choice(["before", "after", "during"]))
        times = int(rng.integers(0, 4)) if target != "recipe.json" else 0

        def work():
            if attempt == 0:
                aim(target, when, times)
            self.train(made, out, resume)

        return ended(forked(work))

    def _full(self, rng, made, out, resume, name, attempt) -> int:
        """A disk on which no file can grow beyond some bytes."""
        most = int(rng.integers(0, 8000))

        def work():
            if attempt == 0:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                import jax

                jax.devices()
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
                runs.train(made, out, resume=resume, progress=False)
            else:
                self.train(made, out, resume)

        return ended(forked(work))

    def _readonly(self, rng, made, out, resume, name, attempt) -> int:
        """A disk that takes no new files after some of them, and a clock that goes back."""
        left = [int(rng.integers(0, 6))]

        def work():
            if attempt == 0:
                real = tempfile.mkstemp

                def mkstemp(*args, **more):
                    left[0] -= 1
                    if left[0] < 0:
                        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                    return real(*args, **more)

                tempfile.mkstemp = mkstemp
                time.time = lambda: 0.0
                runs.train(made, out, resume=resume, progress=False)
            else:
                self.train(made, out, resume)

        return ended(forked(work))

    def _race(self, rng, made, out, resume, name, attempt) -> int:
        """Two processes at once: one wins, the other says so."""
        pids = [forked(lambda: self.train(made, out, resume)) for _ in range(2)]
        statuses = sorted(ended(pid) for pid in pids)
        if statuses != [0, 2]:
            raise SilentChange(f"{name}: two processes ended with {statuses}")
        return 0


WAYS = ("random", *(f"aimed {name}" for name in WRITES), "full disk", "readonly", "race")

if sys.platform != "linux":
    raise ImportError("the kills need fork and flock")
