"""One of two processes that train together with `darn.fit`: run by tests/test_devices.py.

python tests/pair_probe.py PORT PROCESS FOLDER
"""

import contextlib
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import jax
import numpy as np
from mesh_probe import BASE, data, model, streamed

import darn
from darn import devices
from darn.errors import DarnError
from darn.training import Loop, _feed


def refused(do):
    try:
        do()
    except DarnError as e:
        return str(e)
    return ""


@contextlib.contextmanager
def ctrl_c(process, when):
    """Ctrl-C in the second process only, after the first call into the program when this is so."""
    advance = Loop.advance

    def pressed(self):
        advance(self)
        if process == 1 and when(self):
            os.kill(os.getpid(), signal.SIGINT)

    with mock.patch.object(Loop, "advance", pressed):
        yield


def main(port, process, folder):
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, cluster_detection_method="deactivate")
    _, train, valid = data()
    whole = darn.fit(model(), train, valid, BASE, folder=folder / "whole")
    with ctrl_c(process, lambda loop: loop.epoch == 1):
        cut = darn.fit(model(), train, valid, BASE, folder=folder / "cut")
    assert cut.interrupted
    assert cut.epochs < BASE.epochs
    if process == 0:
        shutil.copytree(folder / "cut", folder / "copy")
    resumed = darn.fit(model(), train, valid, BASE, folder=folder / "cut", resume=True)
    splits = streamed(folder)
    given = model(), splits.train, splits.valid, BASE
    with mock.patch.object(_feed, "CHUNK", 5 * BASE.batch * splits.train.bytes_a_row):
        stream = darn.fit(*given)
        with ctrl_c(process, lambda loop: loop.epoch == 1 and loop.feed.step > 0):
            cut = darn.fit(*given, folder=folder / "stream")
        assert cut.interrupted
        assert cut.steps % (len(splits.train) // BASE.batch)  # in the middle of an epoch
        stream_resumed = darn.fit(*given, folder=folder / "stream", resume=True)
    given = darn.zoo.darn(12, n_h=8, n_d=16, visible="linear", key=jax.random.key(0)), train, valid, BASE
    with ctrl_c(process, lambda loop: loop.epoch == 1):
        cut = darn.fit(*given, folder=folder / "shared", shard_weights=True)
    assert cut.interrupted
    shared = darn.fit(*given, folder=folder / "shared", resume=True, shard_weights=True)
    wide = darn.fit(*given)
    wider = lambda: darn.zoo.darn(12, n_h=5, n_d=3, visible="linear", key=jax.random.key(0))  # noqa: E731
    sentences = {
        "data": refused(lambda: darn.fit(model(), train.take(slice(process, None)), valid, BASE)),
        "options": refused(lambda: darn.fit(model(), train, valid, replace(BASE, epochs=5 + process))),
        "devices": refused(lambda: darn.fit(model(), train, valid, BASE, devices=1 + process)),
        "weights": refused(lambda: darn.fit((model, wider)[process](), train, valid, BASE)),
        "folder": refused(lambda: darn.fit(model(), train, valid, BASE, folder="/dev/null/run")),
        "batch": refused(lambda: darn.fit(model(), train, valid, replace(BASE, batch=3))),
    }
    flat = lambda fit: np.concatenate([np.ravel(w) for w in jax.tree.leaves(fit.model)])  # noqa: E731
    losses = np.array([row[k]["bound"] for row in whole.history for k in ("train", "valid")])
    stored = devices.training_mesh().size, len(jax.local_devices())
    fits = {"whole": whole, "resumed": resumed, "stream": stream, "stream_resumed": stream_resumed}
    fits |= {"shared": shared, "wide": wide}
    weights = {name: flat(fit) for name, fit in fits.items()}
    np.savez(folder / f"{process}.npz", losses=losses, stored=stored, **weights, **sentences)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
