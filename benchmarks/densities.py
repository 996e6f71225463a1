"""log p of real-valued columns by `TableDARN()` with nothing set, beside the best mixture of Gaussians.

python -m benchmarks.densities                 three data sets of scikit-learn, into results/bench/densities.json
python -m benchmarks.densities --join A B      records of some of the sets, as one; of a row in both, that of A

Both choose by the same validation rows, an eighth of those that are not tested: the mixture its covariances, number of
components and regularisation, ours what `fit` chooses. Test rows, a fifth, are scored once.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.mixture import GaussianMixture

from benchmarks.measure import ROOT, environment
from darn import TableDARN

SETS = ("diabetes", "wine", "breast_cancer")
COVARIANCES, COMPONENTS, LEAST = ("full", "tied", "diag"), range(1, 13), (1e-6, 1e-3, 1e-2, 3e-2, 1e-1)
CATEGORIES = {"diabetes": ("sex",)}  # no real numbers: a mixture of Gaussians would get any density for them


def load(name: str) -> pd.DataFrame:
    """The real-valued columns of a set, the target of a regression among them."""
    found = getattr(datasets, f"load_{name}")(**({"scaled": False} if name == "diabetes" else {}))
    frame = pd.DataFrame(found.data, columns=list(found.feature_names))
    frame = frame.drop(columns=list(CATEGORIES.get(name, ())))
    return frame.assign(target=found.target) if name == "diabetes" else frame


def best_mixture(train: np.ndarray, valid: np.ndarray) -> tuple[dict, GaussianMixture]:
    """The mixture that validates best, and its choices; of rows with mean 0 and deviation 1."""
    found = []
    for covariance in COVARIANCES:
        for n in COMPONENTS:
            for least in LEAST:
                model = GaussianMixture(n, covariance_type=covariance, reg_covar=least, random_state=0)
                try:
                    found.append((model.fit(train).score(valid), covariance, n, least, model))
                except ValueError:  # a component without rows
                    continue
    _, covariance, n, least, model = max(found, key=lambda one: one[0])
    return {"covariance": covariance, "components": n, "reg_covar": least}, model


def measure(name: str, seed: int) -> dict:
    """The log-likelihoods of the test rows of one division."""
    frame = load(name)
    order = np.random.default_rng(seed).permutation(len(frame))
    test, rest = order[: len(frame) // 5], order[len(frame) // 5 :]
    began = time.process_time()
    model = TableDARN(validation_fraction=1 / 8, random_state=seed).fit(frame.iloc[rest])
    spent = time.process_time() - began
    ours = model.score_samples(frame.iloc[test])
    # The division that `fit` made.
    inner = np.random.RandomState(np.random.RandomState(seed).randint(2**31 - 1)).permutation(len(rest))
    held = max(int(len(rest) / 8), 1)
    train, valid, tested = (frame.to_numpy()[i] for i in (rest[inner[held:]], rest[inner[:held]], test))
    mean, spread = train.mean(axis=0), train.std(axis=0)
    chosen, mixture = best_mixture((train - mean) / spread, (valid - mean) / spread)
    theirs = mixture.score_samples((tested - mean) / spread) - np.log(spread).sum()
    gain = ours - theirs
    return {
        "set": name,
        "division": seed,
        "columns": frame.shape[1],
        "rows": {"train": len(train), "valid": len(valid), "test": len(test)},
        "log_p": float(ours.mean()),
        "mixture": float(theirs.mean()),
        "gain": float(gain.mean()),
        "gain_ci95": float(1.96 * gain.std(ddof=1) / len(gain) ** 0.5),
        "mixture_chosen": chosen,
        "chosen": None if model.search_ is None else model.search_["candidates"][model.search_["chosen"]]["name"],
        "cpu_seconds_fit": spent,
    }


def join(paths: list[Path]) -> dict:
    """The rows of several runs, each with the provenance of its run."""
    rows = {}
    for path in paths:
        made = json.loads(path.read_text())
        for row in made.pop("rows"):
            rows.setdefault((SETS.index(row["set"]), row["division"]), {"made": made} | row)
    return {"rows": [rows[place] for place in sorted(rows)]}


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.densities", description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--divisions", type=int, default=1, help="of each set into training and test rows")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "densities.json")
    parser.add_argument("--join", nargs="+", type=Path, help="join the records of several runs, the newest first")
    args = parser.parse_args(argv)
    if args.join:
        record = join(args.join)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
        return record
    warnings.filterwarnings("ignore", module="sklearn")  # mixtures that did not converge are candidates like others
    record = environment(f"python -m benchmarks.densities --divisions {args.divisions}", 0) | {"rows": []}
    for name in args.sets:
        for seed in range(args.divisions):
            record["rows"].append(measure(name, seed))
            print(json.dumps(record["rows"][-1]), flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()
