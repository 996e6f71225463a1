"""What work on 1, 2, 4 and 8 devices gives, as one .npz file: run by tests/test_devices.py with 8 simulated devices.

JAX_NUM_CPU_DEVICES=8 python tests/mesh_probe.py OUT.npz
"""

import re
import sys
from dataclasses import replace
from functools import partial

import jax
import numpy as np
from helpers import randomised

import darn
from darn import devices
from darn.codec import compress, decompress
from darn.config import Training
from darn.data import Rows
from darn.inference.likelihood import exact, importance
from darn.training import DeviceRows, Hyper, Loop, Program

SIZES = (1, 2, 4, 8)
COLLECTIVE = re.compile(r"= \S+ (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(")


def data():
    rng = np.random.default_rng(0)
    x = (rng.random((333, 12)) < rng.random(12)).astype(np.uint8)
    return x, replace(Rows.from_array(x), weights=(rng.random(333) + 0.5).astype(np.float32)), Rows.from_array(x[:77])


def model(**options):
    return darn.zoo.darn(12, key=jax.random.key(0), **({"n_h": 4, "n_d": 5, "visible": "linear"} | options))


# 20 rows a batch: not divisible by 8. 16 steps an epoch.
BASE = Training(batch=20, epochs=4, lr=1e-3, validate_every=2)
TRAINED = {
    "plain": (BASE, False),
    "clip, decay, average": (replace(BASE, clip=1.0, weight_decay=1e-3, average=0.99, optimizer="adam"), False),
    "noise": (replace(BASE, noise="matrix"), False),
    "noise squares": (replace(BASE, noise="matrix", noise_gradient="squares"), False),
    "dynamic": (BASE, True),
}


def main(out):
    x, train, valid = data()
    rng = np.random.default_rng(1)
    grey = Rows(rng.integers(0, 256, (333, 12)).astype(np.uint8), 12, grey=True)
    found = {}
    for name, (config, dynamic) in TRAINED.items():
        for n in SIZES:
            rows = grey if dynamic else train
            fit = darn.fit(model(), rows, valid, config, dynamic=dynamic, devices=n)
            found[f"{name}/{n}"] = np.array([row[k]["bound"] for row in fit.history for k in ("train", "valid")])
            found[f"weights {name}/{n}"] = np.concatenate([w.ravel() for w in jax.tree.leaves(fit.model)])
    for n in SIZES:  # several models side by side
        with devices.using(n):
            mesh = devices.training_mesh()
        configs = [replace(BASE, lr=lr) for lr in (1e-3, 3e-3)]
        on = partial(DeviceRows.put, mesh=mesh)
        loop = Loop([model(), model()], configs, on(train), on(valid), mesh=mesh)
        while loop.running:
            loop.advance()
        found[f"sweep/{n}"] = np.array([r.bound for r in loop.records])
        if n == 8:
            program, hyper = Program(model(), BASE, len(train), mesh=mesh), Hyper.of(BASE)
            state = devices.placed((program.start(model(), hyper), hyper), mesh, devices.WHOLE)
            text = program.epochs.lower(*state, on(train), 0, 1).compile().as_text()
            found["collectives"] = np.array(COLLECTIVE.findall(text))
            found["hosts"] = np.array(re.findall(r"outfeed|infeed|custom-call.*host", text))
    for visible in ("linear", "nade"):
        stack = randomised(model(visible=visible), 3)
        for n in SIZES:
            with devices.using(n):
                e, s = exact(stack, x, rows_at_once=32), importance(stack, x, n_samples=20, repeats=2, rows_at_once=16)
                found[f"bits exact {visible}/{n}"] = np.stack([e.log_p, e.row_bound])
                found[f"bits importance {visible}/{n}"] = np.stack([s.log_p, s.row_bound, s.ess])
                packed = compress(stack, x, batch=64)
                found[f"bits compressed {visible}/{n}"] = np.frombuffer(packed, np.uint8)
                np.testing.assert_array_equal(decompress(stack, packed), x)
            score = darn.evaluate(stack, x[:99], n_samples=8, devices=n)
            found[f"bits evaluate {visible}/{n}"] = score.log_p
            found[f"bits settled {visible}/{n}"] = importance(stack, x[:99], rows_at_once=8).log_p
            drawn = darn.sample(stack, 333, seed=1, log_prob=True, chunk=32, devices=n)
            found[f"bits sample {visible}/{n}"] = np.hstack([drawn.x, *drawn.h, drawn.log_p[:, None]])
            code = darn.encode(stack, x, seed=2, chunk=32, devices=n)
            found[f"bits encode {visible}/{n}"] = np.hstack([code.x, *code.h, *code.q])
            with devices.using(n):
                filled = darn.complete(stack, x[:40], np.arange(12) % 3 == 0, seed=3)
                found[f"bits complete {visible}/{n}"] = filled.x
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1])
