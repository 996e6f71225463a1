"""Class-conditional digits: the label is an observed context of every conditional, so a class can be requested.

    python examples/class_conditional_digits.py [--small]

Writes digits_by_class.png, one line of ten samples for each class, and prints how many of them a classifier trained on
real digits assigns to the requested class.
"""

import sys

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression

import darn
from darn.data import sheet


def main(small: bool = False, out: str = "digits_by_class.png") -> float:
    splits = darn.data.load("digits", labels="label")
    arch = darn.Architecture(n_h=(32,), n_d=(100,), visible="linear")
    train = splits.train
    model = darn.build(arch, train.n, n_context=10, mean=train.unpack().mean(axis=0), key=jax.random.key(0))
    how = darn.Training(lr=1e-3, schedule="cosine", epochs=20 if small else 400, validate_every=20, weight_decay=1e-3)
    fit = darn.fit(model, train, splits.valid, how, progress=not small)
    asked = np.repeat(np.arange(10), 10)
    rows = darn.sample(fit.model, 100, seed=1, context=np.eye(10, dtype=np.float32)[asked]).x
    sheet(rows, (8, 8), out, columns=10)
    judge = LogisticRegression(max_iter=200).fit(train.unpack(), train.labels)
    right = float((judge.predict(rows) == asked).mean())
    print(f"{right:.0%} of the samples look like the requested digit; pictures in {out}")
    return right


if __name__ == "__main__":
    main("--small" in sys.argv)
