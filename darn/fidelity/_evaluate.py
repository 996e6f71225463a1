"""All figures on a table of synthetic rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from darn.data import Table
from darn.fidelity._closeness import Association, Marginal, associations, marginals
from darn.fidelity._columns import ROWS, align
from darn.fidelity._privacy import Privacy, privacy
from darn.fidelity._tasks import Utility, two_sample_auc, utility


@dataclass(frozen=True)
class Fidelity:
    """How close synthetic rows are to real ones, and what they give away."""

    rows: dict[str, int]  # used of each table
    total: dict[str, int]  # rows that each table has
    left_out: tuple[str, ...]  # columns that only some of the tables have, and identifiers left empty
    marginals: tuple[Marginal, ...]
    associations: tuple[Association, ...]  # the largest difference first
    auc: float  # of a classifier that tells synthetic rows from real ones
    utility: Utility | None  # None without a target
    privacy: Privacy
    seed: int

    @property
    def marginal_tv(self) -> float:
        """The mean total variation of a column."""
        return float(np.mean([m.tv for m in self.marginals]))

    @property
    def pairwise_tv(self) -> float | None:
        """The mean total variation of a pair of columns; None for a table of one column."""
        return float(np.mean([a.tv for a in self.associations])) if self.associations else None

    @property
    def pairwise_chance(self) -> float | None:
        """What `pairwise_tv` is for two random halves of the same rows."""
        return float(np.mean([a.chance for a in self.associations])) if self.associations else None

    def to_json(self) -> dict:
        """Every figure, as plain numbers."""
        mean = {name: getattr(self, name) for name in ("auc", "marginal_tv", "pairwise_tv", "pairwise_chance")}
        return mean | asdict(self)


def evaluate(
    real: Table,
    synthetic: Table,
    *,
    held_out: Table | None = None,
    target: str | None = None,
    rows: int = ROWS,
    seed: int = 0,
) -> Fidelity:
    """Compares synthetic rows with real ones.

    Args:
        real: the rows that the synthetic ones were learned from.
        synthetic: anybody's.
        held_out: real rows that the generator has not seen, for the figures on privacy and to test predictions on.
        target: a column to predict from the others, learned from synthetic and from real rows.
        rows: used of each table, at most.
        seed: of the choice of these rows, and of the classifiers.

    Returns:
        The same figures for the same tables, whatever the order of their rows.

    Raises:
        DarnError: No column in common, too few rows, or no such target.
    """
    tables = {"real": real, "synthetic": synthetic} | ({} if held_out is None else {"held_out": held_out})
    columns = align(tables, rows=rows, seed=seed)
    return Fidelity(
        rows={part: columns.rows(part) for part in tables},
        total=dict(columns.total),
        left_out=columns.left_out,
        utility=None if target is None else utility(columns, target),
        marginals=marginals(columns),
        associations=associations(columns),
        auc=two_sample_auc(columns),
        privacy=privacy(columns),
        seed=seed,
    )
