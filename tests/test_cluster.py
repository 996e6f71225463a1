"""A model as a function of batches: the numbers of the command line, in any division and on any worker."""

import json
import os
import pickle
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

import darn
from darn.cli import main
from darn.cluster import _worker
from darn.runs import sweep

ROWS = 700
NAMES = [f"c{j}" for j in range(12)]
REPOSITORY = str(Path(darn.__file__).parent.parent)


def in_polars(frame):
    missing = lambda v: None if v != v else v  # noqa: E731
    return pl.DataFrame({name: [missing(v) for v in frame[name].tolist()] for name in frame})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models of bits (with few units, and with more) and of a table; rows, in one file and in a folder of Parquet."""
    folder = tmp_path_factory.mktemp("cluster")
    rng = np.random.RandomState(0)
    bits = pd.DataFrame((rng.random_sample((ROWS, 12)) < 0.3).astype(np.int64), columns=NAMES)
    table = pd.DataFrame({"kind": rng.choice(["cat", "dog"], ROWS), "size": rng.gamma(2, 3, ROWS).round(2)})
    table.loc[::17, "size"] = np.nan
    for name, frame in (("bits", bits), ("table", table)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        in_polars(frame).write_parquet(folder / f"{name}.parquet")
        parts = folder / f"{name}-parts"
        parts.mkdir()
        for i, start in enumerate(range(0, ROWS, 100)):
            part = in_polars(frame.assign(row=np.arange(ROWS)).iloc[start : start + 100])
            part.write_parquet(parts / f"{i}.parquet")
    for name, source, *more in (
        ("few", "bits", "--n_h", "3"),
        ("many", "bits", "--n_h", "20"),
        ("table", "table", "--categorical", "auto", "--n_h", "2"),
    ):
        words = ["train", folder / f"{source}.csv", *more, "--epochs", "1", "--out", folder / name, "--quiet"]
        assert main([*map(str, words)]) == 0
        words = ["eval", folder / name, folder / f"{source}.parquet", "--per-row", folder / f"{name}.npy"]
        assert main([*map(str, words)]) == 0
    return folder


def frame_of(place, model):
    frame = pd.read_csv(place / ("table.csv" if model == "table" else "bits.csv"))
    return frame.assign(row=np.arange(len(frame)))


def arrow(frame):
    return pytest.importorskip("pyarrow", reason="needs pyarrow").Table.from_pandas(frame, preserve_index=False)


KINDS = {
    "pandas": lambda frame: frame,
    "polars": in_polars,
    "arrow": arrow,
    "record batch": lambda frame: arrow(frame).to_batches()[0],
    "mapping": lambda frame: {name: frame[name].to_numpy() for name in frame},
}


@pytest.mark.parametrize("model", ["few", "many", "table"])
@pytest.mark.parametrize("size", [1, 64, ROWS])
def test_scores_are_those_of_eval(place, model, size):
    score = pickle.loads(pickle.dumps(darn.Scorer(place / model, row="row", rows=ROWS)))
    frame, wanted = frame_of(place, model), np.load(place / f"{model}.npy")
    last = 20 if size == 1 else ROWS
    found = pd.concat([score(frame.iloc[i : i + size]) for i in range(0, last, size)])
    np.testing.assert_array_equal(found["log_p"], wanted[:last])
    assert list(found.columns) == [*frame.columns, "log_p"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["many", "table"])
def test_results_have_the_type_of_the_batch(place, model, kind):
    frame = frame_of(place, model)
    given = KINDS[kind](frame)
    found = darn.Scorer(place / model, row="row", rows=ROWS, keep=False)(given)
    assert type(found) is type(given)
    assert list(darn.data.Batch(found).names) == ["row", "log_p"]
    np.testing.assert_array_equal(darn.data.Batch(found).column("log_p"), np.load(place / f"{model}.npy"))
    drawn = darn.Sampler(place / model, row="row")(KINDS[kind](frame[["row"]][:5]))
    assert type(drawn) is type(given)
    packed = darn.Compressor(place / model)(KINDS[kind](frame.drop(columns="row")))
    assert type(packed) is type(given)
    assert darn.codec.inspect(darn.data.Batch(packed).column("drn")[0]).rows == ROWS


def test_a_score_without_a_number_follows_from_the_row(place):
    frame = frame_of(place, "many").drop(columns="row")
    score = darn.Scorer(place / "many")
    whole = score(frame)["log_p"].to_numpy()
    order = np.random.RandomState(1).permutation(ROWS)
    parts = [score(frame.iloc[order[i : i + 99]])["log_p"] for i in range(0, ROWS, 99)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[order])
    np.testing.assert_allclose(whole.mean(), np.load(place / "many.npy").mean(), atol=0.02)


def test_columns_are_found_by_name(place):
    frame = frame_of(place, "few")
    found = darn.Scorer(place / "few")(frame[["row", *reversed(NAMES)]].assign(other="x"))
    np.testing.assert_array_equal(found["log_p"], darn.Scorer(place / "few")(frame)["log_p"])


def test_iterators_and_empty_batches(place):
    """Spark gives an iterator of batches; Dask asks for the types with an empty one."""
    frame = frame_of(place, "table")
    for worker in (
        darn.Scorer(place / "table", row="row"),
        darn.Sampler(place / "table", row="row"),
        darn.Compressor(place / "table"),
    ):
        given = frame if isinstance(worker, darn.Scorer) else frame[["row"]]
        given = frame.drop(columns="row") if isinstance(worker, darn.Compressor) else given
        parts = list(worker(iter([given[:9], given[9:20]])))
        assert len(parts) == 2
        empty = worker(given[:0])
        assert len(empty) == 0
        assert list(empty.columns) == list(parts[0].columns)


@pytest.mark.parametrize("model", ["few", "table"])
def test_samples_are_those_of_the_command(place, tmp_path, model):
    words = ["sample", place / model, "-n", "50", "--seed", "4", "--out", tmp_path / "s.csv"]
    assert main([*map(str, words)]) == 0
    wanted = pd.read_csv(tmp_path / "s.csv")
    draw = pickle.loads(pickle.dumps(darn.Sampler(place / model, rows=50, seed=4)))
    numbers = np.random.RandomState(0).permutation(50)
    found = pd.concat([draw(pd.DataFrame({"id": numbers[i : i + 7]})) for i in range(0, 50, 7)]).set_index("id")
    pd.testing.assert_frame_equal(found.sort_index()[wanted.columns], wanted, check_dtype=False, check_names=False)


@pytest.mark.parametrize("model", ["few", "table"])
def test_compressed_batches_join_to_the_table(place, tmp_path, model):
    frame = frame_of(place, model).drop(columns="row")
    pack = pickle.loads(pickle.dumps(darn.Compressor(place / model)))
    for i, start in enumerate(range(0, ROWS, 250)):
        (tmp_path / f"{i}.drn").write_bytes(pack(frame.iloc[start : start + 250])["drn"].iloc[0])
    files = sorted(map(str, tmp_path.glob("*.drn")))
    assert main(["cat", *files, "--out", str(tmp_path / "all.drn")]) == 0
    assert (
        main(["decompress", str(place / model), str(tmp_path / "all.drn"), str(tmp_path / "back.csv"), "--quiet"]) == 0
    )
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "back.csv"), frame)


def test_a_model_is_loaded_once_and_travels_as_bytes(place, monkeypatch):
    content = (place / "few" / "model.safetensors").read_bytes()
    frame = frame_of(place, "few")
    wanted = darn.Scorer(place / "few")(frame)["log_p"]
    _worker._loaded.clear()
    loads, load = [], _worker.load
    monkeypatch.setattr(_worker, "load", lambda path: loads.append(path) or load(path))
    for given in (place / "few", content, darn.load(place / "few")):
        for _ in range(2):
            score = pickle.loads(pickle.dumps(darn.Scorer(given)))
            np.testing.assert_array_equal(score(frame)["log_p"], wanted)
    assert len(loads) == 1
    stack = darn.zoo.darn(12, n_h=2, n_d=2, key=jax.random.key(0))
    assert len(darn.Scorer(stack)(frame[NAMES])) == ROWS


def test_what_is_wrong_is_said(place, tmp_path):
    frame = frame_of(place, "few")
    score = darn.Scorer(place / "few", row="row")
    for make, why in (
        (lambda: darn.Scorer(tmp_path / "none"), "no"),
        (lambda: darn.Scorer(b"no model"), "not a readable darn model"),
        (lambda: darn.Scorer(3), "a path, a name"),
        (lambda: darn.Scorer(place / "few", rows=0), "at least 1"),
        (lambda: darn.Scorer(place / "few", unseen="never"), "unseen must be"),
        (lambda: darn.Scorer(place / "few", row="x", column="x"), "name another"),
        (lambda: darn.Sampler(place / "few", label="a"), "without labels"),
        (lambda: score(frame.drop(columns="row")), "no column 'row'"),
        (lambda: score(frame.assign(row=-1)), "whole numbers from 0"),
        (lambda: score(frame.assign(row=0.5)), "whole numbers from 0"),
        (lambda: score(frame.drop(columns="c3")), "12"),
        (lambda: score(frame.assign(c3=2)), "has the value 2 at row 1"),
        (lambda: score(frame.assign(c3="x")), "the batch"),
        (lambda: score([1, 2]), "a batch is"),
        (lambda: darn.Scorer(place / "table")(frame_of(place, "table").assign(kind="bird")), "'bird'"),
        (lambda: darn.Compressor(place / "few")(frame.assign(c3=2).drop(columns="row")), "has the value 2"),
    ):
        with pytest.raises(darn.DarnError, match=why):
            make()
    (tmp_path / "m.safetensors").write_bytes((place / "few" / "model.safetensors").read_bytes())
    gone = darn.Scorer(tmp_path / "m.safetensors")
    _worker._loaded.clear()
    (tmp_path / "m.safetensors").write_bytes((place / "many" / "model.safetensors").read_bytes())
    with pytest.raises(darn.DarnError, match="has changed"):
        gone(frame)
    (tmp_path / "m.safetensors").unlink()
    with pytest.raises(darn.DarnError, match="give the bytes"):
        gone(frame)


# ---------------------------------------------------------------- engines


quiet = pytest.mark.filterwarnings("ignore")  # of the engines about themselves


class Dies:
    """A worker's function that ends its process the first time."""

    def __init__(self, work, flag):
        self.work, self.flag = work, str(flag)

    def __call__(self, batch):
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self.work(batch)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `cluster`)")
    path = os.pathsep.join([REPOSITORY, str(Path(__file__).parent)])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield ray
    ray.shutdown()


@quiet
@pytest.mark.parametrize("model", ["many", "table"])
@pytest.mark.parametrize("killed", [False, True])
def test_ray_scores_a_folder(place, tmp_path, ray_cluster, model, killed):
    source = place / ("table-parts" if model == "table" else "bits-parts")
    score = darn.Scorer(place / model, row="row", rows=ROWS, keep=False)
    work = Dies(score, tmp_path / "died") if killed else score
    rows = ray_cluster.data.read_parquet(str(source)).map_batches(work, batch_size=64, batch_format="pyarrow")
    found = rows.to_pandas().sort_values("row")
    assert (tmp_path / "died").exists() == killed
    np.testing.assert_array_equal(found["log_p"], np.load(place / f"{model}.npy"))


@quiet
@pytest.mark.parametrize("killed", [False, True])
def test_ray_samples(place, tmp_path, ray_cluster, killed):
    draw = darn.Sampler(place / "table", rows=60)
    work = Dies(draw, tmp_path / "died") if killed else draw
    found = ray_cluster.data.range(60, override_num_blocks=4).map_batches(work, batch_size=16).to_pandas()
    assert (tmp_path / "died").exists() == killed
    found = found.sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, draw(pd.DataFrame({"id": np.arange(60)})), check_dtype=False)


@pytest.fixture(scope="module")
def dask_cluster():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    path = os.pathsep.join([REPOSITORY, str(Path(__file__).parent)])
    with (
        pytest.MonkeyPatch.context() as patch,
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        patch.setenv("PYTHONPATH", path)
        yield client


@quiet
@pytest.mark.parametrize("killed", [False, True])
def test_dask_scores_a_folder(place, tmp_path, dask_cluster, killed):
    dataframe = pytest.importorskip("dask.dataframe", reason="Dask's data frames are not installed")
    score = darn.Scorer(place / "many", row="row", rows=ROWS, keep=False)
    work = Dies(score, tmp_path / "died") if killed else score
    rows = dataframe.read_parquet(place / "bits-parts", split_row_groups=True)
    found = rows.map_partitions(work, meta=score(rows._meta)).compute().sort_values("row")
    assert (tmp_path / "died").exists() == killed
    np.testing.assert_array_equal(found["log_p"], np.load(place / "many.npy"))


@quiet
@pytest.mark.parametrize("killed", [False, True])
def test_dask_samples(place, tmp_path, dask_cluster, killed):
    dataframe = pytest.importorskip("dask.dataframe", reason="Dask's data frames are not installed")
    draw = darn.Sampler(place / "table", rows=60)
    work = Dies(draw, tmp_path / "died") if killed else draw
    numbers = pd.DataFrame({"id": np.arange(60)})
    rows = dataframe.from_pandas(numbers, npartitions=4)
    found = rows.map_partitions(work, meta=draw(rows._meta)).compute()
    assert (tmp_path / "died").exists() == killed
    found = found.sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, draw(numbers), check_dtype=False)


# ---------------------------------------------------------------- sweeps


def sweep_words(place, out, *more):
    words = ["sweep", place / "bits.csv", "--grid", "lr=1e-3,3e-4", "n_h=2,3", "--n_d", 4, "--epochs", 2, "--out", out]
    return [*map(str, words), "--quiet", *more]


def weights_of(out):
    return [Path(out, "models", f"{i:03}.safetensors") for i in range(4)]


@quiet
def test_ray_trains_a_sweep(place, tmp_path, ray_cluster):
    assert main(sweep_words(place, tmp_path / "one")) == 0
    assert main(sweep_words(place, tmp_path / "ray", "--ray")) == 0
    for a, b in zip(weights_of(tmp_path / "one"), weights_of(tmp_path / "ray")):
        a, b = (jax.tree.leaves(darn.load(path).model) for path in (a, b))
        for v, w in zip(a, b, strict=True):
            np.testing.assert_array_equal(v, w)
    read = lambda out: json.loads(Path(out, "sweep.json").read_text())  # noqa: E731
    assert read(tmp_path / "one")["best"] == read(tmp_path / "ray")["best"]


@quiet
def test_a_lost_worker_costs_time_only(place, tmp_path, ray_cluster):
    """The worker of the first job to start is killed once."""
    jobs = []
    assert main(sweep_words(place, tmp_path / "one")) == 0
    whole = [darn.load(path).model for path in weights_of(tmp_path / "one")]

    def spread(given, splits):
        jobs.extend(given)
        train = Dies(lambda job: sweep.train_job(job, splits), tmp_path / "died")
        work = ray_cluster.remote(max_retries=2)(lambda job: train(job))
        yield from map(ray_cluster.get, [work.remote(job) for job in given])

    record = json.loads((tmp_path / "one" / "sweep.json").read_text())
    recipe, grid = darn.Recipe.from_json(record["recipe"]), {"lr": (1e-3, 3e-4), "n_h": ((2,), (3,))}
    sweep.run(recipe, grid, tmp_path / "ray", spread=spread)
    assert len(jobs) == 4
    assert (tmp_path / "died").exists()
    for a, path in zip(whole, weights_of(tmp_path / "ray")):
        for v, w in zip(jax.tree.leaves(a), jax.tree.leaves(darn.load(path).model), strict=True):
            np.testing.assert_array_equal(v, w)


def test_jobs_train_the_models_of_a_sweep(place, tmp_path):
    """Without Ray: jobs one by one, two of them, then the rest after an interruption."""
    assert main(sweep_words(place, tmp_path / "one")) == 0
    record = json.loads((tmp_path / "one" / "sweep.json").read_text())
    recipe, grid = darn.Recipe.from_json(record["recipe"]), {"lr": (1e-3, 3e-4), "n_h": ((2,), (3,))}
    few = lambda jobs, splits: (pickle.loads(pickle.dumps(sweep.train_job(j, splits))) for j in jobs[:2])  # noqa: E731
    assert sweep.run(recipe, grid, tmp_path / "two", spread=few)["interrupted"]
    found = sweep.run(recipe, grid, tmp_path / "two", spread=few, resume=True)
    assert not found["interrupted"]
    assert found["best"] == record["best"]
    for a, b in zip(weights_of(tmp_path / "one"), weights_of(tmp_path / "two")):
        a, b = (jax.tree.leaves(darn.load(path).model) for path in (a, b))
        for v, w in zip(a, b, strict=True):
            np.testing.assert_array_equal(v, w)


def test_what_is_wrong_with_a_cluster_is_said(place, tmp_path, capsys):
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()  # the cluster of the tests above: a process that is in one looks for no other
    for address in ("nowhere", "127.0.0.1:1", "127.0.0.1:99999999999999999999"):
        began = time.monotonic()
        status = main(sweep_words(place, tmp_path / "x", "--ray", address))
        said = capsys.readouterr().err
        assert status == 2
        assert said.count("\n") == 1
        assert "HOST:PORT" in said or "no Ray cluster" in said or "extra `cluster`" in said
        assert time.monotonic() - began < 60
        assert not (tmp_path / "x").exists()
