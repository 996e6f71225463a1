"""Rows in parts: what comes out does not depend on the parts or the file type, and memory not on the number of rows."""

import tracemalloc
from functools import partial

import jax
import numpy as np
import pytest
from helpers import randomised, same

from darn import data, zoo
from darn.batching import recut, rows_within
from darn.cli import main
from darn.config import Architecture
from darn.data import _arrays, _row_source, _table, _text_table
from darn.errors import DarnError
from darn.inference import completion, likelihood, sampling
from darn.inference.summary import Moments, Running
from darn.model_file import save_model
from darn.runs import two_part

X = (np.random.default_rng(0).random((57, 11)) < 0.4).astype(np.uint8)
MODEL = randomised(zoo.darn(11, 3, 4, "linear", key=jax.random.key(0)), 1)


def npy(path, X):
    np.save(path, X)


def npz(path, X):
    np.savez_compressed(path, x=X)


def packed(path, X):
    np.savez(path, x=np.packbits(X, axis=1), n=X.shape[1])


def csv(path, X):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in X.tolist()))


def quoted(path, X):
    """A header over two lines, comments, a blank line and cells in quotes, some with a line end inside."""
    names = ",".join(['"a\nb"', *(f"c{j}" for j in range(1, X.shape[1]))])
    rows = [",".join(f'"{v}"' if (i + j) % 3 else f"{v}.0" for j, v in enumerate(r)) for i, r in enumerate(X.tolist())]
    path.write_text("# about\n" + names + "\n" + "\n\n".join(rows) + "\n# end\n")


def parquet(path, X):
    polars = pytest.importorskip("polars")
    polars.DataFrame(X, schema=[f"c{j}" for j in range(X.shape[1])]).write_parquet(path)


KINDS = {
    "a.npy": npy,
    "a.npz": npz,
    "b.npz": packed,
    "a.csv": csv,
    "b.csv": quoted,
    "a.parquet": parquet,
}


@pytest.fixture(params=[1, 30, 1 << 22], ids=["tiny parts", "small parts", "one part"])
def part(request, monkeypatch):
    for module, name in ((_arrays, "PART"), (_text_table, "PART"), (_table, "PART_CELLS"), (_row_source, "PART")):
        monkeypatch.setattr(module, name, request.param)
    return request.param


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_the_same_in_any_parts_from_any_file(name, part, tmp_path):
    path = tmp_path / name
    KINDS[name](path, X)
    source = data.open_rows(path, n=11)
    for _ in range(2):  # a source can be read again
        parts = list(source.bits())
        np.testing.assert_array_equal(np.concatenate(parts), X)
    assert source.rows == len(X)
    assert len(parts) == 1 if part == 1 << 22 else len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(list(source.every(5).bits())), X[::5])
    assert source.every(5).rows == len(X[::5])
    for split in ("train", "test"):
        some = np.concatenate(list(data.open_rows(path, split=split).bits()))
        np.testing.assert_array_equal(some, data.load_rows(path, split=split).unpack())
    given = data.open_source(str(path), 11, None)
    np.testing.assert_array_equal(np.concatenate(list(given.bits())), X)
    if name.endswith("csv"):
        back = tmp_path / "back.csv"
        x = [(0, np.concatenate(list(given.bits())))]
        data.restore(str(back), [(given.notes, iter(x))], given.rows, 11, None)
        assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv", "a.parquet"])
@pytest.mark.parametrize("mode", ["threshold", "static", "intensity"])
def test_grey_levels_and_labels_are_the_same_in_any_parts(name, mode, part, tmp_path):
    grey = np.random.default_rng(1).integers(0, 256, (23, 6))
    grey[:, -1] = np.arange(23) % 3
    path = tmp_path / name
    KINDS[name](path, grey)
    options = {"binarize": mode, "labels": -1, "classes": ("0", "1", "2"), "seed": 5}
    whole, source = data.load_rows(path, **options), data.open_rows(path, **options)
    parts = list(source.read())
    np.testing.assert_array_equal(np.concatenate([p.values for p in parts]), whole.values)
    np.testing.assert_array_equal(np.concatenate([p.context for p in parts]), whole.context)


@pytest.mark.parametrize("name", KINDS)
def test_a_bad_value_is_named_by_its_place_in_the_file(name, part, tmp_path):
    if name == "b.npz":
        return  # packed bits cannot be bad
    bad = X.astype(int)
    bad[40, 7] = 3
    bad[41, 2] = 5
    KINDS[name](tmp_path / name, bad)
    with pytest.raises(DarnError, match=r"row 41, column 8"):
        list(data.open_rows(tmp_path / name).read())


def test_a_damaged_archive_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3000, 16), np.uint8))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole.replace(bytes(100), b"\1" + bytes(99), 1))
    with pytest.raises(DarnError, match="damaged"):
        list(data.open_rows(tmp_path / "a.npz").read())


def cuts(*arrays, size):
    return (tuple(None if a is None else a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_results_are_the_same_in_any_parts(size):
    fixed, settled = {"n_samples": 20, "repeats": 2, "seed": 3}, {"precision": 0.1, "seed": 3}
    density = np.random.default_rng(1).normal(size=len(X))
    for method, more, whole in (
        ("exact", {}, likelihood.exact(MODEL, X)),
        ("importance", fixed, likelihood.importance(MODEL, X, **fixed)),
        ("importance", settled, likelihood.importance(MODEL, X, **settled)),
    ):
        sums = []
        for added in (None, density):
            running, found = Running(method, more.get("n_samples"), more.get("repeats", 0)), []
            given = cuts(X, None, added, size=size)
            for scores in likelihood.score_parts(MODEL, given, len(X), method=method, **more):
                running.add(scores)
                found.append(scores.log_p)
            np.testing.assert_array_equal(np.concatenate(found), whole.log_p + (0 if added is None else added))
            sums.append(running.summary().summary())
        assert sums[0] == whole.summary()
        assert sums[1]["log_density"] == pytest.approx(density.mean())
        for name in ("nll", "bound"):
            assert sums[1][name] == pytest.approx(sums[0][name] - density.mean(), rel=1e-5)
        for s, value in sums[0].get("nll_at", {}).items():
            assert sums[1]["nll_at"][s] == pytest.approx(value - density.mean(), rel=1e-5)
    codes = list(sampling.encode_parts(MODEL, cuts(X, None, size=size), len(X), seed=1))
    same(jax.tree.map(lambda *v: np.concatenate(v), *codes), sampling.encode(MODEL, X, seed=1))
    drawn = list(sampling.sample_parts(MODEL, 50, seed=2, chunk=size))
    np.testing.assert_array_equal(np.concatenate([d.x for d in drawn]), sampling.sample(MODEL, 50, seed=2).x)
    few = np.random.default_rng(2).random(X.shape) < 0.2
    for mask in (few, np.tile(np.arange(11) > 6, (len(X), 1))):  # enumerated; every code
        whole = completion.complete(MODEL, X, mask, n=2)
        parts = cuts(X.astype(np.float32), mask, None, size=size)
        known = completion.survey(MODEL, (m for (m,) in cuts(mask, size=size)))
        found = list(completion.complete_parts(MODEL, parts, known, n=2))
        np.testing.assert_array_equal(np.concatenate([f.x for f in found]), whole.x)
        np.testing.assert_array_equal(np.concatenate([f.log_p_observed for f in found]), whole.log_p_observed)


def test_moments_do_not_depend_on_the_parts():
    values = np.random.default_rng(0).normal(3, 2, (20_000, 2)).astype(np.float32)
    found = []
    for size in (100, 8192, 20_000):
        moments = Moments()
        for (v,) in cuts(values, size=size):
            moments.add(v)
        found.append((moments.count, *moments.mean.tolist(), *moments.std(ddof=1).tolist()))
    assert len(set(found)) == 1
    np.testing.assert_allclose(found[0][1:3], values.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(found[0][3:], values.std(axis=0, dtype=np.float64, ddof=1), rtol=1e-12)
    np.testing.assert_array_equal(np.concatenate([p for (p,) in recut(cuts(values, size=77), 500)]), values)


def peak(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows():
    """Virtual rows, so that nothing but the work itself takes memory; every function once before it is measured."""
    rows = np.zeros((1000, 400), np.uint8)
    model = randomised(zoo.darn(400, 2, 1, "factorial", key=jax.random.key(0)), 1)
    virtual = lambda n: ((rows, None) for _ in range(n // 1000))  # noqa: E731
    mask = np.tile(np.arange(400) > 200, (1000, 1))

    def score(n):
        running = Running("exact")
        given = ((*part, None) for part in virtual(n))
        for part in likelihood.score_parts(model, given, n, method="exact"):
            running.add(part)

    def encode(n):
        for _ in sampling.encode_parts(model, virtual(n), n):
            pass

    def sample(n):
        for _ in sampling.sample_parts(model, n):
            pass

    def complete(n):
        known = completion.survey(model, (mask for _ in range(n // 1000)))
        parts = ((rows.astype(np.float32), mask, None) for _ in range(n // 1000))
        for _ in completion.complete_parts(model, parts, known):
            pass

    def predict(n):
        known = completion.survey(model, [mask[:1]]).times(n)
        parts = ((rows.copy(), mask.copy(), None) for _ in range(n // 1000))
        for _ in completion.conditional_parts(model, parts, known):
            pass

    for work, n in ((score, 30_000), (encode, 5000), (sample, 5000), (complete, 3000), (predict, 3000)):
        work(n)
        few, many = peak(partial(work, n)), peak(partial(work, 4 * n))
        assert many < 1.1 * few + 1e5, (work.__name__, few, many)


def test_decoding_wide_rows_takes_bounded_memory(monkeypatch):
    model = zoo.darn(1 << 20, 1, 1, "factorial", key=jax.random.key(0))
    seen = []

    def decode(model, h, context):
        seen.append(len(h[0]))
        return np.zeros((len(h[0]), 1), np.float32)

    monkeypatch.setattr(sampling, "_decode", decode)
    sampling.decode(model, (np.zeros((1000, 1), np.uint8),))
    assert max(seen) == rows_within(model.row_floats, 1000, sampling.CHUNK) == 256


def test_very_wide_rows_are_learned_in_bounded_memory():
    arch = Architecture(n_h=(), visible="linear")
    build = partial(two_part.build, arch, 100_000, key=jax.random.key(0))
    assert peak(lambda: two_part._weights(build)) < 1e7
    assert two_part._weights(build) >= 100_000 * 99_999 // 2
    wide = np.zeros((100, 100_000), np.uint8)
    some = two_part.sample_of((wide for _ in range(100)), 10_000, 100_000)
    assert some.size <= two_part.LEARNED_BITS
    x = (np.random.default_rng(0).random((3000, 4)) < 0.5).astype(np.uint8)
    np.testing.assert_array_equal(two_part.sample_of((v for (v,) in cuts(x, size=70)), 3000, 4), x)


def test_sinks_write_what_they_are_given(tmp_path):
    for name in ("a.npy", "a.csv", "a.tsv"):
        for size in (7, 1000):
            with data.open_table(str(tmp_path / name), len(X), [f"c{j}" for j in range(11)]) as write:
                for (v,) in cuts(X, size=size):
                    write(v)
            np.testing.assert_array_equal(data.load_rows(tmp_path / name).unpack(), X)
    with data.open_archive(str(tmp_path / "a.npz"), len(X), ["h1", "h2"]) as write:
        for (v,) in cuts(X, size=7):
            write([v, v[:, :2]])
    with np.load(tmp_path / "a.npz") as found:
        same((found["h1"], found["h2"]), (X, X[:, :2]))

    def interrupted(path):
        with data.open_table(path, len(X), []) as write:
            write(X)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted(str(tmp_path / "new.npy"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.npy", "a.npz", "a.tsv"]


def test_a_huge_sample_says_what_it_would_take(tmp_path, capsys):
    save_model(tmp_path / "m.safetensors", MODEL)
    words = ["sample", str(tmp_path / "m.safetensors"), "--out", str(tmp_path / "x.npy"), "-n"]
    assert main([*words, str(10**13)]) == 2
    said = capsys.readouterr().err
    assert "110.0 TB" in said
    assert any(unit in said for unit in ("years", "days", "hours"))
    assert not (tmp_path / "x.npy").exists()
