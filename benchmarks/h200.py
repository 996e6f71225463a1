"""Ways to draw rows and importance weights on an accelerator, side by side, each checked against the plain form.

    python -m benchmarks.h200 --out results/bench/h200-kernels.json

Drawing: with thresholds t = logit(u), unit j is on if b_j - t_j + W_j y > 0. Weights on a grid make these sums exact in
any order, so every form must give the same bits.

Weighing: codes come from the encoder with its probabilities rounded to multiples of 2^-16, which are also those that
the weights are divided by; products take half-precision weights and float32 sums.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from benchmarks import sizes
from benchmarks.measure import environment
from darn import zoo
from darn.batching import row_keys
from darn.inference import likelihood, sampling
from darn.nn import softplus
from darn.random import uniform

PLAIN = "plain, blocks of 32"
F16, F32, HIGHEST = jnp.float16, jnp.float32, lax.Precision.HIGHEST
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def interpreted() -> bool:
    return jax.default_backend() != "gpu"


# ---------------------------------------------------------------- measuring


class Run:
    """Candidates one after another: printed and written as they come, within a number of seconds."""

    def __init__(self, out: Path, seconds: float, argv: list[str], quick: bool):
        self.out, self.end, self.quick = out, time.perf_counter() + seconds, quick
        self.record = environment(" ".join(["python -m benchmarks.h200", *argv]), 0) | {"limits": {}, "found": []}
        out.parent.mkdir(parents=True, exist_ok=True)

    def save(self):
        self.out.write_text(json.dumps(self.record, indent=1) + "\n")

    def limit(self, name: str, amount: float, once: Callable, *args):
        try:
            rate = amount / statistics.median(self.seconds(once, *args)[1])
        except Exception as error:
            print(f"limit {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            return
        self.record["limits"][name] = rate
        print(f"limit {name}: {rate:.4g}/s", flush=True)
        self.save()

    def seconds(self, once: Callable, *args) -> tuple[float, list[float]]:
        """(seconds of the first call, of each of at least five)."""
        start = time.perf_counter()
        jax.block_until_ready(once(*args))
        first = time.perf_counter() - start
        start = time.perf_counter()
        jax.block_until_ready(once(*args))
        took = time.perf_counter() - start
        n = 1 if self.quick else max(1, min(50, int(0.05 / took)))
        each = []
        while len(each) < (2 if self.quick else 5 if took > 0.1 else 7):
            start = time.perf_counter()
            jax.block_until_ready([once(*args) for _ in range(n)][-1])
            each.append((time.perf_counter() - start) / n)
        return first, each

    def time(self, group: str, name: str, amount: float, once: Callable, *args, check=None, needs=None):
        """Times one candidate; `check(result)` returns what to note about it, `needs` what a unit of it takes."""
        if time.perf_counter() > self.end:
            print(f"{group} | {name} | no time left", flush=True)
            return
        found: dict[str, Any] = {"group": group, "name": name}
        try:
            found["first_call_s"], each = self.seconds(once, *args)
            found["seconds"] = each
            rates = sorted(amount / s for s in each)
            found |= {"rate": statistics.median(rates), "range": [rates[0], rates[-1]]}
            limits = self.record["limits"]
            found["share"] = {k: v * found["rate"] / limits[k] for k, v in (needs or {}).items() if k in limits}
            if check is not None:
                found["check"] = check(once(*args))
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {str(error)[:1500]}"
        self.record["found"].append(found)
        self.save()
        if "error" in found:
            print(f"{group} | {name} | {found['error'][:400]}", flush=True)
        if "rate" in found:
            share = ", ".join(f"{100 * v:.1f}% of {k}" for k, v in found["share"].items())
            print(
                f"{group} | {name} | {found['rate']:.4g}/s [{found['range'][0]:.4g}, {found['range'][1]:.4g}] | "
                f"first call {found['first_call_s']:.1f} s | {share} | {found.get('check', '')}",
                flush=True,
            )


def limits(run: Run):
    n = 256 if run.quick else 8192
    k = jax.random.key(0)
    a = jax.random.normal(k, (n, n), F16)
    product = jax.jit(lambda a: jnp.dot(a, a, preferred_element_type=F32))
    run.limit("products", n**3, product, a)  # multiply-adds in half precision
    b = jax.random.normal(k, (n, n), F32)
    run.limit("products_tf32", n**3, jax.jit(lambda a: jnp.dot(a, a)), b)
    long = jnp.ones(1 << (16 if run.quick else 29), F32)
    run.limit("bytes", 8 * long.size, jax.jit(lambda v: v + 1), long)
    del long

    @jax.jit
    def words(i):
        x0, x1 = threefry(jnp.uint32(1), jnp.uint32(2), i, i)
        return jnp.max(x0 ^ x1)

    many = jnp.arange(1 << (16 if run.quick else 28), dtype=jnp.uint32)
    run.limit("threefry", many.size, words, many)


def threefry(k0, k1, x0, x1):
    """Two random words for each counter (x0, x1)."""
    ks = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + ks[0], x1 + ks[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(r) | x1 >> jnp.uint32(32 - r)) ^ x0
        x0 = x0 + ks[(i + 1) % 3]
        x1 = x1 + ks[(i + 2) % 3] + jnp.uint32(i + 1)
    return x0, x1


# ---------------------------------------------------------------- drawing

MOST = 22  # bits of the sum of a unit's weights


def on_grid(W):
    """(weights, scale): strictly lower-triangular W in whole multiples of 1 / scale of each row."""
    W = jnp.tril(W, -1)
    most = jnp.maximum(jnp.sum(jnp.abs(W), axis=1), 16.0)
    exponent = MOST - jnp.ceil(jnp.log2(most)).astype(jnp.int32)
    scale = jnp.ldexp(jnp.ones_like(most), exponent)
    return jnp.rint(W * scale[:, None]), scale


def digits(W):
    """The weights as 2048 high + low, whole numbers below 2048 that half precision holds."""
    high = jnp.trunc(W / 2048)
    return high.astype(F16), (W - 2048 * high).astype(F16)


def thresholds(model, seed, numbers, scale):
    """(rows, units): the units' logits less their random thresholds, on the grid."""
    layer = model.decoder[0].layer

    def one(key):
        u = uniform(jax.random.split(key, 1)[0], layer.n)
        return jnp.rint(jnp.clip((layer.b - (jnp.log(u) - jnp.log1p(-u))) * scale, -(2.0**23), 2.0**23))

    return jax.vmap(one)(row_keys(jax.random.key(seed), numbers))


def plain(W, s, block: int = 32):
    """One product a block, then its units one by one, in float32."""
    n = W.shape[0]
    size = min(block, n)

    def one(s):
        def decide(y, start, width):
            rows = lax.dynamic_slice_in_dim(W, start, width)
            a = lax.dynamic_slice_in_dim(s, start, width) + jnp.matmul(rows, y, precision=HIGHEST)
            w = lax.dynamic_slice_in_dim(rows, start, width, axis=1)
            bits = []
            for i in range(width):
                bit = (a[i] > 0).astype(F32)
                bits.append(bit)
                a = a + w[:, i] * bit
            return lax.dynamic_update_slice_in_dim(y, jnp.stack(bits), start, 0)

        y = lax.scan(lambda y, k: (decide(y, k * size, size), None), jnp.zeros(n), jnp.arange(n // size))[0]
        return decide(y, n // size * size, n % size) if n % size else y

    return jax.vmap(one)(s)


def padded(W, s, block: int, rows: int = 1):
    """W and s with units filled up to whole blocks, which are never on, and rows to whole tiles."""
    n = W.shape[0]
    m, r = -n % block, -s.shape[0] % rows
    return jnp.pad(W, ((0, m), (0, m))), jnp.pad(s, ((0, r), (0, m)), constant_values=-1.0)


def unit_rows(W, s, block: int = 32):
    """Plain XLA, a row of units as one array over samples: the walk inside a block is one fused kernel."""
    n, count = W.shape[0], s.shape[0]
    W, s = padded(W, s, block)
    total = W.shape[0]
    high, low = digits(W)
    s = s.T

    def one_block(y, k):
        start = k * block
        cut = lambda v: lax.dynamic_slice_in_dim(v, start, block)  # noqa: E731
        product = lambda d: jnp.dot(cut(d), y, preferred_element_type=F32)  # noqa: E731
        a = cut(s) + 2048 * product(high) + product(low)
        w = lax.dynamic_slice(W, (start, start), (block, block))
        bits = []
        for i in range(block):
            own = a[i]
            for j in range(i):
                own = own + jnp.where(bits[j], w[i, j], 0.0)
            bits.append(own > 0)
        word = sum((b.astype(jnp.uint32) << i for i, b in enumerate(bits)), start=jnp.zeros(count, jnp.uint32))
        word = lax.optimization_barrier(word)
        on = (word[None] >> jnp.arange(block, dtype=jnp.uint32)[:, None] & 1).astype(F16)
        return lax.dynamic_update_slice_in_dim(y, on, start, 0), word

    y, _ = lax.scan(one_block, jnp.zeros((total, count), F16), jnp.arange(total // block))
    return y[:n].T


def _inside(acc, w_ref, start, block: int, unrolled: bool):
    """The units of a block one by one: acc (rows, block), w_ref (from, to)."""
    col = lax.broadcasted_iota(jnp.int32, acc.shape, 1)

    def unit(i, acc):
        on = jnp.sum(jnp.where(col == i, acc, 0.0), axis=1) > 0
        w = w_ref[start + i, pl.ds(start, block)]
        return acc + jnp.where(on[:, None], w[None], 0.0)

    if unrolled:
        for i in range(block):
            acc = unit(i, acc)
        return acc
    return lax.fori_loop(0, block, unit, acc)


def whole_walk(W, s, block=32, rows=32, warps=4, stages=2, unrolled=False):
    """One kernel: a tile of rows walks through all blocks; the bits it has decided come back from the cache."""
    n, count = W.shape[0], s.shape[0]
    W, s = padded(W, s, block, rows)
    total = W.shape[0]
    high, low = (d.T for d in digits(W))

    def kernel(s_ref, high_ref, low_ref, w_ref, y_ref):
        own = pl.ds(pl.program_id(0) * rows, rows)

        def one_block(b, none):
            start = b * block
            to = pl.ds(start, block)

            def earlier(k, sums):
                source = pl.ds(k * block, block)
                y = y_ref[own, source]
                return tuple(
                    a + jnp.dot(y, d[source, to], preferred_element_type=F32) for a, d in zip(sums, (high_ref, low_ref))
                )

            zero = jnp.zeros((rows, block), F32)
            a_high, a_low = lax.fori_loop(0, b, earlier, (zero, zero))
            acc = _inside(s_ref[own, to] + 2048.0 * a_high + a_low, w_ref, start, block, unrolled)
            y_ref[own, to] = (acc > 0).astype(F16)
            if not interpreted():
                plgpu.debug_barrier()
            return none

        lax.fori_loop(0, total // block, one_block, jnp.int32(0))

    y = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(s.shape, F16),
        grid=(s.shape[0] // rows,),
        interpret=interpreted(),
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
        name="walk",
    )(s, high, low, W.T)
    return y[:count, :n]


def block_walk(W, s, block=32, rows=64, warps=4, unrolled=False):
    """A product of XLA's for a block, then a kernel for its units."""
    n, count = W.shape[0], s.shape[0]
    W, s = padded(W, s, block, rows)
    total, tall = W.shape[0], s.shape[0]
    high, low = (d.T for d in digits(W))

    def kernel(s_ref, w_ref, y_ref):
        own = pl.ds(pl.program_id(0) * rows, rows)
        acc = _inside(s_ref[own, :], w_ref, 0, block, unrolled)
        y_ref[own, :] = (acc > 0).astype(F16)

    walk = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((tall, block), F16),
        grid=(tall // rows,),
        interpret=interpreted(),
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        name="walk_block",
    )
    y = jnp.zeros(s.shape, F16)
    for start in range(0, total, block):
        to = slice(start, start + block)
        a = s[:, to]
        if start:
            product = lambda d: jnp.dot(y[:, :start], d[:start, to], preferred_element_type=F32)  # noqa: B023, E731
            a = a + 2048 * product(high) + product(low)
        y = y.at[:, to].set(walk(a, W[to, to].T))
    return y[:count, :n]


def unlike(found, others) -> int:
    """How many of the rows that both have differ."""
    n = min(len(found), len(others))
    return int((found[:n] != others[:n]).any(axis=1).sum())


def packed(y):
    return jnp.packbits(y > 0, axis=-1)


def drawing(run: Run):
    n = 40 if run.quick else 784
    k_w, k_b = jax.random.split(jax.random.key(0))
    model = zoo.fvsbn(n, key=k_w)
    weights = (jax.random.normal(k_w, (n, n)) / n**0.5, jax.random.normal(k_b, (n,)) - 2)
    model = eqx.tree_at(lambda m: (m.decoder[0].layer.W.W, m.decoder[0].layer.b), model, weights)
    seed = np.asarray(0)

    def draw(walk, model, seed, numbers):
        W, scale = on_grid(model.decoder[0].layer.W.W)
        return packed(walk(W, thresholds(model, seed, numbers, scale)))

    def program(walk):
        return jax.jit(functools.partial(draw, walk))

    few, some, many = (16, 64, 256) if run.quick else (1000, 10_000, 100_000)
    numbers = lambda count: np.arange(count, dtype=np.uint32)  # noqa: E731
    W, scale = jax.jit(on_grid)(model.decoder[0].layer.W.W)
    s = np.asarray(jax.jit(thresholds)(model, seed, numbers(some), scale), np.float64)[:500]
    by_hand, exact_w = np.zeros_like(s), np.asarray(W, np.float64)
    for j in range(n):
        by_hand[:, j] = s[:, j] + by_hand @ exact_w[j] > 0
    by_hand = np.packbits(by_hand.astype(bool), axis=-1)
    reference: list[np.ndarray] = []

    def check(found):
        found = np.asarray(found)
        note = {"rows_unlike_numpy": unlike(found, by_hand)}
        if len(found) == some and not reference:
            reference.append(found)
        elif reference:
            note["rows_unlike_plain"] = unlike(found, reference[0])
        return note

    def check_own(found):
        rows = np.packbits(np.asarray(found.x), axis=-1)
        return {"rows_unlike_plain": unlike(rows, reference[0]) if reference else None}

    ways = {
        "XLA, arrays over rows, blocks of 16": functools.partial(unit_rows, block=16),
        "XLA, arrays over rows, blocks of 32": unit_rows,
    }
    kernels = {
        "one kernel, 32 units, 16 rows, 1 warp": dict(block=32, rows=16, warps=1),
        "one kernel, 32 units, 64 rows, 4 warps": dict(block=32, rows=64, warps=4),
        "one kernel, 16 units, 64 rows, 4 warps": dict(block=16, rows=64, warps=4),
        "one kernel, 32 units, 64 rows, 4 warps, unrolled": dict(block=32, rows=64, warps=4, unrolled=True),
        "one kernel, 64 units, 64 rows, 4 warps": dict(block=64, rows=64, warps=4),
    }
    if run.quick:
        kernels = {name: own | {"block": 8, "rows": 16} for name, own in list(kernels.items())[2:4]}
    ways |= {name: functools.partial(whole_walk, **own) for name, own in kernels.items()}
    block, rows = (8, 16) if run.quick else (32, 64)
    ways["XLA products, a kernel a block of 32"] = functools.partial(block_walk, block=block, rows=rows)
    needs = {"products": n * (n - 1) / 2, "threefry": n}
    own_program = lambda count: sampling._draw(model, seed, numbers(count), (), None, False)  # noqa: E731

    def at(count):
        return f"rows, {count:,} a call, on the device"

    def time_ways(count, names):
        for name in names:
            walk = plain if name == PLAIN else ways[name]
            run.time(at(count), name, count, program(walk), model, seed, numbers(count), check=check, needs=needs)

    def fastest(count, n):
        found = [f for f in run.record["found"] if f["group"] == at(count) and f["name"] in ways and "rate" in f]
        return [f["name"] for f in sorted(found, key=lambda f: -f["rate"])[:n]]

    # What the package does comes first, and the plain form, with which all others are compared.
    time_ways(some, [PLAIN])
    whole = lambda: sampling.sample(model, many, packed=True).x  # noqa: E731
    run.time(f"rows, {many:,} a call, packed, on the host", "sample()", many, whole, check=check, needs=needs)
    run.time(at(few), "sample()'s program", few, own_program, few, check=check_own, needs=needs)
    time_ways(some, ways)
    time_ways(many, fastest(some, 2))

    def on_host(walk, parts):
        draw, at_once = program(walk), -(-many // parts)

        def once():
            # Programs are queued; each result travels while the next ones are computed.
            found = [draw(model, seed, numbers(at_once) + np.uint32(k * at_once)) for k in range(parts)]
            for rows in found:
                rows.copy_to_host_async()
            return np.concatenate([np.asarray(rows) for rows in found])

        return once

    for name in fastest(many, 1):
        for parts in (1, 4):
            once = on_host(ways[name], parts)
            where = f"rows, {many:,} a call, packed, on the host"
            run.time(where, f"{name}; in {parts} parts", many, once, check=check, needs=needs)
    time_ways(few, dict.fromkeys([*fastest(some, 3), *list(ways)[:3]]))


# ---------------------------------------------------------------- weighing


def tiles(n: int, size: int) -> int:
    return -(-n // size) * size


def weighing_arrays(model, x, seed, width: int):
    """Everything that the samples of the rows share, with units filled up to multiples of `width`."""
    part, prior, visible = model.encoder[0], model.decoder[1].layer, model.decoder[0]
    n_h, n_x, n_d = prior.n, visible.layer.n, visible.net.maps[0].W.shape[0]
    H, D, X = tiles(n_h, 4 * width), tiles(n_d, 4 * width), tiles(n_x, width)
    off = -1e4

    def fill(v, *to, value=0.0):
        return jnp.pad(v, [(0, t - s) for s, t in zip(v.shape, to)], constant_values=value)

    with jax.default_matmul_precision("highest"):
        a = jax.vmap(lambda x: part.layer.start(model.below(0, x, ())))(x)
    m = jnp.clip(jnp.rint(jax.nn.sigmoid(a) * 65536), 1, 65535)
    on, not_on = jnp.log(m / 65536), jnp.log1p(-m / 65536)
    rows = x.shape[0]
    return {
        "keys": jax.random.key_data(row_keys(jax.random.key(seed), np.arange(rows, dtype=np.uint32))),
        "m": fill(m, rows, H).astype(jnp.int32).reshape(rows, 4, H // 4),
        "c": fill(on - not_on, rows, H).reshape(rows, 4, H // 4),
        "q0": jnp.sum(not_on, axis=1),
        "x": fill(x, rows, X),
        "prior": fill(prior.W.weights().T, H, H),
        "prior_b": fill(prior.b, H, value=off),
        "hidden": fill(visible.net.maps[0].W.T, H, D),
        "hidden_b": fill(visible.net.maps[0].b, D),
        "visible": fill(visible.layer.U.W.T, D, X),
        "visible_b": fill(visible.layer.b, X, value=off),
    }


WEIGHTS = ("prior", "hidden", "visible")


def half(v):
    return v | {name: v[name].astype(F16) for name in WEIGHTS}


def drawn(v, first, count: int):
    """(h, log q): (rows, count, H) of half precision, (rows, count). One pair of words decides four units."""
    i = (first + jnp.arange(count, dtype=jnp.int32)).astype(jnp.uint32)[None, :, None]
    w = jnp.arange(v["m"].shape[2], dtype=jnp.uint32)[None, None]
    key = lambda k: v["keys"][:, k, None, None]  # noqa: E731
    words = lax.optimization_barrier(threefry(key(0), key(1), i, w))
    halves = [half for word in words for half in (word & jnp.uint32(0xFFFF), word >> jnp.uint32(16))]
    h = jnp.concatenate([u.astype(jnp.int32) < v["m"][:, None, q] for q, u in enumerate(halves)], axis=-1)
    log_q = jnp.sum(jnp.where(h, v["c"].reshape(v["c"].shape[0], 1, -1), 0.0), axis=-1) + v["q0"][:, None]
    return h.astype(F16), log_q


def log_weights(v, first, count: int, precision=None, out=F32):
    """(rows, count) log weights by XLA: half-precision weights, or float32 ones with a precision."""
    h, log_q = drawn(v, first, count)
    rows = h.shape[0]
    flat = h.reshape(rows * count, -1)
    if v["prior"].dtype == F32:
        flat = flat.astype(F32)
    dot = functools.partial(jnp.dot, preferred_element_type=out, precision=precision)
    a = dot(flat, v["prior"]).astype(F32) + v["prior_b"]
    log_p = jnp.sum(flat.astype(F32) * a - softplus(a), axis=-1)
    d = jnp.tanh(dot(flat, v["hidden"]).astype(F32) + v["hidden_b"]).astype(flat.dtype)
    a = (dot(d, v["visible"]).astype(F32) + v["visible_b"]).reshape(rows, count, -1)
    log_x = jnp.sum(v["x"][:, None] * a - softplus(a), axis=-1)
    return log_p.reshape(rows, count) + log_x - log_q


def _exp(z, fast):
    if not fast:
        return jnp.exp(z)
    return _asm("ex2.approx.ftz.f32 $0, $1;", z * 1.4426950408889634)


def _log(z, fast):
    if not fast:
        return jnp.log(z)
    return _asm("lg2.approx.ftz.f32 $0, $1;", z) * 0.6931471805599453


def _asm(code, z):
    shape = [jax.ShapeDtypeStruct(z.shape, z.dtype)]
    return plgpu.elementwise_inline_asm(code, args=[z], constraints="=f,f", pack=1, result_shape_dtypes=shape)[0]


def log_weights_fused(v, first, count: int, tile=(128, 128, 64), warps=8, stages=3, fast=True, draw_rows=32):
    """(rows, count) log weights by four kernels; logits stay in registers."""
    fast = fast and not interpreted()
    n, _, W = v["m"].shape
    H, X = 4 * W, v["x"].shape[1]
    D = v["hidden"].shape[1]
    M, N, K = tile
    total, call = n * count, functools.partial(pl.pallas_call, interpret=interpreted())
    params = plgpu.CompilerParams(num_warps=warps, num_stages=stages)

    def draw(keys_ref, m_ref, c_ref, first_ref, h_ref, q_ref):
        row = pl.program_id(1)
        base = pl.program_id(0) * draw_rows
        i = (first_ref[0] + base + lax.broadcasted_iota(jnp.int32, (draw_rows, W), 0)).astype(jnp.uint32)
        w = lax.broadcasted_iota(jnp.int32, (draw_rows, W), 1).astype(jnp.uint32)
        words = threefry(keys_ref[row, 0], keys_ref[row, 1], i, w)
        log_q = jnp.zeros((draw_rows, W), F32)
        own = pl.ds(row * count + base, draw_rows)
        halves = [half for word in words for half in (word & jnp.uint32(0xFFFF), word >> jnp.uint32(16))]
        for q, u in enumerate(halves):
            on = u.astype(jnp.int32) < m_ref[row, q, :][None]
            h_ref[own, pl.ds(q * W, W)] = jnp.where(on, 1.0, 0.0).astype(F16)
            log_q = log_q + jnp.where(on, c_ref[row, q, :][None], 0.0)
        q_ref[own] = jnp.sum(log_q, axis=1)

    h, log_q = call(
        draw,
        out_shape=(jax.ShapeDtypeStruct((total, H), F16), jax.ShapeDtypeStruct((total,), F32)),
        grid=(count // draw_rows, n),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        name="draw",
    )(v["keys"], v["m"], v["c"], jnp.asarray(first, jnp.int32)[None])

    def product(a_ref, w_ref, b_ref, own, to, depth):
        def add(k, acc):
            source = pl.ds(k * K, K)
            return acc + jnp.dot(a_ref[own, source], w_ref[source, to], preferred_element_type=F32)

        return lax.fori_loop(0, depth, add, jnp.zeros((M, N), F32)) + b_ref[to][None]

    def log_prob(y, a):
        return jnp.sum(y * a - jnp.maximum(a, 0.0) - _log(1.0 + _exp(-jnp.abs(a), fast), fast), axis=1)

    def places():
        t = pl.program_id(0)
        return t, pl.ds(pl.program_id(1) * M, M), pl.ds(t * N, N)

    def prior(h_ref, w_ref, b_ref, out_ref):
        t, own, to = places()
        a = product(h_ref, w_ref, b_ref, own, to, (t + 1) * N // K)  # later units have no say
        out_ref[t, own] = log_prob(h_ref[own, to].astype(F32), a)

    def hidden(h_ref, w_ref, b_ref, d_ref):
        _, own, to = places()
        a = product(h_ref, w_ref, b_ref, own, to, H // K)
        d = 1.0 - 2.0 / (1.0 + _exp(2.0 * a, True)) if fast else jnp.tanh(a)
        d_ref[own, to] = d.astype(F16)

    def visible(d_ref, w_ref, b_ref, x_ref, out_ref):
        t, own, to = places()
        a = product(d_ref, w_ref, b_ref, own, to, D // K)
        x = x_ref[pl.program_id(1) // (count // M), to]
        out_ref[t, own] = log_prob(x[None], a)

    def over(kernel, width, shape, *args, name):
        grid = (width // N, total // M)
        return call(kernel, out_shape=shape, grid=grid, compiler_params=params, name=name)(*args)

    sums = lambda width: jax.ShapeDtypeStruct((width // N, total), F32)  # noqa: E731
    log_p = over(prior, H, sums(H), h, v["prior"], v["prior_b"], name="prior")
    d = over(hidden, D, jax.ShapeDtypeStruct((total, D), F16), h, v["hidden"], v["hidden_b"], name="hidden")
    log_x = over(visible, X, sums(X), d, v["visible"], v["visible_b"], v["x"], name="visible")
    log_w = jnp.sum(log_p, axis=0) + jnp.sum(log_x, axis=0) - log_q
    return log_w.reshape(n, count) - v["q0"][:, None]


def summed(way):
    """log of the mean weight of each row over `n_samples`, `count` at a time."""

    @functools.partial(jax.jit, static_argnames=("n_samples", "count"))
    def program(v, n_samples: int, count: int):
        def add(k, state):
            top, total = state
            log_w = way(v, k * count, count)
            new = jnp.maximum(top, jnp.max(log_w, axis=1))
            return new, total * jnp.exp(top - new) + jnp.sum(jnp.exp(log_w - new[:, None]), axis=1)

        rows = v["x"].shape[0]
        zero = (jnp.full(rows, -1e30), jnp.zeros(rows))
        top, total = lax.fori_loop(0, n_samples // count, add, zero)
        return top + jnp.log(total / n_samples)

    return program


def weighing(run: Run):
    size = sizes.SMALL[1] if run.quick else sizes.MNIST
    n_rows, n_samples, count = (4, 64, 32) if run.quick else (100, 98_304, 2048)
    width = 16 if run.quick else 128
    model = size.random(0)
    x = size.rows(n_rows, 0)
    v = weighing_arrays(model, jnp.asarray(x, F32), 0, width)
    v16, amount = half(v), n_rows * n_samples
    needs = {"products": sum(size.products[k] for k in ("h", "x_given_h")), "threefry": size.n_h / 4}
    exact = summed(functools.partial(log_weights, precision=HIGHEST))
    truth = np.asarray(exact(v, n_samples, min(count, 512)), np.float64)
    print("float32: mean log p", truth.mean(), flush=True)

    def check(found):
        off = np.asarray(found, np.float64) - truth
        return {"mean_nats_off": float(off.mean()), "most_nats_off": float(np.abs(off).max())}

    def stage(name, f, *args, **more):
        run.time("a stage", name, n_rows * count, jax.jit(f), *args, **more)

    group = f"weights, {size.name}"
    xla = lambda **own: summed(functools.partial(log_weights, **own))  # noqa: E731
    fused = lambda **own: summed(functools.partial(log_weights_fused, **own))  # noqa: E731
    small = dict(tile=(16, 16, 16), draw_rows=16)
    time_one = functools.partial(run.time, group, check=check, needs=needs)
    if run.quick:
        time_one("kernels, quick", amount, fused(**small), v16, n_samples, count)
    else:
        time_one("kernels, 128x128x64, 8 warps", amount, fused(), v16, n_samples, count)
        time_one("kernels, 128x128x64, 4 warps", amount, fused(warps=4), v16, n_samples, count)
    time_one("XLA, half precision", amount, xla(), v16, n_samples, count)
    time_one("XLA, half precision, logits too", amount, xla(out=F16), v16, n_samples, count)
    yield
    stage("draws by XLA", lambda v: drawn(v, 0, count), v16)
    if not run.quick:
        time_one(
            "kernels, 128x256x64, 8 warps", amount, fused(tile=(128, 256, 64)), v16 | wide(v16, 256), n_samples, count
        )
        time_one(
            "kernels, 128x128x32, 8 warps, 4 stages",
            amount,
            fused(tile=(128, 128, 32), stages=4),
            v16,
            n_samples,
            count,
        )
        time_one("kernels, 64x128x64, 4 warps", amount, fused(tile=(64, 128, 64), warps=4), v16, n_samples, count)
        time_one("kernels, 128x128x64, 8 warps, library functions", amount, fused(fast=False), v16, n_samples, count)
        time_one("XLA, half precision, logits too, chunks of 512", amount, xla(out=F16), v16, n_samples, 512)
    time_one("XLA, default float32", amount, xla(), v, n_samples, min(count, 1024))
    own = lambda: likelihood.importance(model, x, n_samples=n_samples, repeats=1).log_p  # noqa: E731
    time_one("importance()", amount, own)


def wide(v, width):
    """The visible units filled up to a multiple of `width`."""
    more = -v["x"].shape[1] % width
    return {
        "x": jnp.pad(v["x"], ((0, 0), (0, more))),
        "visible": jnp.pad(v["visible"], ((0, 0), (0, more))),
        "visible_b": jnp.pad(v["visible_b"], (0, more), constant_values=-1e4),
    }


def main(argv: list[str] | None = None):
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.h200", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=140, help="no candidate starts later than this")
    parser.add_argument("--only", choices=("drawing", "weighing"))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    args = parser.parse_args(argv)
    given = {k: v for k, v in vars(args).items() if k != "out" and v != parser.get_default(k)}
    run = Run(args.out, args.seconds, [f"--{k}" if v is True else f"--{k} {v}" for k, v in given.items()], args.quick)
    limits(run)
    weigh = weighing(run) if args.only in (None, "weighing") else iter(())
    parts = [lambda: next(weigh, None)]  # the likely ones first
    if args.only in (None, "drawing"):
        parts.append(lambda: drawing(run))
    parts.append(lambda: next(weigh, None))
    for part in parts:
        try:
            part()
        except Exception as error:
            print(f"{type(error).__name__}: {str(error)[:1000]}", flush=True)


if __name__ == "__main__":
    main()
