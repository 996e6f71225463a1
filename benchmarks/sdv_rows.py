"""Synthetic rows by SDV with its default settings; runs in an environment of its own, without darn.

python sdv_rows.py GaussianCopula|TVAE|CTGAN TRAIN.csv SYNTHETIC.csv      prints what it took, as JSON
"""

import json
import random
import sys
import time
from importlib.metadata import version

import numpy as np
import pandas as pd
import torch
from sdv.metadata import Metadata
from sdv.single_table import CTGANSynthesizer, GaussianCopulaSynthesizer, TVAESynthesizer

KINDS = {"GaussianCopula": GaussianCopulaSynthesizer, "TVAE": TVAESynthesizer, "CTGAN": CTGANSynthesizer}


def main(kind: str, train: str, out: str) -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (what SDV draws from)
    torch.manual_seed(0)
    rows = pd.read_csv(train, keep_default_na=False, na_values=["?", ""])
    tables = {"table": rows}
    began, before = time.monotonic(), time.process_time()
    model = KINDS[kind](Metadata.detect_from_dataframes(tables))
    model.fit(tables)
    fitted, spent = time.monotonic(), time.process_time() - before
    drawn = model.sample(len(rows))
    (drawn["table"] if isinstance(drawn, dict) else drawn).to_csv(out, index=False)
    found = {"seconds_fit": fitted - began, "cpu_seconds_fit": spent, "seconds_sample": time.monotonic() - fitted}
    print(json.dumps(found | {"versions": {p: version(p) for p in ("sdv", "ctgan", "copulas", "torch", "pandas")}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
