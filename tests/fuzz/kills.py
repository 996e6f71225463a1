"""Trainings that are killed, raced, or find the disk full: resumed, they end in the same bits and leave nothing else.

Every training is `darn train` in a child process, forked before JAX has started a device, so that none pays for the
imports.
"""

import contextlib
import errno
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import darn.inference.code  # noqa: F401  (what the command imports late)
from darn.cli import main
from darn.files import atomic
from darn.runs import folder as runs
from darn.training import _fit
from fuzz.drive import SilentChange
from fuzz.folders import BITS

TRAININGS: dict[str, str] = {
    "plain": "--n_h 2",
    "no code": "--n_h=",
    "two layers, skip": "--n_h 3,2 --skip",
    "deterministic": "--n_h 2 --n_d 3 --activation relu",
    "nade": "--n_h 2 --visible nade --n_nade 3",
    "eonade": "--n_h= --visible eonade --n_nade 3 --n_orderings 2",
    "sparse": "--n_h 2 --sparsity 0.3",
    "noise": "--n_h 2 --noise matrix",
    "averaged, clipped": "--n_h 2 --average 0.9 --clip 0.5",
    "weighted": "--n_h 2 --n_samples 2 --weighted",
    "disarm": "--n_h 2 --estimator disarm",
}
USUAL = "--epochs 12 --validate_every 2 --checkpoint_every 0 --patience 0 --quiet"
AIMED = 3  # kills of one training, aimed at the writes of a file
WRITES = ("checkpoint.safetensors", "model.safetensors", "recipe.json", "metrics.jsonl")


def forked(work: Callable[[], int], said: Path) -> int:
    """The process id of a child that does the work and ends with its status; `said` gets what it writes."""
    gc.freeze()  # the children look at what they made only
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.pop("XLA_FLAGS", None)  # as users have it
        with open(said, "w", buffering=1) as sys.stderr, contextlib.redirect_stdout(sys.stderr):
            try:
                status = work()
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(status)
    return 0


def ended(pid: int) -> int:
    """The exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def aim(name: str, when: str, times: int) -> None:
    """Kills this process at a write of the file: half way through it, before it has its name, or just after."""
    left, real_replace, real_add = [times], os.replace, _fit.Journal.add

    def replace(source, target):
        hit = str(target).endswith(name)
        left[0] -= hit
        if hit and left[0] < 0 and when != "after":
            if when == "during":
                os.truncate(source, os.path.getsize(source) // 2)
            kill()
        real_replace(source, target)
        if hit and left[0] < 0:
            kill()

    def add(journal, row):
        left[0] -= 1
        if left[0] < 0:
            with open(journal.path, "a") as f:
                f.write(json.dumps(row)[:20])
            kill()
        real_add(journal, row)

    os.replace = replace
    if name == "metrics.jsonl":
        _fit.Journal.add = add  # type: ignore[method-assign]


class Kills:
    """One training, stopped in some way and resumed until it ends."""

    def __init__(self, way: str, folder: Path):
        self.way, self.folder = way, folder
        self.known = folder.parent.parent / "whole"  # what each training gives when it is left alone
        np.save(folder / "own.npy", BITS)

    def train(self, name: str, out: Path, resume: bool = False) -> int:
        words = ["train", str(self.folder / "own.npy"), "--out", str(out), *USUAL.split(), *TRAININGS[name].split()]
        return main([*words, *["--resume"] * resume])

    def start(self, name: str, out: Path, before: Callable[[], object] = lambda: None, new: bool = False) -> int:
        """A child that trains, or resumes if there is a run; `before` is called in it first."""
        resume = (out / "recipe.json").exists() and not new

        def work() -> int:
            before()
            return self.train(name, out, resume)

        return forked(work, self.said)

    @property
    def said(self) -> Path:
        return self.folder / "said.txt"

    def whole(self, name: str) -> tuple:
        """(the outcome of the training left alone, its seconds with programs compiled)."""
        path = self.known / f"{name}.pickle"
        if not path.exists():
            for _ in range(2):
                out = self.folder / "whole"
                shutil.rmtree(out, ignore_errors=True)
                began = time.monotonic()
                if ended(self.start(name, out)):
                    raise RuntimeError(self.said.read_text())
            made = self.outcome(out), time.monotonic() - began
            with atomic(path) as f:
                f.write_bytes(pickle.dumps(made))
        return pickle.loads(path.read_bytes())

    def outcome(self, out: Path):
        """Files, weights and validations. The means over training rows may differ in their last bit: they are summed
        call by call, and how many epochs a call takes depends on the clock."""
        arrays = load_file(out / "model.safetensors")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        weights = {k: v.tobytes() for k, v in arrays.items()}
        return sorted(os.listdir(out)), weights, [line | {"train": None} for line in lines]

    def __call__(self, rng: np.random.Generator, folder: Path) -> str:
        name = str(rng.choice(list(TRAININGS)))
        wanted, seconds = self.whole(name)
        out = folder / "runs" / "run"
        shutil.rmtree(out.parent, ignore_errors=True)
        stops = getattr(self, f"_{self.way.split()[0]}")(rng, name, out, seconds)
        status = ended(self.start(name, out))
        if status:
            raise SilentChange(f"{name}: stuck after {stops} with {status}: {self.said.read_text()[-300:]}")
        found = self.outcome(out)
        if found[0] != wanted[0]:
            raise SilentChange(f"{name}: files {found[0]} after {stops}")
        if found != wanted:
            raise SilentChange(f"{name}: other weights or metrics after {stops}")
        return f"stopped {sum(map(bool, stops))} times"

    def refused(self, status: int) -> int:
        """The status of a child that may fail, but only with a sentence."""
        said = self.said.read_text()
        if status not in (0, 2) or "Traceback" in said or (status and said.count("darn: ") != 1):
            raise SilentChange(f"status {status}: {said[-300:]}")
        return status

    # Each way trains a few times, perhaps to the end, and returns the statuses: not 0 where the training was stopped.

    def _random(self, rng, name, out, seconds, times=3, before=lambda: None) -> list[int]:
        statuses = []
        for i in range(times):
            pid = self.start(name, out, before)
            time.sleep(float(rng.random()) * seconds * (1 - 0.2 * i))
            os.kill(pid, signal.SIGKILL)
            statuses.append(ended(pid))
        return statuses

    def _aimed(self, rng, name, out, seconds) -> list[int]:
        """At three writes of the file: by the first process, and by the two that resume what it began."""
        target, statuses = self.way.split()[1], []
        for i in range(AIMED):
            again = target == "recipe.json" and i < AIMED - 1  # once written, it is not written again
            when = str(rng.choice(["during", "before"] if again else ["during", "before", "after"]))
            times = int(rng.integers(3)) if target == "metrics.jsonl" or (i == 0 and not again) else 0
            statuses.append(ended(self.start(name, out, partial(aim, target, when, times))))
        if set(statuses) != {-signal.SIGKILL}:
            raise SilentChange(f"{name}: a write was never reached: {statuses}")
        return statuses

    def _full(self, rng, name, out, seconds) -> list[int]:
        """A disk on which no file can grow beyond some bytes."""
        most = int(rng.integers(400, 8000))  # enough for the sentence

        def before():
            import jax

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            jax.devices()
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        return [self.refused(ended(self.start(name, out, before)))]

    def _readonly(self, rng, name, out, seconds) -> list[int]:
        """A disk that takes no new files after some of them."""
        left = [int(rng.integers(0, 6))]

        def before():
            real = tempfile.mkstemp

            def mkstemp(*args, **more):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                return real(*args, **more)

            tempfile.mkstemp = mkstemp

        return [self.refused(ended(self.start(name, out, before)))]

    def _clock(self, rng, name, out, seconds) -> list[int]:
        """A clock that goes back by thirty years in the middle of the training, and a kill."""
        real = time.time
        back = real() + float(rng.random()) * seconds

        def before():
            time.time = lambda: real() - 1e9 * (real() > back)

        return self._random(rng, name, out, seconds, times=1, before=before)

    def _race(self, rng, name, out, seconds) -> list[int]:
        """Two processes: one wins, the other says so. They start within the time of a training, or resume at once."""
        resume = rng.random() < 0.5
        if resume:
            ended(self.start(name, out, lambda: aim("checkpoint.safetensors", "after", 0)))
        arrived = self.folder / "arrived"
        shutil.rmtree(arrived, ignore_errors=True)
        arrived.mkdir()

        def before():
            real = runs.locked

            def locked(folder, written):
                (arrived / str(os.getpid())).touch()
                while len(os.listdir(arrived)) < 2:
                    time.sleep(0.001)
                return real(folder, written)

            if resume:
                runs.locked = locked

        first = self.start(name, out, before, new=not resume)
        time.sleep(0 if resume else float(rng.random()) * seconds)
        second = self.start(name, out, before, new=not resume)
        statuses = [ended(first), ended(second)]
        if sorted(statuses) != [0, 2]:
            raise SilentChange(f"{name}: two processes ended with {statuses}: {self.said.read_text()[-300:]}")
        return statuses


WAYS = ("random", *(f"aimed {name}" for name in WRITES), "full disk", "readonly", "clock back", "race")

if sys.platform != "linux":
    raise ImportError("the kills need fork and flock")
