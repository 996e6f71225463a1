"""Anomaly scores on a UCI table: rows whose values do not fit together have a low log p.

    python examples/anomaly_scores.py [--small]

Trains on Mushrooms without labels. Anomalies are test rows in which some columns have the values of another row: each
value is common, their combination is not. Prints the score's area under the ROC curve beside that of independent
columns, which cannot see combinations.
"""

import sys

import numpy as np
from sklearn.metrics import roc_auc_score

import darn
from darn import DARN
from darn.inference import likelihood
from darn.runs import baselines


def main(small: bool = False) -> dict[str, float]:
    splits = darn.data.load("mushrooms")
    train, test = splits.train.unpack(), splits.test.unpack()[:1000]
    model = DARN(random_state=0, epochs=20 if small else "auto").fit(train[:500] if small else train)
    rng = np.random.RandomState(0)
    other = test[rng.permutation(len(test))]
    odd = np.where(rng.random_sample(test.shape[1]) < 0.3, other, test)  # the same columns of every row are swapped
    rows = np.concatenate([test, odd])
    truth = np.repeat([0, 1], len(test))
    plain = likelihood.exact(baselines.independent(train), rows).log_p
    found = {
        "DARN": roc_auc_score(truth, -model.score_samples(rows)),
        "independent columns": roc_auc_score(truth, -plain),
    }
    for name, auc in found.items():
        print(f"{name:20} area under the ROC curve {auc:.3f}")
    return found


if __name__ == "__main__":
    main("--small" in sys.argv)
