"""What functions of a model are given: legal input of any type gives the same, all other input one sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_model

from darn.config import Architecture, LocalLayer, Start, Training, Window
from darn.data import Rows
from darn.errors import DarnError, InputError
from darn.inference import completion, enumeration, importance, sampling, sparse
from darn.inference.given import check_count
from darn.inference.objective import make_loss
from darn.training import fit
from darn.zoo import build

N = 5
MISSING = np.arange(4) == 1

# Of rows, and of their context; each named by what it is called with.
FUNCTIONS = {
    "exact": lambda m, x, c: enumeration.exact(m, x, context=c).log_p,
    "importance": lambda m, x, c: importance.importance(m, x, context=c, n_samples=8, repeats=2).log_p,
    "encode": lambda m, x, c: sampling.encode(m, x, context=c).x,
    "complete": lambda m, x, c: completion.complete(m, x, MISSING, context=c).log_p_observed,
    "conditional": lambda m, x, c: completion.conditional(m, x, MISSING, context=c).log_p,
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def given():
    """(a model of four units with a context, rows, their context)."""
    model, c = make_model("1 linear | c")
    return model, (np.random.default_rng(0).random((N, 4)) < 0.5).astype(np.uint8), np.stack([c] * N)


@functions
def test_rows_and_context_of_any_type(function):
    model, x, c = given()
    found = function(model, x, c)
    for same in (
        x.astype(bool),
        x.astype(np.float64),
        x.astype(np.int64),
        np.asfortranarray(x),
        jnp.asarray(x),
        x.tolist(),
    ):
        np.testing.assert_array_equal(function(model, same, c), found)
    for same in (c.astype(np.float64), jnp.asarray(c), c.tolist()):
        np.testing.assert_array_equal(function(model, x, same), found)


def with_first(x, value):
    x = x.astype(float)
    x[0, 0] = value
    return x


BAD_ROWS = {
    "a number": lambda x: 2 * x,
    "between 0 and 1": lambda x: with_first(x, 0.5),
    "below 0": lambda x: with_first(x, -1),
    "texts": lambda x: x.astype(str),
    "too narrow": lambda x: x[:, :3],
    "one row": lambda x: x[0],
}


@functions
@pytest.mark.parametrize("change", BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_do_not_fit(function, change):
    model, x, c = given()
    with pytest.raises(InputError, match="the rows must"):
        function(model, change(x), c)


@pytest.mark.parametrize("name", ["exact", "importance", "encode", "conditional"])
def test_missing_values_are_only_for_completion(name):
    model, x, c = given()
    with pytest.raises(InputError, match="the rows must be 0 and 1"):
        FUNCTIONS[name](model, with_first(x, np.nan), c)


@functions
def test_a_context_that_does_not_fit(function):
    model, x, c = given()
    for bad in (None, c[:3], c[:, :1], c[0], np.full_like(c, np.nan)):
        with pytest.raises(InputError, match="context"):
            function(model, x, bad)
    with pytest.raises(InputError, match="the context must have shape"):
        function(make_model("2")[0], x, c)


def test_intensities_are_for_independent_units():
    grey = np.full((N, 5), 0.25)
    model, _ = make_model("1 factorial")
    assert enumeration.exact(model, grey).nll > 0
    with pytest.raises(InputError, match="the rows must be 0 and 1"):
        completion.complete(model, grey, np.arange(5) == 1)
    with pytest.raises(InputError, match="the rows must"):
        enumeration.exact(model, grey + 1)


def test_codes_and_contexts_to_sample_from():
    model, _, c = given()
    h = np.zeros((N, 3), np.uint8)
    assert sampling.sample(model, N, h=(h,), context=c).x.shape == (N, 4)
    for bad in ((h[:, :2],), (h, h), (h[0],)):
        with pytest.raises(InputError, match="the code must have shape"):
            sampling.sample(model, N, h=bad, context=c)
        with pytest.raises(InputError, match="the code must have shape"):
            sampling.decode(model, bad, context=c[: len(bad[0])])
    for bad in (None, c[:3], c[:, :1]):
        with pytest.raises(InputError, match="context"):
            sampling.sample(model, N, context=bad)
        with pytest.raises(InputError, match="context"):
            sampling.decode(model, (h,), context=bad)
    with pytest.raises(InputError, match="no hidden layers"):
        sampling.decode(make_model("fvsbn")[0], ())
    with pytest.raises(InputError, match="the number of rows must be a whole number, 0 or more"):
        sampling.sample(model, -1, context=c)
    for bad in (1.5, "3", None):  # annotations refuse these in the tests, but not elsewhere
        with pytest.raises(InputError, match="must be a whole number, 0 or more"):
            check_count("n", bad, 0)
    with pytest.raises(InputError, match="context"):
        sparse.sample(make_model("1 fdarn")[0], N, context=c)


def rows(n=4, **more):
    return Rows.from_array((np.random.default_rng(1).random((N, n)) < 0.5).astype(np.uint8), **more)


WRONG = {
    "lr": -1.0,
    "batch": 0,
    "epochs": 0,
    "n_samples": 0,
    "validate_every": 0,
    "estimator": "dran",
    "log_q": "sample",
    "schedule": "halve",
    "noise_on": "encoder",
    "seed": 2**31,
}


@pytest.mark.parametrize("name", WRONG)
def test_options_of_training_that_cannot_be(name, tmp_path):
    model, _ = make_model("2")
    with pytest.raises(InputError, match=name) as e:
        fit(model, rows(), rows(), Training(**{name: WRONG[name]}), folder=tmp_path / "run")
    assert isinstance(e.value, ValueError)
    assert not (tmp_path / "run").exists()


def test_rows_to_train_on_may_be_arrays():
    model, how = make_model("2")[0], Training(epochs=1, batch=4)
    packed, arrays = fit(model, rows(), rows(), how), fit(model, rows().unpack(), rows().unpack().tolist(), how)
    assert arrays.history == packed.history
    with pytest.raises(DarnError, match="has the value 2"):
        fit(model, rows().unpack() + 1, rows(), how)


def test_training_that_does_not_fit_the_model():
    model, _ = make_model("2")
    for wrong in ((model, rows(), rows(), {"lr": 0.1}), ("model", rows(), rows(), Training())):
        with pytest.raises(TypeError, match="fit takes a"):
            fit(*wrong)
    with pytest.raises(InputError, match="no validation rows"):
        fit(model, rows(), rows().take(slice(0)), Training(epochs=1))
    for train, valid, said in ((rows(3), rows(), "training rows have 3"), (rows(), rows(5), "validation rows have 5")):
        with pytest.raises(InputError, match=said):
            fit(model, train, valid, Training(epochs=1))
    beside = rows(context=np.zeros((N, 2)))
    with pytest.raises(InputError, match="a context of 2, but the model has 4 and 0"):
        fit(model, beside, beside, Training(epochs=1))
    with pytest.raises(InputError, match="sparsity"):
        fit(make_model("fvsbn")[0], rows(6), rows(6), Training(epochs=1, sparsity=0.2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimator": "dran"}, "no estimator 'dran'"),
        ({"log_q": "closed"}, "log_q 'closed'"),
        ({"estimator": "disarm", "log_q": "entropy"}, "log_q entropy needs"),
        ({"weighted": True}, "at least 2 samples"),
        ({"n_samples": 0}, "n_samples 0"),
    ],
)
def test_losses_that_cannot_be(options, said):
    with pytest.raises(InputError, match=said):
        make_loss(**options)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"visible": "lineer"}, "did you mean linear"),
        ({"activation": "gelu"}, "activation must be one of"),
        ({"n_h": (0,)}, "n_h must be at least 1"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"visible": "grid", "ar": Window(4, 2)}, "odd"),
        ({"visible": "conv", "conv_start": Start(2, 4, 3)}, "odd"),
    ],
)
def test_architectures_that_cannot_be(fields, said):
    with pytest.raises(InputError, match=said):
        build(Architecture(**fields), 6, shape=(2, 3), key=jax.random.key(0))


@pytest.mark.parametrize("fields", [{"visible": "conv"}, {"visible": "grid"}, {"local": (LocalLayer(),)}])
def test_architectures_of_images_need_images(fields):
    with pytest.raises(DarnError, match=f"{fields.get('visible', 'local layers')}.* images"):
        build(Architecture(**{"visible": "factorial"} | fields), 6, key=jax.random.key(0))


def test_the_mean_has_a_number_for_each_column():
    with pytest.raises(InputError, match=r"the mean must have shape \(6,\)"):
        build(Architecture(), 6, mean=np.full(5, 0.3), key=jax.random.key(0))
