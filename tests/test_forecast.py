"""What is told before a training is what it then takes, as far as it can be counted."""

import json

import jax
import numpy as np
import pytest

from darn import DarnError, data
from darn.cli import main
from darn.data import _pack_rows
from darn.runs import forecast as told
from darn.runs.forecast import forecast
from darn.runs.recipe import Recipe
from darn.runs.start import new_model
from darn.training import DeviceRows, Loop

RNG = np.random.default_rng(0)
ROWS = data.Rows.from_array(RNG.random((600, 20)) < 0.3)
SPLITS = data.Splits("few", ROWS, ROWS.take(slice(100)), ROWS.take(slice(50)), None)
RECIPE = Recipe().replace(n_h=(6,), n_d=(8,), batch=50, epochs=9, validate_every=2)


@pytest.fixture(scope="module")
def found():
    return forecast(RECIPE, SPLITS)


def test_counts_are_those_of_the_run(found):
    model = new_model(RECIPE, SPLITS)
    rows = DeviceRows.put(SPLITS.train)
    loop = Loop([model], [RECIPE.training], rows, DeviceRows.put(SPLITS.valid))
    held = jax.tree.leaves((loop.state, loop.best))
    assert found.parameters == sum(w.size for w in jax.tree.leaves(loop.best))
    assert found.state_bytes == sum(v.nbytes for v in held)
    assert found.steps == loop.program.n_steps == 9 * 12
    assert found.validations == 5
    assert found.memory_bytes == found.state_bytes + found.data_bytes + found.activation_bytes
    given = loop.state, loop.hyper
    programs = (
        loop.program.epochs.lower(*given, rows, 0, 1),
        loop.program.bound.lower(*given, loop.valid, n_samples=loop.n_samples),
    )
    own = max(program.compile().memory_analysis().temp_size_in_bytes for program in programs)
    assert found.activation_bytes + found.data_bytes == pytest.approx(
        own + SPLITS.train.values.nbytes + SPLITS.valid.values.nbytes, rel=0.25
    )
    assert found.seconds > found.steps * found.step_seconds > 0


def test_what_a_device_tells_of_its_memory_is_counted(found, monkeypatch):
    """The peak while programs are compiled, if it is above the one before and above what XLA says of the programs."""
    peaks = iter([10**6, 10**9])
    peak = [next(peaks)]

    def validation(*_):
        peak[0] = next(peaks, peak[0])
        return made(*_)

    made = told._Measured.validation
    monkeypatch.setattr(told._Measured, "validation", validation)
    monkeypatch.setattr(
        told, "_told", lambda: {"peak_bytes_in_use": peak[0], "bytes_in_use": 300, "bytes_limit": 10**10}
    )
    first, later = (forecast(RECIPE, SPLITS) for _ in range(2))
    assert first.compiling_bytes == 10**9 - 300
    assert first.memory_bytes == first.state_bytes + first.data_bytes + first.compiling_bytes
    assert later.compiling_bytes == found.compiling_bytes == 0  # the peak was there before
    assert later.memory_bytes == found.memory_bytes


def test_an_exchange_is_counted_by_its_bytes(found):
    both = forecast(RECIPE, SPLITS, devices=5, hosts=2, bandwidth=2.0)
    assert (both.devices, both.hosts, both.batch) == (10, 2, 50)
    assert both.exchange_seconds == pytest.approx(2 * 0.9 * 4 * both.parameters / 2e9)
    assert found.exchange_seconds == 0
    assert both.activation_bytes < found.activation_bytes


def test_shared_weights_take_less_memory_and_are_exchanged_as_well(found):
    """What a device then holds is compared with a run on eight devices in test_devices.py."""
    whole, shared = (forecast(RECIPE, SPLITS, devices=2, shard_weights=s, bandwidth=2.0) for s in (False, True))
    assert 0.5 * whole.state_bytes <= shared.state_bytes < 0.7 * whole.state_bytes == 0.7 * found.state_bytes
    weights = 4 * found.parameters
    assert 0.8 * weights < shared.activation_bytes - whole.activation_bytes <= weights
    assert whole.exchange_seconds < shared.exchange_seconds <= 1.5 * whole.exchange_seconds
    assert forecast(RECIPE, SPLITS, shard_weights=True).state_bytes == found.state_bytes


def test_a_set_larger_than_memory_is_counted_by_its_chunks(found, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", ROWS.unpack())
    data.pack_files([tmp_path / "x.npy"], tmp_path / "set")
    for held in (1 << 20, 0):
        monkeypatch.setattr(_pack_rows, "HELD", held)
        splits = data.load(tmp_path / "set")
        rows = sum(len(part) for part in (splits.train, splits.valid))
        order = 16 * len(splits.train) if held else 0
        assert forecast(RECIPE, splits).data_bytes == 3 * rows + order


def test_what_cannot_be_is_refused(capsys):
    for options, why in (
        ({"devices": 51}, "cannot be shared by 51"),
        ({"devices": 0}, "at least one device"),
        ({"hosts": 0}, "at least one device"),
        ({"bandwidth": 0.0}, "positive"),
        ({"bandwidth": float("nan")}, "positive"),
    ):
        with pytest.raises(DarnError, match=why):
            forecast(RECIPE, SPLITS, **options)


def test_the_command_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("my.npy", np.asarray(RNG.random((80, 6)) < 0.4, np.uint8))
    assert main(["plan", "my.npy", "--n_h", "2", "--epochs", "3", "--devices", "4", "--shard-weights", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["devices"] == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my.npy"]
