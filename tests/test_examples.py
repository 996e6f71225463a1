"""The examples run, and show what they say they show."""

import importlib.util
from pathlib import Path

import pytest

from darn.data import describe

FOLDER = Path(__file__).parent.parent / "examples"
HERE = {d["name"] for d in describe() if d["present"]}


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def needs(name):
    return pytest.mark.skipif(name not in HERE, reason=f"the {name} set is not here")


@needs("mushrooms")
def test_anomaly_scores():
    found = example("anomaly_scores")(small=True)
    assert found["DARN"] > found["independent columns"] + 0.2


@needs("ocr_letters")
def test_nearest_codes(tmp_path):
    near, any_row = example("nearest_codes")(small=True, out=str(tmp_path / "a.png"))
    assert near < any_row
    assert (tmp_path / "a.png").exists()


def test_class_conditional_digits(tmp_path):
    assert example("class_conditional_digits")(small=True, out=str(tmp_path / "a.png")) > 0.3  # a tenth by chance
    assert (tmp_path / "a.png").exists()
