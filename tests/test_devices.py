"""Several devices and several processes: the same bits row by row, the same training up to the order of sums."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mesh_probe import BASE, FEW, SHARDED, SIZES, WEIGHED, data, model, write_set

import darn
from darn import devices
from darn.cli import main
from darn.cli._meet import Peer, Place, meet, place_of
from darn.devices import _processes
from darn.errors import DarnError
from darn.runs.forecast import forecast
from darn.runs.recipe import Recipe
from darn.training import DeviceRows, Loop, make_optimizer
from darn.training._optim import BY_WEIGHT
from darn.training._record import read_host

HERE = Path(__file__).parent
LIMIT = 300  # seconds: many times what is needed
TRAINED = ("losses", "weights", "sweep", "streamed", "held")


def environment(n_devices):
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    return os.environ | {"JAX_NUM_CPU_DEVICES": str(n_devices), "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def start(n_devices, *words, **more):
    return subprocess.Popen([sys.executable, *map(str, words)], env=environment(n_devices), text=True, **more)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---------------------------------------------------------------- devices


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("mesh") / "found.npz"
    assert start(8, HERE / "mesh_probe.py", out).wait(LIMIT) == 0
    return dict(np.load(out))


def test_rows_give_the_same_bits_on_any_number_of_devices(found):
    names = [name for name in found if name.split("/")[0] not in TRAINED and not name.startswith("sharded")]
    several = [name for name in names if not name.endswith("/1") and name.split("/")[0] + "/1" in found]
    assert {name.split("/")[0] for name in several} >= {"exact", "importance", "sample", "compressed", "encode"}
    assert {name.split("/")[0] for name in several} >= {"given, exact", "given, importance"}
    for name in several:
        np.testing.assert_array_equal(found[name], found[name.split("/")[0] + "/1"], err_msg=name)


def test_a_kernel_draws_the_rows_of_its_own_device(found):
    assert found["rows by kernel/8"] == 16
    np.testing.assert_array_equal(found["kernel/8"], found["kernel/1"])


@pytest.mark.parametrize("what", TRAINED)
def test_training_differs_by_the_order_of_sums_only(found, what):
    for n in [n for n in SIZES if f"{what}/{n}" in found]:
        np.testing.assert_allclose(found[f"{what}/{n}"], found[f"{what}/1"], atol=1e-5, rtol=0, err_msg=f"{n} devices")


@pytest.mark.parametrize("n", FEW)
def test_a_packed_set_is_trained_on_as_if_it_were_in_memory(found, n):
    np.testing.assert_array_equal(found[f"streamed/{n}"], found[f"held/{n}"])


def test_a_step_has_one_all_reduce(found):
    """What else moves are the rows, which go round once before each epoch."""
    collectives = found["collectives/8"].tolist()
    assert collectives.count("all-reduce") == 1
    assert set(collectives) <= {"all-reduce", "collective-permute"}
    assert not found["transfers/8"].size


def test_the_program_to_compile_does_not_grow_with_the_devices(found):
    """But for the weights of the rows that are repeated where 20 rows are divided by eight devices."""
    assert found["operations/2"] == found["operations/4"] > 1000
    assert found["operations/8"] < 1.02 * found["operations/2"]


@pytest.mark.parametrize("name", SHARDED)
def test_sharded_weights_are_the_same_weights(found, name):
    """After 64 steps. Each device has an eighth of most arrays, and there is still one all-reduce a step."""
    np.testing.assert_allclose(found[f"sharded, {name}/8"], found[f"sharded, {name}/1"], atol=1e-5, rtol=0)
    assert found["bytes, shared"] < 0.3 * found["bytes, whole"]
    assert found["reduced, shared"] == 1


def test_a_plan_counts_the_bytes_of_shared_weights(found):
    _, train, valid = data()
    splits = darn.data.Splits("few", train, valid, valid, None)
    recipe = replace(Recipe().replace(n_h=(8,), n_d=(16,), visible="linear"), training=BASE)
    for shared, name in ((False, "whole"), (True, "shared")):
        assert forecast(recipe, splits, devices=8, shard_weights=shared).state_bytes == found[f"bytes, {name}"]


@pytest.mark.parametrize("name", BY_WEIGHT)
def test_these_optimisers_treat_every_weight_by_itself(name):
    rng = np.random.default_rng(0)
    weights, grads = jnp.asarray(rng.normal(size=(2, 6, 4)), jnp.float32)

    @jax.numpy_dtype_promotion("standard")  # as optax expects
    def after(part):
        optimizer = make_optimizer(name, 1e-2)
        w, state = weights[part], optimizer.init(weights[part])
        for _ in range(3):
            updates, state = optimizer.update(grads[part], state, w)
            w = w + updates
        return w

    np.testing.assert_allclose(after(slice(2, 4)), after(slice(None))[2:4], rtol=1e-5)


def test_what_cannot_be_sharded_is_refused():
    _, train, valid = data()
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
    config = darn.Training(batch=20, epochs=1, optimizer="lamb")
    for configs, why in (([config], "lamb does not treat every weight by itself"), ([BASE] * 2, "side by side")):
        rows = DeviceRows.put(train, mesh), DeviceRows.put(valid, mesh)
        with pytest.raises(DarnError, match=why):
            Loop([model()] * len(configs), configs, *rows, mesh=mesh, shard_weights=True)


def test_too_many_devices_are_refused():
    with pytest.raises(DarnError, match="there is 1 device here, not 8"):
        darn.sample(model(), 3, devices=8)
    assert devices.row_mesh() is None
    assert main(["sample", "x", "--devices", "some"]) == 2


# ---------------------------------------------------------------- processes


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two processes of two devices each have trained together, been interrupted and gone on."""
    folder, port = tmp_path_factory.mktemp("pair"), free_port()
    write_set(folder)
    both = [start(2, HERE / "pair_probe.py", port, i, folder) for i in (0, 1)]
    assert [p.wait(LIMIT) for p in both] == [0, 0]
    return folder, *(dict(np.load(folder / f"{i}.npz")) for i in (0, 1))


def test_two_processes_train_like_one(pair):
    _, first, second = pair
    _, train, valid = data()
    alone = darn.fit(model(), train, valid, BASE)
    losses = [row[k]["bound"] for row in alone.history for k in ("train", "valid")]
    np.testing.assert_allclose(first["losses"], losses, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(first["whole"], second["whole"])
    np.testing.assert_array_equal(first["stored"], [4, 2])


def test_as_many_processes_resume_bit_for_bit(pair):
    for one in pair[1:]:
        np.testing.assert_array_equal(one["whole"], one["resumed"])


def test_two_processes_train_from_a_packed_set_like_one_in_memory(pair):
    """In chunks that each process reads its part of, interrupted in the middle of an epoch."""
    folder, *both = pair
    splits = darn.data.load(folder / "rows.csv", columns=WEIGHED)
    alone = darn.fit(model(), splits.train, splits.valid, BASE)
    weights = np.concatenate([np.ravel(w) for w in jax.tree.leaves(alone.model)])
    for one in both:
        np.testing.assert_allclose(one["stream"], weights, atol=1e-5, rtol=0)
        np.testing.assert_array_equal(one["stream"], one["stream_resumed"])


def test_two_processes_share_weights(pair):
    """Interrupted and resumed: the weights of a run that keeps all of them everywhere."""
    for one in pair[1:]:
        np.testing.assert_allclose(one["shared"], one["wide"], atol=1e-6, rtol=0)


def test_another_number_of_processes_resumes(pair, tmp_path):
    folder, first, _ = pair
    _, train, valid = data()
    shutil.copytree(folder / "copy", tmp_path / "copy")
    alone = darn.fit(model(), train, valid, BASE, folder=tmp_path / "copy", resume=True)
    weights = np.concatenate([np.ravel(w) for w in jax.tree.leaves(alone.model)])
    assert alone.epochs == BASE.epochs
    np.testing.assert_allclose(weights, first["whole"], atol=1e-5, rtol=0)


def test_processes_agree_on_what_is_wrong(pair):
    for one in pair[1:]:
        assert "process 1 has other training rows than process 0" in str(one["data"])
        assert "process 1 has other options than process 0" in str(one["options"])
        assert "process 1 has other devices than process 0" in str(one["devices"])
        assert "process 1 has other weights than process 0" in str(one["weights"])
        assert "cannot write /dev/null/run" in str(one["folder"])
        assert "3 rows cannot be shared by 4 devices" in str(one["batch"])


# ---------------------------------------------------------------- processes of the command line


def together(out, rows, port, process, *more, epochs=10_000, cwd=None):
    words = ("-m", "darn", "train", rows, "--out", out, "--n_h", 2, "--batch", 20, "--epochs", epochs, "--quiet")
    words += ("--checkpoint_every", 0.5, "--coordinator", f"127.0.0.1:{port}", "--processes", 2, "--process", process)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start(2, *words, "--wait", 100, *more, **pipes, cwd=cwd)


def said(process):
    """(exit status, what the process printed to standard error of its own)."""
    _, err = process.communicate(timeout=LIMIT)
    return process.returncode, [line for line in err.splitlines() if not line.startswith("[Gloo]")]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    np.savetxt(path, data()[0], fmt="%d", delimiter=",")
    return path


def test_a_killed_process_ends_the_others_and_nothing_is_lost(tmp_path, rows):
    """One process then goes on alone, to the weights of an unbroken run. Without a code: no bit is drawn that the order
    of a sum could flip."""
    epochs, out, port = 1000, tmp_path / "run", free_port()
    plain = ("--n_h", "", "--validate_every", 100)
    first, second = (together(out, rows, port, i, *plain, "--shard-weights", epochs=epochs) for i in (0, 1))
    until = time.monotonic() + LIMIT
    kept = out / "checkpoint.safetensors"  # the first one is made after one epoch
    while not (kept.exists() and read_host(kept).epoch > 1) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(second.pid, signal.SIGKILL)
    killed = time.monotonic()
    status, lines = said(first)
    assert status == 3
    assert time.monotonic() - killed < 60
    assert len(lines) == 1
    assert "process 1 " in lines[0]
    assert "--resume" in lines[0]
    second.communicate(timeout=LIMIT)
    assert 1 < read_host(kept).epoch < epochs
    alone = ("train", rows, *plain, "--batch", 20, "--epochs", epochs, "--checkpoint_every", 0.5, "--quiet", "--out")
    assert main([*map(str, alone), str(out), "--resume"]) == 0
    assert main([*map(str, alone), str(tmp_path / "unbroken")]) == 0
    resumed, unbroken = (jax.tree.leaves(darn.load(path).model) for path in (out, tmp_path / "unbroken"))
    for one, other in zip(resumed, unbroken, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=0)


def test_what_is_wrong_with_one_process_is_said_by_all(tmp_path, rows):
    port = free_port()
    both = [together(tmp_path / "run", rows, port, i, *(("--devices", 9) if i else ()), epochs=1) for i in (0, 1)]
    for (status, lines), expected in zip(map(said, both), (3, 2), strict=True):
        assert status == expected
        assert len(lines) == 1
        assert "there are 2 devices here, not 9" in lines[0]
    assert not (tmp_path / "run").exists()


def flipped(path):
    content = bytearray(path.read_bytes())
    content[4] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("what", ["other rows", "a damaged part", "a full disk"])
def test_what_is_wrong_on_one_machine_ends_all(tmp_path, rows, what):
    """Each with a sentence, and nothing is left behind."""
    machines = [tmp_path / name for name in "ab"]
    source = "/proc/self/cwd/rows.csv"  # one path, but a file of each process's own
    for machine in machines:
        machine.mkdir()
        shutil.copy(rows, machine / "rows.csv")
    if what == "other rows":
        lines = rows.read_text().splitlines(keepends=True)
        (machines[1] / "rows.csv").write_text("".join(lines[::-1]))
        expected = "process 1 has other training rows than process 0"
    elif what == "a damaged part":
        source = "/proc/self/cwd/set"
        darn.data.pack_files([rows], machines[0] / "set")
        shutil.copytree(machines[0] / "set", machines[1] / "set")
        flipped(machines[1] / "set" / "00000.rows")
        expected = "does not match its checksum"
    else:
        expected = "write"
    out, port = tmp_path / "run", free_port()
    both = [together(out, source, port, i, "--no-cache", epochs=1, cwd=machine) for i, machine in enumerate(machines)]
    if what == "a full disk":  # the first process's files may not grow, which is how it looks to a writer
        resource.prlimit(both[0].pid, resource.RLIMIT_FSIZE, (3000, 3000))
    for status, lines in map(said, both):
        assert status in (2, 3), lines
        assert len(lines) == 1, lines
        assert expected in lines[0]
    assert not out.exists()


MEETINGS = {
    "versions": ({"versions": {"darn": "1", "jax": "2"}}, "has jax 2, process 0 has 1: install the same versions"),
    "number": ({"process": 0}, "two processes with the number 0"),
    "no number": ({"process": "x"}, "a process has the number 'x'"),
    "how many": ({"processes": 3}, "was told of 3 processes, process 0 of 2"),
}


@pytest.mark.parametrize("what", MEETINGS)
def test_processes_that_do_not_fit_together_are_told_so(what):
    change, expected = MEETINGS[what]
    place, versions = Place("127.0.0.1", free_port(), 2, 0), {"darn": "1", "jax": "1"}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(meet, place, versions, 20.0)
        hello = {"process": 1, "processes": 2, "host": "b", "versions": versions} | change
        peer = Peer(connected(place))
        peer.send(hello)
        assert expected in peer.wait(time.monotonic() + 20)["end"]
        with pytest.raises(DarnError, match=re.escape(expected)):
            first.result()
        peer.link.close()


def connected(place):
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((place.host, place.port))
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"[]\n{}\n",
        b'{"go": 65536}\n',
        b"[" * 60_000 + b"\n",
        b"\n" * 9,
        b"",
    ],
    ids=["http", "empty", "no port", "deep", "lines", "nothing"],
)
def test_a_stranger_at_the_address_is_no_first_process(answer):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def stranger():
            link, _ = server.accept()
            with link:
                link.recv(100)
                link.sendall(answer)

        pool.submit(stranger)
        with pytest.raises(DarnError, match="first process"):
            meet(Place("127.0.0.1", server.getsockname()[1], 2, 1), {}, 1.0)


def test_nobody_there(capsys, tmp_path, rows):
    words = ["train", str(rows), "--out", str(tmp_path / "run"), "--processes", "2", "--wait", "0.5"]
    cases = (
        ("0", "127.0.0.1", "process 1 did not come"),
        ("1", "127.0.0.1", "the first process cannot be reached"),
        ("1", "nowhere.invalid", "the first process cannot be reached"),
        ("1", "no..where", "the first process cannot be reached"),
    )
    for process, host, sentence in cases:
        assert main([*words, "--process", process, "--coordinator", f"{host}:{free_port()}"]) == 2
        err = capsys.readouterr().err
        assert sentence in err
        assert err.count("\n") == 1
    for wait in ("nan", "inf", "-1"):
        assert main([*words, "--process", "1", "--coordinator", "a:1", f"--wait={wait}"]) == 2
        assert "--wait takes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_of_very_many_who_did_not_come_some_are_named():
    with pytest.raises(DarnError, match=r"process 1, 2, 3, 4, 5, 6, 7, 8, \.\.\. did not come"):
        meet(Place("127.0.0.1", free_port(), 10**6, 0), {}, 0.1)


def test_what_processes_compare_has_names_places_and_shapes():
    different = (
        {"a": 1, "b": None},
        {"a": None, "b": 1},
        {"b": 1},
        [1, None],
        [None, 1],
        np.zeros((2, 3), np.uint8),
        np.zeros((3, 2), np.uint8),
        np.zeros(6, np.int8),
    )
    assert len({_processes._digest(v) for v in different}) == len(different)
    assert _processes._digest({"a": [1, "x"]}) == _processes._digest({"a": [1, "x"]})


@pytest.mark.parametrize("wrong", ["2", "two", 1.0, [1]])
def test_a_number_of_devices_is_a_number(wrong):
    with pytest.raises(TypeError, match="devices is a number, or all"):
        devices.use(wrong)


def test_places(monkeypatch):
    for name in [k for k in os.environ if k.startswith(("SLURM", "JAX_COORD", "JAX_NUM_P", "JAX_PROC", "JOB_COMP"))]:
        monkeypatch.delenv(name)
    assert place_of(None, None, None) is None
    for given in (("auto", 2, 0), (None, 2, None), ("a:1", 2, 2), ("a:1", None, 0), ("a", 2, 0), ("a:99999", 2, 0)):
        with pytest.raises(DarnError):
            place_of(*given)
    for name, value in (("JAX_NUM_PROCESSES", "²"), ("SLURM_PROCID", "1e3"), ("JAX_PROCESS_ID", "9" * 5000)):
        monkeypatch.setenv(name, value)
        with pytest.raises(DarnError, match=f"the variable {name}, for "):
            place_of("a:1", 2 if "PROC" in name and "NUM" not in name else None, 0 if "NUM" in name else None)
        monkeypatch.delenv(name)
    for job in ("", "five", "9" * 5000):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        with pytest.raises(DarnError, match="not a SLURM job"):
            place_of("auto", None, None)
    with pytest.raises(DarnError, match="at least 1"):
        place_of("a:1", 0, 0)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "")  # as good as none
    assert place_of(None, None, None) is None
    environ = {"SLURM_JOB_ID": "5", "SLURM_STEP_NODELIST": "n[017-019,3]", "SLURM_NTASKS": "3", "SLURM_PROCID": "2"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert place_of(None, None, None) is None  # a job is not several processes of one training unless asked for
    place = place_of("auto", None, None)
    assert (place.address, place.processes, place.process) == ("n017:61445", 3, 2)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "[::1]:77")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    place = place_of(None, None, None)
    assert (place.host, place.port, place.process) == ("::1", 77, 1)
