"""The short run: a few files of each target with fixed seeds, and every bomb. `make fuzz` is the long one."""

import json
import os
import subprocess
import sys

import pytest

from fuzz import drive, readers
from fuzz.compressed import Compressed
from fuzz.folders import Folders
from fuzz.models import Models
from fuzz.packs import Packs
from fuzz.schemas import Schemas
from fuzz.tables import Tables

TARGETS = {
    "models": (Models, 20),
    "drn": (Compressed, 10),
    "folders": (Folders, 4),
    "packs": (Packs, 60),
    "schemas": (lambda _: Schemas(), 40),
    "bombs": (readers.Bombs, 0),
}

TRAINED = 0  # the first seed of tables of which some can be modelled


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_and_forged_files_are_refused(name, tmp_path):
    make, count = TARGETS[name]
    counts = drive.drive(name, make(tmp_path), tmp_path, count or len(readers.BOMBS), seed=0)
    assert counts.failures == []
    assert counts.outcomes["refused"] > 0


@pytest.mark.parametrize("ending", readers.FILES)
def test_damaged_files_of_users_are_refused_or_read(ending, tmp_path):
    counts = drive.drive(f"reader {ending}", readers.Reader(ending), tmp_path, 25, seed=0)
    assert counts.failures == []
    assert counts.outcomes["refused"] > 0


def test_random_tables_through_every_command(tmp_path):
    """Known cells and compressed files come back as they were, or a command refuses and leaves nothing."""
    counts = drive.drive("tables", Tables(tmp_path), tmp_path, 3, seed=TRAINED)
    assert counts.failures == []
    assert counts.outcomes["same"] > 0


def test_the_long_run_counts_the_same_in_any_number_of_processes(tmp_path):
    found = []
    for jobs in (1, 3):
        out = tmp_path / f"{jobs}.json"
        words = ["--only", "reader .p", "--readers", "30", "--jobs", str(jobs), "--out", str(out)]
        path = os.pathsep.join([str(drive.ROOT / "tests"), str(drive.ROOT)])
        subprocess.run([sys.executable, "-m", "fuzz", *words], env=os.environ | {"PYTHONPATH": path}, check=True)
        measured = {"seconds", "slowest_seconds", "peak_memory_mb"}
        targets = json.loads(out.read_text())["targets"]
        found.append({name: {k: v for k, v in row.items() if k not in measured} for name, row in targets.items()})
    assert found[0] == found[1]
    assert found[0]["reader .png"]["files"] == 30


def test_the_driver_sees_what_goes_wrong(tmp_path):
    """Tracebacks, silent changes, memory and time."""

    def fails(rng, _):
        kind = int(rng.integers(4))
        if kind == 0:
            raise KeyError("x")
        if kind == 1:
            raise drive.SilentChange("other rows")
        if kind == 2:
            raise drive.DarnError("a sentence")
        return "same"

    counts = drive.drive("fails", fails, tmp_path, 40, seed=0)
    assert counts.files == 40
    assert len(counts.failures) == 40 - counts.outcomes["same"] - counts.outcomes["refused"]
    assert {"traceback", "silent change", "refused", "same"} == set(counts.outcomes)


def test_a_process_that_holds_much_is_followed_by_another(tmp_path):
    """Every file is counted once, and no process is held to account for what many files have left in it."""
    code = """
import os, sys
from pathlib import Path
from fuzz import drive
drive._memory = lambda name: drive.MEMORY if name == "VmRSS" else 0
target = drive.Target("processes", 12, lambda folder: lambda rng, folder: str(os.getpid()))
(counts,) = drive.shared([target], Path(sys.argv[1]), 0, 1)
assert counts.files == len(counts.outcomes) == 12 and not counts.failures, counts
"""
    place = os.path.dirname(os.path.dirname(__file__))
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=os.environ | {"PYTHONPATH": place})
