"""What each command does with its arguments. Heavy imports wait until a command needs them."""

import json
import math
import os
import sys
import time
from pathlib import Path

from darn.errors import DarnError
from darn.recipes import RECIPES, find, override, parse_field

# ---------------------------------------------------------------- recipes and data


def recipes(args) -> None:
    if args.name is None:
        lines = [f"{name:20} {recipe.promise}" for name, recipe in RECIPES.items()]
        return _say(args, {k: r.to_json() for k, r in RECIPES.items()}, *lines)
    values = find(args.name)[1].to_json()
    lines = [f"  {k:18} {_short(v)}" for k, v in values.items() if k != "promise"]
    return _say(args, values, values["promise"], *lines)


def data_sets(args) -> None:
    from darn import data

    if args.name is None:
        sets = data.describe()
        lines = [f"{'name':32} {'columns':>7}  {'train / valid / test':24} {'here':5} what"]
        for s in sets:
            rows = " / ".join(map(str, s["rows"]))
            lines.append(f"{s['name']:32} {s['columns']:7}  {rows:24} {'yes' if s['present'] else 'no':5} {s['about']}")
        return _say(args, sets, *lines, f"data folder: {data.data_dir()} (the variable DARN_DATA names another)")
    splits = data.load(args.name, binarize=args.binarize, labels=args.labels)
    parts = {k: getattr(splits, k) for k in ("train", "valid", "test")}
    facts = {
        "name": splits.name,
        "columns": splits.train.n,
        "rows": {k: len(v) for k, v in parts.items()},
        "mean": {k: round(float(v.mean().mean()), 4) for k, v in parts.items()},
        "binarize": splits.binarize,
        "shape": splits.shape,
        "classes": splits.classes,
        "sha256": splits.sha256,
    }
    return _say(args, facts, *(f"{k:10} {_short(v)}" for k, v in facts.items()))


# ---------------------------------------------------------------- train


def train(args) -> int:
    name, recipe = _asked_recipe(args)
    out = Path(args.out or Path("runs") / name)
    _use_device(args)
    from darn import runs

    fit = runs.train(recipe, out, resume=args.resume, progress=not args.quiet)
    facts = {
        "run": str(out),
        "valid_bound": fit.bound,
        "best_epoch": fit.epoch,
        "epochs": fit.epochs,
        "steps": fit.steps,
        "seconds": round(fit.seconds, 2),
        "interrupted": fit.interrupted,
    }
    seen = f"validation bound {fit.bound:.2f} nats at epoch {fit.epoch}" if fit.epoch else "not yet validated"
    how = "interrupted" if fit.interrupted else "done"
    text = f"{how} after {fit.epochs} epochs ({fit.seconds:.1f} s of training): {seen}; the model is in {out}"
    _say(args, facts, text)
    if fit.interrupted:
        print("darn: interrupted; the same command with --resume goes on from here", file=sys.stderr)
    return 130 if fit.interrupted else 0


def _asked_recipe(args):
    """(name, recipe) of the arguments: a recipe's name or one's own data, shrunk if asked, with fields changed."""
    name, recipe = find(args.recipe, _own_data(args.recipe))
    given = {k.removeprefix("field_"): v for k, v in vars(args).items() if k.startswith("field_") and v is not None}
    recipe = recipe.tiny() if args.tiny else recipe
    return name, override(recipe, {k: parse_field(k, v) for k, v in given.items()})


def _own_data(name: str) -> str | None:
    """What to train on where `name` is no recipe's: a known set, or a file by its full path (runs are read later)."""
    if name in RECIPES:
        return None
    from darn import data

    return name if name in data.names() else os.path.abspath(name) if name and os.path.exists(name) else None


# ---------------------------------------------------------------- eval


def evaluate(args) -> None:
    for name in ("samples", "repeats", "every"):
        if getattr(args, name) < 1:
            raise DarnError(f"--{name} must be at least 1, not {getattr(args, name)}")
    _check_seed(args)
    from darn.report import TABLES, check_output, write_table

    check_output(args.per_row, TABLES)
    stored = _quick(args) if args.quick else None
    _use_device(args)
    from tqdm import tqdm

    from darn import data, likelihood, provenance, rbm
    from darn.runs import open_run, scored_rows

    if rbm.is_rbm(args.model):
        return _evaluate_rbm(args, stored)
    run = open_run(args.model)
    x, context = scored_rows(run.rows(args.data, args.split).take(slice(None, None, args.every)))
    own = args.data in (None, run.recipe.data)
    split = args.split or ("test" if args.data is None or args.data in data.names() else None)
    method = likelihood.method_for(run.model) if args.method == "auto" else args.method
    passes = len(x) * (1 if method == "exact" else args.repeats)
    began = time.monotonic()
    with tqdm(total=passes, desc="scoring", unit=" rows", disable=None) as bar:
        options = {"context": context, "progress": bar.update}
        if method == "importance":
            options |= {"n_samples": args.samples, "repeats": args.repeats, "seed": args.seed}
        found = getattr(likelihood, method)(run.model, x, **options)
    comparable = own and split == "test" and args.every == 1
    facts = {
        "model": str(args.model),
        "data": args.data or run.recipe.data,
        "split": split,
        **found.summary(),
        "seconds": round(time.monotonic() - began, 2),
        "paper_nll": run.recipe.paper_nll if comparable else None,
        "paper_bound": run.recipe.paper_bound if comparable else None,
        "device": provenance.device(),
        "precision": provenance.precision(),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "command": provenance.command(),
        "seed": args.seed,
    }
    if args.baselines:
        facts["baselines"] = _baselines(run, x)
    if args.per_row:
        write_table(args.per_row, found.log_p, ["log_p"])
    if stored is not None:
        facts["stored"] = stored
    _say(args, facts, *_eval_lines(facts, found))


def _evaluate_rbm(args, stored: dict | None) -> None:
    """A baseline's file: the test rows of its own data, log Z by annealing."""
    if args.data or args.per_row or args.baselines or args.split not in (None, "test"):
        raise DarnError(f"{args.model} is a restricted Boltzmann machine: it is scored on its own test rows as a whole")
    from darn.reproduce import quick_line
    from darn.reproduce._run import score_rbm

    chains = 100 if args.quick else args.samples
    found = score_rbm(args.model, chains, args.samples, every=args.every, seed=args.seed)
    lines = [f"  -log p   {found['nll']:10.3f} nats  ± {found['nll_ci95']:.3f} (95%, {found['method']})"]
    if stored is not None:
        found["stored"] = stored
        lines.append(quick_line(found["nll"], found["nll_ci95"], stored))
    _say(args, {"model": str(args.model)} | found, f"{args.model} on {found['rows']:,} rows", *lines)


def _quick(args) -> dict | None:
    """Sets the options of a quick evaluation; the figure stored with a committed model, if there is one."""
    from darn.reproduce import QUICK_EVERY, QUICK_SAMPLES, quick_of

    stored = quick_of(args.model)
    args.every, args.samples, args.repeats = QUICK_EVERY, QUICK_SAMPLES, 1
    args.seed = stored["seed"] if stored else args.seed
    return stored


def _baselines(run, x) -> dict[str, float]:
    from darn import baselines, likelihood

    splits = run.splits()
    train, valid = splits.train.unpack(), splits.valid.unpack()
    sizes = (10, 20, 50, 100, 200) if len(train) >= 10 else (1, 2, 5)
    k, mixture = baselines.best_mixture(train, valid, sizes)
    return {
        "independent Bernoulli": likelihood.exact(baselines.independent(train), x).nll,
        f"mixture of {k} Bernoullis": likelihood.exact(mixture, x).nll,
    }


def _eval_lines(facts, found):
    n, split = facts["rows"], f" ({facts['split']})" if facts["split"] else ""
    yield f"{facts['model']} on {n:,} {'row' if n == 1 else 'rows'} of {facts['data']}{split}"
    among = f"; over rows ± {found.rows_ci95:.2f}" if n > 1 else ""
    if found.method == "exact":
        yield f"  -log p   {found.nll:10.3f} nats  exact sum{among}"
    else:
        how = f"{found.n_samples:,} samples x {found.repeats}"
        yield f"  -log p   {found.nll:10.3f} nats  ± {found.nll_ci95:.3f} (95%, importance sampling, {how}){among}"
        yield "  at       " + ", ".join(f"S={s:,}: {v:.3f}" for s, v in found.at.items())
        yield f"  ESS      {found.ess.mean():10.1f} of {found.n_samples:,} samples (least {found.ess.min():.1f})"
    yield f"  bound    {found.bound:10.3f} nats  expected description length, an upper bound on -log p"
    if facts["paper_nll"] is not None:
        bound = f" (bound {facts['paper_bound']})" if facts["paper_bound"] else ""
        yield f"  paper    {facts['paper_nll']:10.3f} nats{bound}"
    if "stored" in facts:
        from darn.reproduce import quick_line

        yield quick_line(found.nll, found.nll_ci95, facts["stored"])
    for name, value in facts.get("baselines", {}).items():
        change = 100 * (1 - found.nll / value)
        yield f"  {name}: {value:.3f} nats; this model takes {abs(change):.1f}% {'fewer' if change > 0 else 'more'}"


# ---------------------------------------------------------------- sample and encode


def sample(args) -> None:
    from darn.report import ARCHIVES, PICTURES, TABLES, check_output, write_arrays, write_rows, write_table, write_words

    check_output(args.out, PICTURES)
    check_output(args.log_prob, TABLES)
    check_output(args.hidden, ARCHIVES)
    least = 1 if args.out.lower().endswith("png") else 0
    if args.n < least:
        raise DarnError(f"-n must be at least {least}, not {args.n}")
    _check_seed(args)
    _use_device(args)
    from darn import sampling, synthetic
    from darn.runs import open_run

    run = open_run(args.model)
    context = _label_context(run, args.label, args.n)
    cost = {}
    if args.sparse:
        found, cost = _sparse(run.model, args, context)
    else:
        found = sampling.sample(run.model, args.n, seed=args.seed, context=context, log_prob=bool(args.log_prob))
    facts = {"rows": args.n, "seed": args.seed, "out": args.out} | cost
    lines = [f"{args.n:,} samples in {args.out}"]
    if run.schema is not None and args.out.lower().endswith("csv"):
        names, rows = synthetic.table(run, found.x, context, seed=args.seed)
        write_words(args.out, names, rows)
        copies = facts["copies"] = synthetic.copies(run, found.x)
        lines += [synthetic.sentence(copies)] if copies else []
    else:
        write_rows(args.out, found.x, shape=run.shape, columns=run.columns)
    if found.log_p is not None:
        write_table(args.log_prob, found.log_p, ["log_p"])
    if args.hidden:
        write_arrays(args.hidden, {f"h{k + 1}": y for k, y in enumerate(found.h)})
    if found.log_p is not None:
        facts["mean_log_p"] = float(found.log_p.mean()) if args.n else None
    if cost:
        each = f"{cost['additions']:,.0f} weight additions and {cost['active']:.1f} active hidden units a sample"
        lines.append(f"{cost['samples_per_s']:,.0f} samples/s; {each}")
    _say(args, facts, *lines)


def _sparse(model, args, context):
    """Samples of the sparse sampler, and what they cost: counted as it ran, timed once it was compiled."""
    from darn import sampling, sparse

    if args.log_prob:
        raise DarnError("--sparse counts additions and scores nothing: leave out --log-prob, or --sparse")
    sparse.sample(model, min(args.n, sampling.CHUNK), seed=args.seed, context=context)
    began = time.perf_counter()
    x, h, additions = sparse.sample(model, args.n, seed=args.seed, context=context)
    seconds = time.perf_counter() - began
    active, rows = sum(int(y.sum()) for y in h), max(args.n, 1)
    cost = {"samples_per_s": args.n / seconds, "additions": additions.sum() / rows, "active": active / rows}
    return sampling.Samples(x, h, None), cost


def _label_context(run, label: str | None, n: int):
    import numpy as np

    classes = run.info["data"].get("classes") or []
    if label is not None and not classes:
        raise DarnError("this model was trained without --labels: there is no class to ask for")
    if run.model.n_context != len(classes):
        raise DarnError("this model needs an observed context for every row: sample it from Python")
    if not classes:
        return None
    if label is not None and label not in classes:
        raise DarnError(f"there is no class {label!r}: the model knows {', '.join(classes)}")
    chosen = np.arange(n) % len(classes) if label is None else np.full(n, classes.index(label))
    return np.eye(len(classes), dtype=np.float32)[chosen]


def encode(args) -> None:
    from darn.report import PICTURES, TABLES, check_output, write_rows, write_table

    check_output(args.out, TABLES)
    check_output(args.reconstruct, PICTURES)
    _check_seed(args)
    _use_device(args)
    import numpy as np

    from darn import sampling
    from darn.runs import open_run, scored_rows

    run = open_run(args.model)
    if not run.model.n_layers:
        raise DarnError(
            "this model has no stochastic hidden layer (it was trained with --n_h ''), so rows have no code"
        )
    x, context = scored_rows(run.rows(args.data, args.split))
    code = sampling.encode(run.model, x, context=context, seed=args.seed)
    header = [f"h{l + 1}_{j + 1}" for l, n in enumerate(run.model.n_h) for j in range(n)]
    write_table(args.out, np.concatenate(code.q if args.probabilities else code.h, axis=1), header)
    if args.reconstruct:
        write_rows(args.reconstruct, code.x, shape=run.shape, columns=run.columns)
    facts = {"rows": len(x), "layers": list(run.model.n_h), "out": args.out}
    _say(args, facts, f"{len(x):,} codes of {sum(run.model.n_h)} units in {args.out}")


# ---------------------------------------------------------------- helpers


def _say(args, facts, *lines: str) -> None:
    """The facts as JSON where that is asked for, the lines otherwise."""
    print(json.dumps(_finite(facts), indent=1) if args.json else "\n".join(lines))


def _finite(value):
    """JSON knows neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(v) -> str:
    if isinstance(v, dict):
        return ", ".join(f"{k} {_short(w)}" for k, w in v.items())
    return ",".join(map(str, v)) if isinstance(v, list | tuple) else "-" if v is None else str(v)


def _check_seed(args) -> None:
    if args.seed is not None and not 0 <= args.seed < 2**31:
        raise DarnError(f"--seed must be a number from 0 to 2147483647, not {args.seed}")


def _use_device(args) -> None:
    """Chooses the platform before JAX looks for one."""
    import jax

    if args.precision == "highest":
        jax.config.update("jax_default_matmul_precision", "highest")
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        jax.devices(args.device)
    except RuntimeError as e:
        if args.device == "gpu":
            raise DarnError(
                "no GPU that JAX can use was found: install darn with the extra `cuda`, or leave out --device gpu"
            ) from e
        raise DarnError(f"JAX finds no device to compute on: {e}") from e
