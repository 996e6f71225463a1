"""What 1, 2, 4 and 8 devices compute, as one .npz file: run by tests/test_devices.py with 8 simulated devices.

JAX_NUM_CPU_DEVICES=8 python tests/mesh_probe.py OUT.npz
"""

import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import jax
import numpy as np

import darn
from darn import devices
from darn.codec import compress
from darn.config import Training
from darn.data import Columns, Rows, _pack_rows, _pack_write
from darn.inference import likelihood
from darn.inference.conditional import Conditional
from darn.inference.constrained import Variable
from darn.nn import _causal
from darn.training import DeviceRows, Hyper, Loop, Program, _feed

SIZES = (1, 2, 4, 8)
FEW = (1, 8)
COLLECTIVE = re.compile(r"= \S+ (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(")
# 20 rows a batch: 8 devices cannot divide them evenly. 16 steps an epoch, 64 in all.
BASE = Training(batch=20, epochs=4, lr=1e-3, validate_every=2, clip=1.0, weight_decay=1e-3, average=0.99)
SHARDED = {"averaged": {}, "noisy": {"noise": "matrix", "average": 0.0, "optimizer": "adam"}}
WEIGHED = Columns(weights="w")


def data():
    rng = np.random.default_rng(0)
    x = (rng.random((333, 12)) < rng.random(12)).astype(np.uint8)
    weights = (rng.random(333) + 0.5).astype(np.float32)
    return x, replace(Rows.from_array(x), weights=weights), Rows.from_array(x[:77])


def model():
    return darn.zoo.darn(12, n_h=4, n_d=3, visible="linear", key=jax.random.key(0))


def write_set(folder):
    """The rows of `data`, as a table with weights and as a packed set of it."""
    x, rows, _ = data()
    names = [f"x{j}" for j in range(x.shape[1])]
    lines = (",".join([*map(str, row), f"{w:.3f}"]) for row, w in zip(x.tolist(), rows.weights.tolist()))
    (folder / "rows.csv").write_text("\n".join([",".join([*names, "w"]), *lines]) + "\n")
    darn.data.pack_files([folder / "rows.csv"], folder / "set", columns=WEIGHED)


def streamed(folder):
    """The splits of the set, none of them in memory: chunks are of five steps, and parts of fewer."""
    with mock.patch.object(_pack_rows, "HELD", 0):
        return darn.data.load(folder / "set")


def trained_from_a_set(n, folder):
    """Weights, and the training rows of a set that is read while it is trained on."""
    splits = streamed(folder)
    with mock.patch.object(_feed, "CHUNK", 5 * 20 * splits.train.bytes_a_row):
        fit = darn.fit(model(), splits.train, splits.valid, BASE, devices=n)
    yield "streamed", np.concatenate([w.ravel() for w in jax.tree.leaves(fit.model)])
    held = darn.data.load(folder / "rows.csv", columns=WEIGHED)
    fit = darn.fit(model(), held.train, held.valid, BASE, devices=n)
    yield "held", np.concatenate([w.ravel() for w in jax.tree.leaves(fit.model)])


def sharded(train, valid):
    """Weights of models on one device and on eight that share the weights, and the bytes of state on each device."""
    stack = darn.zoo.darn(12, n_h=8, n_d=16, visible="linear", key=jax.random.key(0))
    for name, change in SHARDED.items():
        config = replace(BASE, **change)
        for n in FEW:
            fit = darn.fit(stack, train, valid, config, devices=n, shard_weights=True)
            yield f"sharded, {name}/{n}", np.concatenate([w.ravel() for w in jax.tree.leaves(fit.model)])
    with devices.using(8):
        mesh = devices.training_mesh()
    for name, shard in (("whole", False), ("shared", True)):
        rows = DeviceRows.put(train, mesh), DeviceRows.put(valid, mesh)
        loop = Loop([stack], [BASE], *rows, mesh=mesh, shard_weights=shard)
        if shard:  # the parts stay parts
            text = loop.program.epochs.lower(loop.state, loop.hyper, rows[0], 0, 1).compile().as_text()
            yield "reduced, shared", np.array(COLLECTIVE.findall(text).count("all-reduce"))
            loop.advance()
        parts = [v.addressable_shards[0].data for v in jax.tree.leaves((loop.state, loop.best))]
        yield f"bytes, {name}", np.array(sum(v.nbytes for v in parts))


def trained(n, train, valid):
    """Losses and weights of one model; the collectives of its program."""
    fit = darn.fit(model(), train, valid, BASE, devices=n)
    yield "losses", np.array([row[k]["bound"] for row in fit.history for k in ("train", "valid")])
    yield "weights", np.concatenate([w.ravel() for w in jax.tree.leaves(fit.model)])
    if n > 1:
        with devices.using(n):
            mesh = devices.training_mesh()
        program, hyper = Program.of(model(), BASE, len(train), mesh=mesh), Hyper.of(BASE)
        given = devices.placed((program.start(model(), hyper), hyper), mesh, devices.WHOLE)
        lowered = program.epochs.lower(*given, DeviceRows.put(train, mesh), 0, 1)
        yield "operations", np.array(lowered.as_text().count("\n"))
    if n == 8:
        text = lowered.compile().as_text()
        yield "collectives", np.array(COLLECTIVE.findall(text))
        yield "transfers", np.array(re.findall(r"outfeed|infeed|is_host_transfer=true", text))


def trained_together(n, valid):
    """Losses of two models side by side, with weight noise, on rows that are binarised at every step."""
    grey = Rows(np.random.default_rng(1).integers(0, 256, (100, 12)).astype(np.uint8), 12, grey=True)
    with devices.using(n):
        mesh = devices.training_mesh()
    base = Training(batch=20, epochs=4, validate_every=2, noise="matrix", noise_gradient="squares")
    put = partial(DeviceRows.put, mesh=mesh)
    configs = [replace(base, lr=lr) for lr in (1e-3, 3e-3)]
    loop = Loop([model(), model()], configs, put(grey), put(valid), dynamic=True, mesh=mesh)
    while loop.running:
        loop.advance()
    yield "sweep", np.array([row[k]["bound"] for r in loop.records for row in r.history for k in ("train", "valid")])


def computed(n, x):
    """Everything that is computed row by row."""
    rng = np.random.default_rng(3)
    stack = jax.tree.map(lambda w: jax.device_put(rng.normal(size=w.shape).astype(np.float32)), model())
    drawn = darn.sample(stack, 333, seed=1, log_joint=True, chunk=32, devices=n)
    yield "sample", np.hstack([drawn.x, *drawn.h, drawn.log_joint[:, None]])
    if n not in FEW:
        return
    with devices.using(n):
        exact = likelihood.exact(stack, x, rows_at_once=32)
        yield "exact", np.stack([exact.log_p, exact.row_bound])
        weighed = likelihood.importance(stack, x, n_samples=20, repeats=2, rows_at_once=16)
        yield "importance", np.stack([weighed.log_p, weighed.row_bound, weighed.ess])
        yield "compressed", np.frombuffer(compress(stack, x, batch=64), np.uint8)
        yield "settled", likelihood.importance(stack, x[:99], rows_at_once=8).log_p
        variables = [Variable(j, np.array([[0], [1]]), np.array([1.0, j != 2])) for j in range(12)]
        for exact in (True, False):
            drawn = Conditional(stack, variables, exact=exact).sample(99, seed=4)
            yield f"given, {drawn.method}", np.append(drawn.x.ravel(), drawn.log_p)
        yield "complete", darn.complete(stack, x[:150], np.arange(12) % 3 == 0, seed=3).x
    code = darn.encode(stack, x, seed=2, chunk=32, devices=n)
    yield "encode", np.hstack([code.x, *code.h, *code.q])


def by_kernel(n):
    """Rows that the kernel of linear units draws, as a GPU does, and how many of them a device draws at once."""
    stack, rows, kernel = darn.zoo.fvsbn(12, key=jax.random.key(0)), [], _causal.walked
    stack = jax.tree.map(lambda w: w + jax.random.normal(jax.random.key(1), w.shape), stack)

    def interpreted(W, s):
        rows.append(len(s))
        return kernel(W, s, interpret=True)

    if n == 1:
        yield "kernel", darn.sample(stack, 200, seed=1, chunk=16).x  # without it
        return
    with mock.patch.multiple(_causal, has_kernel=lambda: True, walked=interpreted):
        yield "kernel", darn.sample(stack, 200, seed=1, chunk=16, devices=n).x
    yield "rows by kernel", np.array(rows[-1])


def main(out):
    x, train, valid = data()
    found = {}
    for n in SIZES:
        for name, value in (*trained(n, train, valid), *computed(n, x)):
            found[f"{name}/{n}"] = value
    for n in FEW:
        found |= {f"{name}/{n}": value for name, value in (*trained_together(n, valid), *by_kernel(n))}
    found |= dict(sharded(train, valid))
    with TemporaryDirectory() as folder, mock.patch.object(_pack_write, "PART", 300):
        write_set(Path(folder))
        for n in FEW:
            found |= {f"{name}/{n}": value for name, value in trained_from_a_set(n, Path(folder))}
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1])
