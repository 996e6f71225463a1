"""Commands that are killed while they work: their output is whole, or what was there before."""

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from darn.cli import main
from fuzz.drive import SilentChange
from fuzz.folders import BITS
from fuzz.kills import ended, forked

COMMANDS = {
    "compress": "compress run x.npy out.drn --quiet",
    "decompress": "decompress run x.drn out.npy --quiet",
    "sample": "sample run -n 500 --seed 1 --out out.csv",
    "encode": "encode run x.npy --out out.npy",
    "complete": "complete run x.npy --hide lower --samples 2 --out out.npy",
    "eval": "eval run x.npy --per-row out.csv",
    "report": "report run --rows 4 --samples 2 --repeats 1 --out out.html",
}
SWEEP = "sweep x.npy --grid lr=1e-2,1e-3 --n_h 2 --epochs 4 --validate_every 2 --checkpoint_every 0 --quiet --out sweep"


class Commands:
    """A command, killed at a random moment, with an older file of its output's name or none."""

    def __init__(self, folder: Path):
        self.folder = folder / "home"
        self.folder.mkdir()
        np.save(self.folder / "x.npy", np.tile(BITS, (50, 1)))
        self.run("train x.npy --out run --n_h 2 --epochs 2 --quiet")
        self.run("compress run x.npy x.drn --quiet")
        self.wanted, self.seconds = {}, {}
        for name, words in COMMANDS.items():
            for _ in range(2):  # the second time, its programs are compiled
                began = time.monotonic()
                self.run(words)
                self.seconds[name] = time.monotonic() - began
            self.wanted[name] = self.out(words).read_bytes()
            self.out(words).unlink()
        for _ in range(2):
            shutil.rmtree(self.folder / "sweep", ignore_errors=True)
            began = time.monotonic()
            self.run(SWEEP)
            self.seconds["sweep"] = time.monotonic() - began
        self.swept = self.models()

    def out(self, words: str) -> Path:
        return self.folder / next(word for word in words.split() if word.startswith("out."))

    def start(self, words: str) -> int:
        def work() -> int:
            os.chdir(self.folder)
            return main(words.split())

        return forked(work, self.folder / "said.txt")

    def run(self, words: str) -> None:
        if ended(self.start(words)):
            raise RuntimeError((self.folder / "said.txt").read_text())

    def models(self) -> dict[str, dict[str, bytes]]:
        """The files of the sweep, and the weights of its models."""
        files = sorted(p for p in (self.folder / "sweep").rglob("*") if p.is_file())
        arrays = {str(p.relative_to(self.folder)): load_file(p) if p.suffix == ".safetensors" else {} for p in files}
        return {name: {k: v.tobytes() for k, v in held.items()} for name, held in arrays.items()}

    def sweep(self, rng: np.random.Generator) -> str:
        """A sweep, killed and resumed: the same models and no other files."""
        out, status = self.folder / "sweep", -signal.SIGKILL
        shutil.rmtree(out)
        for wait in (*(self.seconds["sweep"] * rng.uniform(0.1, 0.9, 2)), None):
            pid = self.start(SWEEP + " --resume" * (out / "sweep.json").exists())
            if wait is not None:
                time.sleep(float(wait))
                os.kill(pid, signal.SIGKILL)
            status = ended(pid)
            if status == 0:
                break
        if status or self.models() != self.swept:
            raise SilentChange(f"sweep: another one, after {status}: {(self.folder / 'said.txt').read_text()[-300:]}")
        return "resumed"

    def __call__(self, rng: np.random.Generator, _: Path) -> str:
        name = str(rng.choice([*COMMANDS, "sweep"]))
        if name == "sweep":
            return self.sweep(rng)
        out = self.out(COMMANDS[name])
        before = b"older" if rng.random() < 0.5 else None
        if before:
            out.write_bytes(before)
        pid = self.start(COMMANDS[name])
        time.sleep(self.seconds[name] * float(rng.uniform(0.3, 1)))
        os.kill(pid, signal.SIGKILL)
        status = ended(pid)
        found = out.read_bytes() if out.exists() else None
        for path in [*self.folder.glob(".out-*"), out]:
            path.unlink(missing_ok=True)
        if found not in (before, self.wanted[name]) or (not status and found == before):
            raise SilentChange(f"{name}: half an output, of {len(found or b'')} bytes, after {status}")
        return "killed" if status else "done before"
