"""Nearest codes on OCR letters: similar rows are found by their binary codes.

    python examples/nearest_codes.py [--small]

Writes nearest_codes.png: a test letter at the left of each line, then the training letters whose codes differ from its
code in the fewest bits.
"""

import sys

import numpy as np

import darn
from darn import DARN
from darn.data import sheet


def main(small: bool = False, out: str = "nearest_codes.png") -> np.ndarray:
    splits = darn.data.load("ocr_letters")
    train, test = splits.train.unpack(), splits.test.unpack()[::997][:10]
    train = train[:2000] if small else train[:10_000]
    model = DARN(n_h=64, random_state=0, epochs=5 if small else "auto").fit(train)
    codes, queries = (model.transform(X) > 0.5 for X in (train, test))
    distance = (codes[None] != queries[:, None]).sum(axis=2)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :9]
    sheet(
        np.concatenate([np.concatenate([q[None], train[i]]) for q, i in zip(test, nearest)]), (16, 8), out, columns=10
    )
    pixels = np.mean([(train[i] != q).mean() for q, i in zip(test, nearest)])
    chance = np.mean([(train[:500] != q).mean() for q in test])
    print(f"pixels that differ: {pixels:.1%} among the nearest by code, {chance:.1%} among any; pictures in {out}")
    return np.array([pixels, chance])


if __name__ == "__main__":
    main("--small" in sys.argv)
