"""The estimator for tables: frames of texts, numbers and dates in, frames of the same types out.

from darn import TableDARN
model = TableDARN().fit(frame)      # pandas, polars or Arrow
model.schema_.statement()           # what every column was taken for, and why
model.sample(100)                   # new rows, as a frame of the same types
model.sample(100, given="age>=40")  # new rows that meet conditions
model.query("E(age | sex=Female)")  # a probability, a mean or a distribution
model.score_samples(frame)          # log p of every row, nats
model.complete(frame_with_holes)    # missing values filled in; all others as they were
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from darn import data
from darn.errors import FormatError, InputError
from darn.estimators._parameters import check, check_fraction, is_auto
from darn.inference import completion, likelihood, sampling
from darn.model_file import save_model
from darn.runs import questions, search
from darn.runs.provenance import versions
from darn.runs.recipe import Recipe
from darn.runs.run import load
from darn.runs.start import candidates, new_model


class TableDARN(DensityMixin, BaseEstimator):
    """Deep AutoRegressive Network over the rows of a table.

    Args:
        columns: what some columns are, such as {"zip": "category"}: category, ordered, number, decimal-comma,
            decimal-point (numbers, too), boolean, date, id or auto. All others are recognised.
        unseen: what a text that no training row had counts as, in rows to be scored or completed: "error", "missing",
            or "nearest", the known text that is most like it.
        epochs: passes over the training rows; "auto" chooses them by the size of the table.
        validation_fraction: of the rows, held out to choose the best model and epoch.
        search: seconds, about, on two cores, to choose among a few models by validation; 0 for the default of this
            size. "auto" is a minute, more for over 10,000 rows, and 0 for fewer than 200 or if `epochs` is given.
        n_samples: importance samples of a row, if its code cannot be summed over; None for as many as `precision`
            needs (100 in `complete`).
        precision: of an estimated score, nats: a row gets as many samples as bring the variance of its log p down to
            this.
        random_state: of the weights and of everything drawn.
        verbose: 1 prints what columns were taken for, and progress.
    """

    def __init__(
        self,
        columns=None,
        *,
        unseen="error",
        epochs="auto",
        validation_fraction=0.1,
        search="auto",
        n_samples=None,
        precision=0.01,
        random_state=None,
        verbose=0,
    ):
        self.columns = columns
        self.unseen = unseen
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.search = search
        self.n_samples = n_samples
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None):
        """Trains on the rows of a frame.

        Args:
            X: a DataFrame of pandas or polars, or a Table of Arrow.
            y: ignored.

        Returns:
            self
        """
        self._check_parameters()
        seconds = None if is_auto(self.search) else float(self.search)
        form, cells = data.read_frame(X)
        if len(cells) < 2:
            raise InputError("at least two rows are needed, one of them for validation")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = max(int(len(cells) * self.validation_fraction), 1)
        order = np.random.RandomState(seed).permutation(len(cells))
        train, valid = order[held:], order[:held]
        schema = data.infer(form.names, cells, None, "the frame", kinds=self.columns or {}, fit=train)
        if self.verbose:
            print(*schema.statement(), sep="\n")
        found = schema.encode(form.names, cells, "the frame")
        rows = data.Rows.from_array(found.bits)
        splits = data.Splits(
            "", rows.take(train), rows.take(valid), rows.take(valid[:0]), None, columns=schema.units, schema=schema
        )
        given = {} if is_auto(self.epochs) else {"epochs": self.epochs}
        recipe = Recipe().replace(source="", categorical="auto", seed=seed, description="fitted by darn.TableDARN")
        recipes = candidates(recipe.replace(**given), given, splits, seconds)
        make = lambda r: new_model(r, splits)  # noqa: E731
        self.recipe_, trained = search.fit(recipes, make, splits.train, splits.valid, progress=bool(self.verbose))
        if self.verbose and trained.search is not None:
            print(search.statement(trained.search))
        self.model_, self.schema_, self.form_, self.search_ = trained.model, schema, form, trained.search
        self.feature_names_in_, self.n_features_in_ = np.array(form.names, object), len(form.names)
        self.bound_, self.n_iter_ = trained.bound, trained.epochs
        return self

    def _check_parameters(self) -> None:
        if self.columns is not None and not isinstance(self.columns, Mapping):
            raise InputError(
                f"columns must be a mapping from names to kinds, such as {{'zip': 'category'}}, not {self.columns!r}"
            )
        if self.unseen not in data.UNSEEN:
            raise InputError(f"unseen must be one of {', '.join(data.UNSEEN)}, not {self.unseen!r}")
        if not is_auto(self.epochs):
            check("epochs", self.epochs, 1, whole=True)
        if not is_auto(self.search):
            check("search", self.search, 0)
        if self.n_samples is not None:
            check("n_samples", self.n_samples, 1, whole=True)
        check("precision", self.precision, 1e-6)
        check_fraction("validation_fraction", self.validation_fraction)

    def score_samples(self, X):
        """The log-probability of every row: of its categories, and the density of its numbers.

        Args:
            X: a frame with the columns of the training rows, in any order.

        Returns:
            (rows,), nats.
        """
        check_is_fitted(self)
        form, cells = data.read_frame(X)
        rows = self.schema_.encode(form.names, cells, "the frame", unseen=self.unseen)
        how = {"precision": self.precision, "n_samples": self.n_samples}
        return likelihood.row_by_row(self.model_, rows.bits, **how).astype(np.float64) + rows.log_density

    def score(self, X, y=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mean log-probability of the rows, in nats.

        Args:
            X: a frame with the columns of the training rows, in any order.
            y: ignored.

        Returns:
            The mean.
        """
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples=1, random_state=None, *, given=None, return_info=False):
        """Draws rows of the model: exact and independent, or given conditions where an exact way is not feasible,
        chosen among weighted draws.

        Args:
            n_samples: how many.
            random_state: as for the class.
            given: conditions on columns, as a text such as "sex=Female, age>=40" or as a mapping from columns to a
                value, a list of values, a tuple (least, most), or None for a missing value.
            return_info: whether to return also how the rows were drawn given conditions, with the effective sample
                size and the probability of the conditions.

        Returns:
            A frame like that of the training rows; columns that were set aside are empty, or count on. With
            `return_info`, a pair of it and a `darn.runs.questions.GivenRows`.
        """
        check_is_fitted(self)
        check("n_samples", n_samples, 1, whole=True)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        if given is None and not return_info:
            x = sampling.sample(self.model_, int(n_samples), seed=seed).x
            return self.form_.frame(np.array(self.schema_.decode(x, seed), object), self.schema_.columns)
        within = questions.parts_for(self.schema_, given)
        rows = questions.joined(
            list(questions.given_rows(self.model_, self.schema_, within, int(n_samples), seed=seed))
        )
        frame = self.form_.frame(np.array(self.schema_.decode(rows.x, seed, within), object), self.schema_.columns)
        return (frame, rows) if return_info else frame

    def query(self, question, *, given=None, draws=questions.DRAWS, random_state=None):
        """Answers a question about the columns.

        Args:
            question: "P(event | conditions)", "P(column | conditions)" for a column's distribution, or
                "E(column | conditions)" for its mean, such as "P(income=>50K | sex=Female, age>=40)".
            given: more conditions, as for `sample`.
            draws: for an estimate, where an exact answer is not feasible.
            random_state: as for the class.

        Returns:
            A `darn.runs.questions.Answer`: the number with its standard error, interval and effective sample size.
        """
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return questions.ask(self.model_, self.schema_, question, given=given, draws=draws, seed=seed)

    def complete(self, X, random_state=None):
        """Fills in missing values, drawn given the others in their row.

        Args:
            X: a frame with the columns of the training rows, in any order, perhaps with others.
            random_state: as for the class.

        Returns:
            A frame of the same types (and index) with the missing values of modelled columns filled in; all other cells
            are the same objects as before.
        """
        check_is_fitted(self)
        form, cells = data.read_frame(X)
        rows = self.schema_.encode(form.names, cells, "the frame", unseen=self.unseen, holes=True)
        gone = data.is_missing(cells) & np.isin(form.names, self.schema_.modelled)[None]
        holed = np.flatnonzero(gone.any(axis=1))
        if not len(holed):
            return X.copy() if form.library == "pandas" else X
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        found = completion.complete(
            self.model_, rows.bits[holed], rows.unknown[holed], seed=seed, n_samples=self.n_samples or 100
        )
        drawn = np.array(self.schema_.decode(found.x[:, 0], seed), object)
        place = [self.schema_.names.index(n) if n in self.schema_.names else 0 for n in form.names]
        cells[holed] = drawn[:, place]
        return form.filled(X, cells, gone, self.form_)

    def save(self, path) -> None:
        """Writes a model file, which the command line can also use, as in `darn sample FILE -n 10 --csv`.

        Args:
            path: the file.
        """
        check_is_fitted(self)
        about = {"name": "", "n": self.model_.n_x, "columns": self.schema_.units, "table": self.schema_.to_json()}
        params = {k: v for k, v in self.get_params().items() if k != "random_state"}
        info = {"recipe": self.recipe_.to_json(), "data": about, "made": {"versions": versions()}}
        info |= {"training": {"valid_bound": self.bound_, "epochs": self.n_iter_}}
        info |= {} if self.search_ is None else {"search": self.search_}
        info |= {"table_estimator": {"params": params, "library": self.form_.library, "tags": self.form_.tags}}
        save_model(path, self.model_, json.loads(json.dumps(info)))

    @classmethod
    def load(cls, path) -> "TableDARN":
        """Loads a fitted estimator from a model file or run folder, also one written by the command line.

        Args:
            path: the file or folder.

        Returns:
            The estimator. Its frames have the usual types of their library, pandas for models of the command line.
        """
        run = load(path)
        if run.schema is None or run.model.n_context:
            raise InputError(f"{Path(path)} is not a model of a table without labels: open it with darn.load")
        own = run.about.table_estimator
        if not own.params.keys() <= cls().get_params().keys():
            raise FormatError(f"{Path(path)} has estimator parameters that this darn does not know: upgrade darn")
        new = cls(**own.params)
        new.model_, new.recipe_, new.schema_ = run.model, run.recipe, run.schema
        tags = own.tags or tuple(data.usual_tag(c) for c in run.schema.columns)
        new.form_ = data.Form(own.library, run.schema.names, tags)
        new.feature_names_in_, new.n_features_in_ = np.array(run.schema.names, object), len(run.schema.names)
        new.bound_, new.n_iter_ = run.about.training.valid_bound, run.about.training.epochs
        new.search_ = run.info.get("search")
        return new
