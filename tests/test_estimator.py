"""Laws of the scikit-learn face: its conventions to the letter, and the same numbers as the functions beneath."""

import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer
from sklearn.utils.estimator_checks import check_estimator

from darn import DARN, DarnError
from darn.cli import main
from darn.estimators._rows import held_out
from darn.inference import completion, likelihood, sampling
from darn.model_file import load_model, save_model

X = (np.random.default_rng(0).random((60, 6)) < [0.1, 0.3, 0.5, 0.5, 0.7, 0.9]).astype(float)
X[:, 3] = X[:, 2]  # something to learn
QUICK = {"n_h": 4, "n_d": 5, "epochs": 30, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return DARN(**QUICK).fit(X)


def weights(estimator):
    return np.asarray(estimator.model_.decoder[0].layer.W.W)


@pytest.mark.slow
def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(DARN(binarize=0.0, epochs=4), on_skip=None)
    status = [f["status"] for f in found]
    print(f"{status.count('passed')} of scikit-learn's checks passed, {status.count('skipped')} skipped")
    assert status.count("passed") > 45
    assert set(status) <= {"passed", "skipped"}
    # Skipped only where SCIPY_ARRAY_API is not set: scikit-learn's own words.
    assert {f["check_name"] for f in found if f["status"] == "skipped"} <= {"check_array_api_input"}


def test_scores_are_those_of_the_functions_beneath(fitted):
    exact = likelihood.exact(fitted.model_, X)
    np.testing.assert_allclose(fitted.score_samples(X), exact.log_p, rtol=1e-5)
    np.testing.assert_allclose(fitted.score(X), -exact.nll, rtol=1e-5)
    code = sampling.encode(fitted.model_, X)
    np.testing.assert_allclose(fitted.transform(X), code.q[0], rtol=1e-5)
    np.testing.assert_array_equal(fitted.inverse_transform(fitted.transform(X)), code.x > 0.5)
    assert list(fitted.get_feature_names_out()) == [f"darn{j}" for j in range(4)]


def test_completions_are_those_of_the_functions_beneath(fitted):
    holes = X[:6].astype(float)
    holes[:, 1:3] = np.nan
    found = fitted.complete(holes, n=3, random_state=0)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    beneath = completion.complete(fitted.model_, holes, n=3, seed=seed)
    np.testing.assert_array_equal(found.x, beneath.x)
    np.testing.assert_allclose(found.log_p_observed, beneath.log_p_observed, rtol=1e-6)
    kept = np.delete(np.arange(X.shape[1]), [1, 2])
    assert (found.x[:, :, kept] == X[:6, None, kept]).all()
    grey = DARN(**QUICK, binarize=0.4).fit(0.9 * X)
    np.testing.assert_array_equal(grey.complete(0.9 * holes, random_state=0).x[:, 0, kept], X[:6, kept])
    mask = np.isnan(holes)
    for rows in (X[:6], sparse.csr_array(X[:6])):
        np.testing.assert_array_equal(fitted.complete(rows, mask, n=3, random_state=0).x, found.x)
    for rows, n, why in ((holes[:, :-1], 1, "features"), (0.5 * holes, 1, "not 0 or 1"), (holes, 1.5, "whole number")):
        with pytest.raises(ValueError, match=why):
            fitted.complete(rows, n=n)


def test_it_learns():
    found = DARN(random_state=0).fit(X)
    mean = X.mean(axis=0)
    independent = np.mean(X @ np.log(mean) + (1 - X) @ np.log1p(-mean))
    assert found.score(X) > independent + 0.3  # of the 0.69 that the repeated column is worth


def test_samples_are_rows_of_the_model(fitted):
    rows = fitted.sample(20_000, random_state=1)
    assert rows.shape == (20_000, 6)
    assert set(np.unique(rows)) <= {0, 1}
    np.testing.assert_array_equal(rows[:5], fitted.sample(20_000, random_state=1)[:5])
    states, counts = np.unique(rows, axis=0, return_counts=True)
    np.testing.assert_allclose(counts / len(rows), np.exp(fitted.score_samples(states)), atol=0.01)


def test_importance_sampling_scores_a_row_alike_in_any_company():
    found = DARN(**QUICK | {"n_h": (12, 6), "epochs": 2, "n_samples": 3}).fit(X)
    all_at_once = found.score_samples(X)
    np.testing.assert_allclose(all_at_once[::-1], found.score_samples(X[::-1]), rtol=1e-6)
    np.testing.assert_allclose(all_at_once[7:9], found.score_samples(X[7:9]), rtol=1e-6)
    assert found.transform(X).shape == (60, 18)
    assert found.inverse_transform(found.transform(X)).shape == X.shape


def test_a_weight_is_a_number_of_rows():
    w = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = DARN(**QUICK).fit(X, sample_weight=w)
    repeated = DARN(**QUICK).fit(np.repeat(X, w, axis=0)[::-1])
    np.testing.assert_array_equal(weights(weighted), weights(repeated))
    plain = DARN(**QUICK).fit(X)
    assert np.abs(weights(plain) - weights(weighted)).max() > 1e-3
    # Weights are relative: their unit makes no difference to what the model converges to.
    tenth = DARN(**QUICK).fit(X, sample_weight=0.1 * w)
    assert abs(tenth.score(X) - weighted.score(X)) < 0.3


@pytest.mark.parametrize("weight", [np.ones(1000), np.full(32, 300.0), np.full(1000, 1e-3), np.arange(1.0, 300)])
def test_a_tenth_is_held_out_whatever_the_weights(weight):
    held = held_out(weight, 0.1, 0)
    assert np.all((held >= 0) & (held <= weight))
    np.testing.assert_allclose(held.sum() / weight.sum(), 0.1, rtol=0.05)
    if weight.max() > 100:
        assert np.all(held[weight > 100] < 0.2 * weight[weight > 100])  # a frequent row is in both parts


FORMS = {
    "sparse": sparse.csr_array(X),
    "csc": sparse.csc_matrix(X),
    "bool": X.astype(bool),
    "int": X.astype(np.int32),
    "float32": X.astype(np.float32),
    "list": X.tolist(),
    "pandas": pd.DataFrame(X, columns=list("abcdef")),
    "polars": pl.DataFrame(X.astype(int), schema=list("abcdef")),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_the_same_rows_is_the_same_training(fitted, form):
    found = DARN(**QUICK).fit(FORMS[form])
    np.testing.assert_array_equal(weights(found), weights(fitted))
    np.testing.assert_array_equal(found.score_samples(FORMS[form]), fitted.score_samples(X))
    if form in ("pandas", "polars"):
        assert list(found.feature_names_in_) == list("abcdef")
        out = found.set_output(transform=form).transform(FORMS[form])
        assert list(out.columns) == list(found.get_feature_names_out())


def test_in_a_pipeline_and_a_grid_search():
    pipe = make_pipeline(Binarizer(threshold=0.5), DARN(**QUICK))
    search = GridSearchCV(pipe, {"darn__n_h": [2, 4], "darn__weight_decay": [0.0, 1.0]}, cv=2).fit(0.9 * X)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert np.isfinite(search.best_score_)
    assert search.best_estimator_.transform(X).shape == (60, search.best_params_["darn__n_h"])


def test_names_are_scikit_learns(fitted):
    """They reach the training under the names that a recipe has for them."""
    found = DARN(**QUICK, learning_rate=1e-30, batch_size=7)
    assert {"learning_rate", "batch_size", "random_state", "verbose"} <= found.get_params().keys()
    (recipe,) = found._recipes(60, 6, 0)
    assert (recipe.training.lr, recipe.training.batch) == (1e-30, 7)
    start, still = (DARN(**QUICK | {"epochs": n}, learning_rate=1e-30).fit(X) for n in (1, 30))
    np.testing.assert_array_equal(weights(start), weights(still))
    assert np.abs(weights(start) - weights(fitted)).max() > 1e-3


def test_a_seed_may_be_a_number_or_a_state(fitted):
    assert (fitted.sample(9, random_state=3) == fitted.sample(9, random_state=np.random.RandomState(3))).all()
    state = np.random.RandomState(3)
    assert (fitted.sample(99, random_state=state) != fitted.sample(99, random_state=state)).any()


def test_a_threshold(fitted):
    np.testing.assert_array_equal(weights(DARN(**QUICK, binarize=2.0).fit(5 * X)), weights(fitted))


@pytest.mark.parametrize(
    ("params", "data", "said"),
    [
        ({}, X + 0.5, "not 0 or 1"),
        ({"binarize": "threshold"}, X, "binarize must be None or a number"),
        ({"n_h": -1}, X, "n_h must be"),
        ({"n_h": "many"}, X, "n_h must be"),
        ({"n_h": 1.5}, X, "n_h must be"),
        ({"n_h": None}, X, "n_h must be"),
        ({"learning_rate": 0.1j}, X, "learning_rate must be"),
        ({"learning_rate": 0}, X, "learning_rate must be a number above 0"),
        ({"patience": 1.5}, X, "patience must be a whole number"),
        ({"visible": "conv"}, X, "visible must be one of"),
        ({"batch_size": 0}, X, "batch_size must be"),
        ({"epochs": 0}, X, "epochs must be"),
        ({"visible": "dense"}, X, "visible must be one of"),
        ({"validation_fraction": 2}, X, "validation_fraction must be"),
    ],
)
def test_refusals(params, data, said):
    with pytest.raises(ValueError, match=said) as e:
        DARN(**params).fit(data)
    assert isinstance(e.value, DarnError)


def test_without_a_code(fitted):
    found = DARN(**QUICK | {"n_h": 0}).fit(X)
    assert np.all(found.score_samples(X) < 0)
    with pytest.raises(ValueError, match="no stochastic layer"):
        found.transform(X)


def test_saved_and_opened_by_all(fitted, tmp_path, capsys):
    path = tmp_path / "m.safetensors"
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = DARN(**QUICK).fit(frame)
    named.save(path)
    again = DARN.load(path)
    np.testing.assert_array_equal(again.score_samples(frame), named.score_samples(frame))
    assert again.get_params() == named.get_params() | {"random_state": None}
    assert list(again.feature_names_in_) == list("abcdef")
    frame.astype(int).to_csv(tmp_path / "rows.csv", index=False)
    assert main(["eval", str(path), str(tmp_path / "rows.csv"), "--per-row", str(tmp_path / "s.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), named.score_samples(frame), rtol=1e-5)
    assert main(["train", str(tmp_path / "rows.csv"), "--tiny", "--quiet", "--out", str(tmp_path / "run")]) == 0
    theirs = DARN.load(tmp_path / "run")
    assert theirs.score_samples(frame).shape == (60,)
    capsys.readouterr()
    model, info = load_model(path)
    for bad in ({"widths": 3}, 7):
        save_model(path, model, info | {"estimator": bad})
        with pytest.raises(DarnError, match="upgrade|did not write"):
            DARN.load(path)


def test_a_clone_is_not_fitted(fitted):
    assert not hasattr(clone(fitted), "model_")
    assert jnp.isfinite(fitted.bound_)
