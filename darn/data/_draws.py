"""Random numbers of rows, each a function of the row's number."""

from __future__ import annotations

import numpy as np

GROUP = 1024  # rows whose numbers come from one generator
MOST = 3  # numbers of a row


class RowDraws:
    """Numbers in [0, 1) for some rows: what a row gets depends on its number alone, not on the others.

    Args:
        seed: of all rows.
        stream: another one for each column.
        numbers: (N,) of the rows.
    """

    def __init__(self, seed: int, stream: int, numbers: np.ndarray):
        self._own, self.numbers = (seed, stream), np.asarray(numbers, np.int64)

    def take(self, index: np.ndarray) -> RowDraws:
        """Those of some of the rows."""
        return RowDraws(*self._own, self.numbers[index])

    def uniform(self, count: int) -> np.ndarray:
        """(count, N), `count` numbers of each row, at most `MOST`."""
        found = np.zeros((len(self.numbers), MOST))
        group, place = np.divmod(self.numbers, GROUP)
        for g in np.unique(group).tolist():
            # Raw output, not a Generator's: it is frozen, so the same seed gives the same rows with every NumPy.
            raw = np.random.Philox(np.random.SeedSequence([*self._own, g])).random_raw(GROUP * MOST)
            every = (raw >> 11).reshape(GROUP, MOST) * 2.0**-53
            here = group == g
            found[here] = every[place[here]]
        return found[:, :count].T
