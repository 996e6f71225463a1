"""One of two processes that train together with `darn.fit`: run by tests/test_devices.py.

python tests/pair_probe.py PORT PROCESS FOLDER
"""

import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from mesh_probe import BASE, data, model

import darn
from darn import devices
from darn.errors import DarnError
from darn.training import Loop


def refused(do):
    try:
        do()
    except DarnError as e:
        return str(e)
    return ""


def main(port, process, folder):
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, cluster_detection_method="deactivate")
    _, train, valid = data()
    whole = darn.fit(model(), train, valid, BASE, folder=folder / "whole")
    # Ctrl-C in the second process only, after the first epoch.
    advance = Loop.advance

    def pressed(self):
        advance(self)
        if process == 1 and self.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    Loop.advance = pressed
    cut = darn.fit(model(), train, valid, BASE, folder=folder / "cut")
    Loop.advance = advance
    assert cut.interrupted
    assert cut.epochs < BASE.epochs
    if process == 0:
        shutil.copytree(folder / "cut", folder / "copy")
    resumed = darn.fit(model(), train, valid, BASE, folder=folder / "cut", resume=True)
    sentences = {
        "data": refused(lambda: darn.fit(model(), train.take(slice(process, None)), valid, BASE)),
        "options": refused(lambda: darn.fit(model(), train, valid, replace(BASE, epochs=5 + process))),
        "folder": refused(lambda: darn.fit(model(), train, valid, BASE, folder="/dev/null/run")),
        "batch": refused(lambda: darn.fit(model(), train, valid, replace(BASE, batch=3))),
    }
    flat = lambda fit: np.concatenate([np.ravel(w) for w in jax.tree.leaves(fit.model)])  # noqa: E731
    losses = np.array([row[k]["bound"] for row in whole.history for k in ("train", "valid")])
    stored = devices.training_mesh().size, len(jax.local_devices())
    np.savez(
        folder / f"{process}.npz", losses=losses, whole=flat(whole), resumed=flat(resumed), stored=stored, **sentences
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
