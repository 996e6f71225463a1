"""The scikit-learn estimator: a density estimator that is also a transformer to binary codes.

from darn import DARN
model = DARN().fit(X)            # X of 0 and 1, (rows, columns)
model.score_samples(X)           # log p of every row, nats
model.sample(100)                # new rows
model.transform(X)               # q(h = 1 | x)
model.complete(X_with_nan)       # draws of missing values
"""

import dataclasses
import json
import numbers
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from darn.config import Architecture
from darn.errors import FormatError, InputError
from darn.estimators._parameters import FIELDS, check, check_fraction, is_auto, units
from darn.estimators._rows import distinct, held_out, padded, training_rows
from darn.inference import completion, likelihood, sampling
from darn.model_file import load_model, save_model
from darn.runs import defaults, search
from darn.runs.info import read_info
from darn.runs.provenance import versions
from darn.runs.recipe import Recipe
from darn.training import compiling
from darn.zoo import build


class DARN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """Deep AutoRegressive Network over rows of 0 and 1.

    Parameters left at "auto" depend on the size of the data (`darn.runs.defaults`). Equal rows are merged, so that a
    row with weight 2 and a row given twice have the same effect, and the order of the rows does not matter.

    Args:
        n_h: stochastic units; a number, or one for each layer from the bottom; 0 or () for none.
        n_d: deterministic units between stochastic layers, likewise.
        visible: the kind of the visible layer: factorial, linear, nade, eonade, mixture.
        prior: the kind of the other layers of the decoder.
        encoder: the kind of the encoder's layers.
        learning_rate: of the optimiser.
        batch_size: rows of a training step.
        epochs: passes over the training rows, at most.
        weight_decay: half this times the squared weights is added to the loss.
        l1: penalty on the absolute autoregressive weights.
        patience: validations without improvement after which training stops; 0 for none.
        validation_fraction: fraction of the rows held out to choose the best model and epoch, drawn with
            `random_state`.
        search: seconds, about, on two cores, to choose among a few models by validation; 0 for the default of this
            size. "auto" is a minute, more for over 10,000 rows, and 0 for fewer than 200 or if `epochs` is given.
        n_samples: importance samples per row if there are too many stochastic units for exact scores (more than 16,
            fewer under a NADE); None for as many as `precision` needs (100 in `complete`).
        precision: of an estimated score, nats: a row gets as many samples as bring the variance of its log p down to
            this, and its bias, which is corrected, to half of it; the mean of N rows has a standard error of at most
            sqrt(precision / N).
        binarize: None accepts only 0 and 1; a number is a threshold above which values become 1.
        random_state: an int, a `numpy.random.RandomState` or None, as everywhere in scikit-learn.
        verbose: 1 shows a progress bar (on a terminal) and a line at the end.

    Attributes:
        model_: the fitted `darn.Stack`.
        bound_: bound of the validation rows, nats per row.
        n_iter_: epochs trained.
        recipe_: all settings of the training.
        search_: the models that were compared, their bounds, which was chosen and what it gained over the default; None
            without a search.
    """

    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        n_h="auto",
        n_d="auto",
        *,
        visible="auto",
        prior="linear",
        encoder="factorial",
        learning_rate="auto",
        batch_size="auto",
        epochs="auto",
        weight_decay="auto",
        l1="auto",
        patience="auto",
        validation_fraction=0.1,
        search="auto",
        n_samples=None,
        precision=0.01,
        binarize=None,
        random_state=None,
        verbose=0,
    ):
        self.n_h = n_h
        self.n_d = n_d
        self.visible = visible
        self.prior = prior
        self.encoder = encoder
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.weight_decay = weight_decay
        self.l1 = l1
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.search = search
        self.n_samples = n_samples
        self.precision = precision
        self.binarize = binarize
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------ fit

    def fit(self, X, y=None, sample_weight=None):
        """Trains on rows.

        Args:
            X: (rows, columns), dense or sparse or a frame.
            y: ignored.
            sample_weight: how many rows each row counts for.

        Returns:
            self
        """
        X = self._bits(X, reset=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_fraction("validation_fraction", self.validation_fraction)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        values, weight = distinct(X, sample_weight)
        held = held_out(weight, self.validation_fraction, seed)
        parts = weight - held, held
        if not all(w.any() for w in parts):  # too few rows to set any aside
            parts = weight, weight
        recipes = self._recipes(int(np.count_nonzero(parts[0])), X.shape[1], seed)
        train = training_rows(values, parts[0], X.shape[1], max(r.training.batch for r in recipes))
        valid = training_rows(values, parts[1], X.shape[1], 500)
        mean = jnp.asarray(np.average(X, axis=0, weights=sample_weight), jnp.float32)
        # As one program: otherwise every new shape would compile a dozen small ones.
        start = jax.jit(build, static_argnums=(0, 1), compiler_options=compiling(0))
        make = lambda r: start(r.architecture, X.shape[1], mean=mean, key=jax.random.key(seed))  # noqa: E731
        self.recipe_, found = search.fit(recipes, make, train, valid, progress=bool(self.verbose))
        self.model_, self.search_ = found.model, found.search
        self.bound_, self.n_iter_ = found.bound, found.epochs
        if self.verbose and found.search is not None:
            print(f"DARN: {search.statement(found.search)}")
        if self.verbose:
            print(f"DARN: {found.bound:.2f} nats per validation row, epoch {found.epoch} of {found.epochs}")
        return self

    def _recipes(self, n_rows: int, n_columns: int, seed: int) -> list[Recipe]:
        """The models to choose from: the parameters, with "auto" replaced by values for this size."""
        given = {field: getattr(self, name) for name, field in FIELDS.items() if not is_auto(getattr(self, name))}
        for name in ("batch_size", "epochs"):
            if FIELDS[name] in given:
                check(name, given[FIELDS[name]], 1, whole=True)
        for name in ("n_h", "n_d"):
            if name in given:
                given[name] = units(name, given[name])
        fields = defaults.fields(n_rows, n_columns, given)
        if not is_auto(self.search):
            check("search", self.search, 0)
        check("learning_rate", fields["lr"], 0, above=True)
        check("patience", fields["patience"], 0, whole=True)
        for name in ("weight_decay", "l1"):
            check(name, fields[name], 0)
        if self.n_samples is not None:
            check("n_samples", self.n_samples, 1, whole=True)
        check("precision", self.precision, 1e-6)
        for name in ("visible", "prior", "encoder"):
            choices = next(f for f in dataclasses.fields(Architecture) if f.name == name).metadata["choices"]
            choices = [c for c in choices if c not in ("grid", "conv")]  # which are for images
            if fields[name] not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, not {fields[name]!r}")
        recipe = Recipe().replace(source="", description="fitted by darn.DARN", seed=seed)
        seconds = None if is_auto(self.search) else float(self.search)
        return search.candidates(recipe, given, n_rows, n_columns, seconds=seconds)

    # ------------------------------------------------------------ a density

    def score_samples(self, X):
        """The log-probability of every row: exact up to 16 stochastic units, otherwise by importance sampling.

        The estimate depends only on the row, not on the other rows. With `n_samples` it is too low on average.

        Args:
            X: (rows, columns).

        Returns:
            (rows,), nats.
        """
        X = self._bits(X)
        how = {"precision": self.precision, "n_samples": self.n_samples}
        return likelihood.row_by_row(self.model_, padded(X), **how)[: len(X)].astype(np.float64)

    def score(self, X, y=None, sample_weight=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mean log-probability of the rows.

        Args:
            X: (rows, columns).
            y: ignored.
            sample_weight: how many rows each row counts for.

        Returns:
            The mean, in nats.
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))

    def sample(self, n_samples=1, random_state=None):
        """Draws exact, independent rows of the model.

        Args:
            n_samples: how many.
            random_state: as for the class.

        Returns:
            (n_samples, columns) of 0 and 1.
        """
        check_is_fitted(self)
        check("n_samples", n_samples, 1, whole=True)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return sampling.sample(self.model_, n_samples, seed=seed).x

    def complete(self, X, missing=None, *, n=1, random_state=None):
        """Draws the missing values of every row given the observed ones.

        Args:
            X: (rows, columns), with NaN for missing values.
            missing: (rows, columns) of bool: True for further missing values.
            n: draws per row.
            random_state: as for the class.

        Returns:
            A `darn.inference.completion.Completions`; its `.x` is (rows, n, columns).
        """
        check_is_fitted(self)
        check("n", n, 1, whole=True)
        found: Any = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan"
        )
        X = found.toarray() if sparse.issparse(found) else found
        gone = np.isnan(X)
        if missing is not None:
            missing = np.asarray(missing, bool)
            if missing.shape not in (X.shape, X.shape[1:]):
                raise InputError(f"missing must have the shape {X.shape} of X, or that of one row, not {missing.shape}")
            gone = gone | missing
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        seen = self._as_bits(np.where(gone, 0, X))
        return completion.complete(self.model_, seen, gone, n=n, seed=seed, n_samples=self.n_samples or 100)

    # ------------------------------------------------------------ a transformer

    def transform(self, X):
        """The code of every row: q(h = 1 | x) of each layer, given the most probable code below.

        Args:
            X: (rows, columns).

        Returns:
            (rows, units), with all layers concatenated.
        """
        X = self._bits(X)
        self._must_have_code()
        code = sampling.encode(self.model_, padded(X))
        return np.concatenate(code.q, axis=1)[: len(X)].astype(np.float64)

    def inverse_transform(self, X):
        """The most probable row of each code, unit by unit.

        Args:
            X: (rows, units), from `transform`; probabilities above 1/2 count as 1.

        Returns:
            (rows, columns) of 0 and 1.
        """
        check_is_fitted(self)
        self._must_have_code()
        H = check_array(X, accept_sparse=False)
        if H.shape[1] != self._n_features_out:
            raise InputError(f"codes have {self._n_features_out} columns, as `transform` gives them, not {H.shape[1]}")
        h = np.split(padded(H > 0.5).astype(np.float32), np.cumsum(self.model_.n_h)[:-1], axis=1)
        return sampling.decode(self.model_, tuple(h)).round().astype(np.uint8)[: len(H)]

    @property
    def _n_features_out(self) -> int:
        return sum(self.model_.n_h)

    def _must_have_code(self):
        if not self.model_.n_layers:
            raise InputError("this model has no stochastic layer (n_h = 0), so rows have no code")

    # ------------------------------------------------------------ files

    def save(self, path) -> None:
        """Writes a model file, which the command line can also use, as in `darn eval FILE rows.csv`.

        Args:
            path: the file.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        data = {"name": "", "n": self.n_features_in_, "columns": None if names is None else list(names)}
        params = {k: v for k, v in self.get_params().items() if k != "random_state"}
        info = {"recipe": self.recipe_.to_json(), "data": data, "made": {"versions": versions()}}
        info["training"] = {"valid_bound": self.bound_, "epochs": self.n_iter_}
        info |= {} if self.search_ is None else {"search": self.search_}
        save_model(path, self.model_, json.loads(json.dumps(info | {"estimator": params}, default=_plain)))

    @classmethod
    def load(cls, path) -> "DARN":
        """Loads a fitted estimator from a model file or run folder, also one written by the command line.

        Args:
            path: the file or folder.

        Returns:
            The estimator.
        """
        model, info = load_model(path)
        if model.n_context:
            raise InputError(f"{Path(path)} models rows given a label: open it with darn.load")
        about = read_info(info, model)
        if not about.estimator.keys() <= cls().get_params().keys():
            raise FormatError(f"{Path(path)} has estimator parameters that this darn does not know: upgrade darn")
        new = cls(**about.estimator)
        new.model_, new.n_features_in_ = model, model.n_x
        if about.data.columns:
            new.feature_names_in_ = np.array(about.data.columns, dtype=object)
        new.recipe_ = about.recipe if "recipe" in info else Recipe()
        new.bound_, new.n_iter_ = about.training.valid_bound, about.training.epochs
        new.search_ = info.get("search")
        return new

    # ------------------------------------------------------------ input

    def _bits(self, X, reset: bool = False) -> np.ndarray:
        """X as uint8 of 0 and 1, checked as scikit-learn does."""
        if not reset:
            check_is_fitted(self)
        found: Any = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")
        if not sparse.issparse(found):
            return self._as_bits(found)
        pieces = range(0, found.shape[0], 4096)  # in pieces, to save memory
        return np.concatenate([self._as_bits(found[i : i + 4096].toarray()) for i in pieces])

    def _as_bits(self, X: np.ndarray) -> np.ndarray:
        if self.binarize is not None:
            if isinstance(self.binarize, bool) or not isinstance(self.binarize, numbers.Real):
                raise InputError(f"binarize must be None or a number, not {self.binarize!r}")
            return np.greater(X, float(self.binarize)).astype(np.uint8)
        bad = (X != 0) & (X != 1)
        if bad.any():
            r, c = np.argwhere(bad)[0]
            raise InputError(
                f"X has the value {X[r, c]} in row {r}, column {c}, not 0 or 1: recode it, or set binarize to the "
                "threshold above which a value counts as 1"
            )
        return X.astype(np.uint8)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _plain(value):
    return value.item() if isinstance(value, np.generic) else list(value)
