"""The command line: arguments in, one call out. Heavy imports wait until a command needs them."""

import argparse
import difflib
import json
import os
import sys
from pathlib import Path

from darn.errors import DarnError
from darn.recipes import RECIPES, fields_of, find, override, parse_field


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors."""

    def error(self, message):
        raise DarnError(f"{message}; `{self.prog} --help` shows how")


def _parser() -> _Parser:
    top = _Parser(
        prog="darn",
        description="Deep AutoRegressive Networks: train, score, sample and encode binary data.",
        epilog="examples:\n"
        "  darn train digits                     train the demonstration recipe into runs/digits\n"
        "  darn train my.csv --n_h 16 --epochs 50\n"
        "  darn eval runs/digits                 bound and -log p of the test rows, with intervals\n"
        "  darn sample runs/digits -n 100 --out digits.png\n"
        "  darn encode runs/digits my.npy --out codes.npy\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", parser_class=_Parser)

    def command(name, run, text, example):
        p = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"examples:\n{example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        p.set_defaults(run=run)
        p.add_argument("--json", action="store_true", help="print numbers as JSON")
        return p

    def computing(p):
        p.add_argument(
            "--device",
            choices=("cpu", "gpu"),
            help="where to compute; the default takes a GPU if there is one",
        )
        p.add_argument(
            "--precision",
            choices=("default", "highest"),
            default="default",
            help="of matrix products on a GPU",
        )

    p = command("recipes", _recipes, "list the recipes", "  darn recipes\n  darn recipes mnist-500")
    p.add_argument("name", nargs="?", help="show one recipe's fields")

    p = command("data", _data, "list the data sets, or fetch and check one", "  darn data\n  darn data mushrooms")
    p.add_argument("name", nargs="?", help="a data set's name, or a file of one's own")
    p.add_argument("--binarize", help="threshold, static, dynamic or intensity")

    p = command(
        "train",
        _train,
        "train a recipe, or a model of one's own data",
        "  darn train mushrooms --n_h 16 --out runs/m16\n  darn train my.csv --visible nade --epochs 50\n"
        "  darn train mnist-500 --resume",
    )
    p.add_argument("recipe", help="a recipe's name, or a file or folder of one's own data")
    p.add_argument("--out", help="the run folder; default runs/NAME")
    p.add_argument("--resume", action="store_true", help="continue an interrupted run as if it had never stopped")
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    computing(p)
    group = p.add_argument_group("fields of the recipe (defaults are the recipe's own)")
    for f in fields_of():
        names = [f"--{f.name}"] + ([f"--{f.name.replace('_', '-')}"] if "_" in f.name else [])
        choices = f.metadata["choices"]
        text = f.metadata["help"] + (f": {', '.join(choices)}" if choices else "")
        group.add_argument(*names, dest=f"field_{f.name}", metavar="V", help=text.replace("%", "%%"))

    p = command(
        "eval",
        _eval,
        "bound and -log p of rows, with intervals",
        "  darn eval runs/mushrooms\n  darn eval runs/mnist-500 --samples 100000 --repeats 10\n"
        "  darn eval runs/m my_rows.csv --per-row scores.npy",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("data", nargs="?", help="rows to score; default: the test rows of the model's own data")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    p.add_argument("--samples", type=int, default=1000, help="importance samples a row (default 1000)")
    p.add_argument("--repeats", type=int, default=10, help="repeats of the estimate (default 10)")
    p.add_argument("--seed", type=int, default=0, help="of the importance samples")
    p.add_argument("--every", type=int, default=1, metavar="K", help="score every K-th row only")
    p.add_argument(
        "--method", choices=("auto", "exact", "importance"), default="auto", help="auto: exact up to 16 units"
    )
    p.add_argument("--per-row", metavar="OUT.npy", help="write log p of every row, nats")
    p.add_argument("--baselines", action="store_true", help="beside independent Bernoullis and a mixture")
    computing(p)

    p = command(
        "sample",
        _sample,
        "draw exact, independent samples",
        "  darn sample runs/digits -n 100 --seed 1 --out digits.png\n  darn sample runs/adult -n 1000 --out rows.csv",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("-n", type=int, default=100, help="number of rows (default 100)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same rows")
    p.add_argument("--out", required=True, metavar="FILE", help="FILE.png, FILE.npy or FILE.csv")
    p.add_argument("--log-prob", metavar="OUT.npy", help="write log p(x, h) of every sample, nats")
    p.add_argument("--hidden", metavar="OUT.npz", help="write the hidden layers h1, h2, ...")
    p.add_argument("--label", help="for a model trained with --labels: the class to draw")
    computing(p)

    p = command(
        "encode",
        _encode,
        "the binary code of rows, and back",
        "  darn encode runs/digits my.npy --out codes.npy\n  darn encode runs/digits --probabilities --out q.csv",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("data", nargs="?", help="rows to encode; default: the test rows of the model's own data")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    p.add_argument("--out", required=True, metavar="FILE", help="FILE.npy or FILE.csv: all layers side by side")
    p.add_argument("--probabilities", action="store_true", help="q(h=1 | below) in place of bits")
    p.add_argument("--seed", type=int, help="a sample of q(h|x) in place of its most probable code")
    p.add_argument("--reconstruct", metavar="FILE", help="write what the code decodes to, as .png, .npy or .csv")
    computing(p)
    return top


# ---------------------------------------------------------------- commands


def _recipes(args) -> None:
    if args.name is not None:
        _, recipe = find(args.name, is_file=False)
        if args.json:
            return print(json.dumps(recipe.to_json(), indent=1))
        print(recipe.promise)
        for k, v in recipe.to_json().items():
            if k != "promise":
                print(f"  {k:18} {_short(v)}")
        return None
    if args.json:
        return print(json.dumps({k: r.to_json() for k, r in RECIPES.items()}, indent=1))
    for name, recipe in RECIPES.items():
        print(f"{name:12} {recipe.promise}")
    return None


def _short(v) -> str:
    return ",".join(map(str, v)) if isinstance(v, list) else "-" if v is None else str(v)


def _data(args) -> None:
    from darn import data

    if args.name is None:
        sets = data.describe()
        if args.json:
            return print(json.dumps(sets, indent=1))
        print(f"{'name':16} {'columns':>7}  {'train / valid / test':24} {'here':5} what")
        for s in sets:
            rows = " / ".join(str(r) for r in s["rows"])
            print(f"{s['name']:16} {s['columns']:7}  {rows:24} {'yes' if s['present'] else 'no':5} {s['about']}")
        return print(f"data folder: {data.data_dir()} (DARN_DATA)")
    splits = data.load(args.name, binarize=args.binarize)
    parts = {k: getattr(splits, k) for k in ("train", "valid", "test")}
    facts = {
        "name": splits.name,
        "columns": splits.train.n,
        "rows": {k: len(v) for k, v in parts.items()},
        "mean": {k: round(float(v.unpack().mean()), 4) for k, v in parts.items()},
        "binarize": splits.binarize,
        "shape": splits.shape,
        "sha256": splits.sha256,
    }
    if args.json:
        return print(json.dumps(facts, indent=1))
    for k, v in facts.items():
        print(f"{k:10} {v}")
    return None


def _fields(args) -> dict:
    given = {k.removeprefix("field_"): v for k, v in vars(args).items() if k.startswith("field_") and v is not None}
    return {k: parse_field(k, v) for k, v in given.items()}


def _train(args) -> int:
    name, recipe = find(args.recipe, Path(args.recipe).exists())
    recipe = override(recipe.tiny() if args.tiny else recipe, _fields(args))
    out = Path(args.out or Path("runs") / name)
    _use_device(args)
    from darn.runs import train

    fit = train(recipe, out, resume=args.resume, progress=not args.quiet)
    facts = {
        "run": str(out),
        "valid_bound": fit.bound,
        "best_epoch": fit.epoch,
        "epochs": fit.epochs,
        "steps": fit.steps,
        "seconds": round(fit.seconds, 2),
        "interrupted": fit.interrupted,
    }
    if args.json:
        print(json.dumps(facts))
    else:
        how = "interrupted" if fit.interrupted else "done"
        print(
            f"{how} after {fit.epochs} epochs ({fit.seconds:.1f} s of training): validation bound {fit.bound:.2f}"
            f" nats at epoch {fit.epoch}; the model is in {out}"
        )
        if fit.interrupted:
            print("continue with the same command and --resume")
    return 130 if fit.interrupted else 0


def _eval(args) -> None:
    _positive(args, "samples", "repeats", "every")
    _use_device(args)
    import time

    from tqdm import tqdm

    from darn import likelihood, provenance
    from darn.runs import open_run, scored_rows

    run = open_run(args.model)
    rows = run.rows(args.data, args.split).take(slice(None, None, args.every))
    x, context = scored_rows(rows)
    method = args.method
    if method == "auto":
        method = "exact" if sum(run.model.n_h) <= likelihood.EXACT_LIMIT else "importance"
    passes = len(x) * (1 if method == "exact" else args.repeats)
    began = time.monotonic()
    with tqdm(total=passes, desc="scoring", unit=" rows", disable=None) as bar:
        options = {"context": context, "progress": bar.update}
        if method == "importance":
            options |= {"n_samples": args.samples, "repeats": args.repeats, "seed": args.seed}
        found = getattr(likelihood, method)(run.model, x, **options)
    facts = {
        "model": str(args.model),
        "data": args.data or run.recipe.data,
        "split": args.split or (None if args.data else "test"),
        **found.summary(),
        "seconds": round(time.monotonic() - began, 2),
        "paper_nll": run.recipe.paper_nll,
        "paper_bound": run.recipe.paper_bound,
        "device": provenance.device(),
        "precision": provenance.precision(),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "command": provenance.command(),
        "seed": args.seed,
    }
    if args.per_row:
        _write_array(args.per_row, found.log_p, ("npy", "csv"), header=["log_p"])
    if args.baselines:
        facts["baselines"] = _baselines(run, x)
    if args.json:
        return print(json.dumps(facts, indent=1))
    return _print_eval(facts, found)


def _baselines(run, x) -> dict[str, float]:
    from darn import baselines, likelihood

    splits = run.splits()
    train, valid = splits.train.unpack(), splits.valid.unpack()
    k, mixture = baselines.best_mixture(train, valid)
    return {
        "independent Bernoulli": likelihood.exact(baselines.independent(train), x).nll,
        f"mixture of {k} Bernoullis": likelihood.exact(mixture, x).nll,
    }


def _print_eval(facts, found) -> None:
    n = facts["rows"]
    print(f"{facts['model']} on {n:,} rows of {facts['data']}{' (' + facts['split'] + ')' if facts['split'] else ''}")
    among = f"; over rows ± {found.rows_ci95:.2f}" if n > 1 else ""
    if found.method == "exact":
        print(f"  -log p   {found.nll:10.3f} nats  exact sum{among}")
    else:
        how = f"{found.n_samples:,} samples x {found.repeats}"
        print(f"  -log p   {found.nll:10.3f} nats  ± {found.nll_ci95:.3f} (95%, importance sampling, {how}){among}")
        print("  at       " + ", ".join(f"S={s:,}: {v:.3f}" for s, v in found.at.items()))
        print(f"  ESS      {found.ess.mean():10.1f} of {found.n_samples:,} samples (least {found.ess.min():.1f})")
    print(f"  bound    {found.bound:10.3f} nats  expected description length, an upper bound on -log p")
    if facts["paper_nll"] is not None and facts["split"] == "test":
        bound = f" (bound {facts['paper_bound']})" if facts["paper_bound"] else ""
        print(f"  paper    {facts['paper_nll']:10.3f} nats{bound}")
    for name, value in facts.get("baselines", {}).items():
        change = 100 * (1 - found.nll / value)
        print(f"  {name}: {value:.3f} nats; this model takes {abs(change):.1f}% {'fewer' if change > 0 else 'more'}")


def _sample(args) -> None:
    if args.n < 0:
        raise DarnError(f"-n must be 0 or more, not {args.n}")
    _check_format(args.out, ("png", "npy", "csv"))
    _use_device(args)
    import numpy as np

    from darn import sampling
    from darn.runs import open_run

    run = open_run(args.model)
    context = _label_context(run, args.label, args.n)
    found = sampling.sample(run.model, args.n, seed=args.seed, context=context, log_prob=bool(args.log_prob))
    _write_rows(args.out, found.x, run)
    if args.log_prob:
        _write_array(args.log_prob, found.log_p, ("npy", "csv"), header=["log_p"])
    if args.hidden:
        from darn.files import atomic

        with atomic(args.hidden) as f, open(f, "wb") as stream:
            np.savez_compressed(stream, **{f"h{k + 1}": y for k, y in enumerate(found.h)})
    facts = {"rows": args.n, "seed": args.seed, "out": args.out}
    if found.log_p is not None:
        facts["mean_log_p"] = float(found.log_p.mean()) if args.n else None
    if args.json:
        print(json.dumps(facts))
    else:
        print(f"{args.n:,} samples in {args.out}")


def _label_context(run, label, n):
    import numpy as np

    classes = run.info["data"].get("classes")
    if not classes:
        if label is not None:
            raise DarnError("this model was trained without --labels: there is no class to ask for")
        if run.model.n_context:
            raise DarnError("this model needs an observed context for every row: sample it from Python")
        return None
    if label is None:  # every class in turn
        chosen = np.arange(n) % len(classes)
    elif label in classes:
        chosen = np.full(n, classes.index(label))
    else:
        raise DarnError(f"there is no class {label!r}: the model knows {', '.join(classes)}")
    return np.eye(len(classes), dtype=np.float32)[chosen]


def _encode(args) -> None:
    _check_format(args.out, ("npy", "csv"))
    if args.reconstruct:
        _check_format(args.reconstruct, ("png", "npy", "csv"))
    _use_device(args)
    import numpy as np

    from darn import sampling
    from darn.runs import open_run, scored_rows

    run = open_run(args.model)
    if not run.model.n_layers:
        raise DarnError("this model has no hidden layer, so rows have no code")
    x, context = scored_rows(run.rows(args.data, args.split))
    code = sampling.encode(run.model, x, context=context, seed=args.seed)
    layers = code.q if args.probabilities else code.h
    header = [f"h{l + 1}_{j + 1}" for l, n in enumerate(run.model.n_h) for j in range(n)]
    _write_array(args.out, np.concatenate(layers, axis=1), ("npy", "csv"), header=header)
    if args.reconstruct:
        _write_rows(args.reconstruct, code.x, run)
    facts = {"rows": len(x), "layers": list(run.model.n_h), "out": args.out}
    print(json.dumps(facts) if args.json else f"{len(x):,} codes of {sum(run.model.n_h)} units in {args.out}")


# ---------------------------------------------------------------- helpers


def _positive(args, *names) -> None:
    for name in names:
        if getattr(args, name) < 1:
            raise DarnError(f"--{name} must be at least 1, not {getattr(args, name)}")


def _use_device(args) -> None:
    """Chooses the platform before JAX looks for one."""
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if args.precision == "highest":
        jax.config.update("jax_default_matmul_precision", "highest")
    if args.device == "gpu":
        try:
            jax.devices("gpu")
        except RuntimeError as e:
            raise DarnError(
                "no GPU that JAX can use was found: install darn with the extra `cuda`, or leave out --device gpu"
            ) from e


def _check_format(path: str, allowed: tuple[str, ...]) -> str:
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in allowed:
        raise DarnError(f"{path}: the file's ending chooses its format, one of {', '.join('.' + a for a in allowed)}")
    return ending


def _write_array(path, values, allowed, header=None) -> None:
    import numpy as np

    from darn.files import atomic

    ending = _check_format(path, allowed)
    with atomic(path) as f:
        if ending == "npy":
            with open(f, "wb") as stream:
                np.save(stream, values)
        else:
            form = "%d" if np.issubdtype(values.dtype, np.integer) else "%.7g"
            np.savetxt(f, values, fmt=form, delimiter=",", header=",".join(header or []), comments="")


def _write_rows(path, x, run) -> None:
    """Rows of the visible layer, as pictures or as a table."""
    if _check_format(path, ("png", "npy", "csv")) == "png":
        from darn.report import sheet, square_shape

        if not len(x):
            raise DarnError("there is no row to draw: ask for at least one with -n")
        return sheet(x, run.shape or square_shape(run.model.n_x), path)
    columns = run.columns or [f"x{j + 1}" for j in range(run.model.n_x)]
    return _write_array(path, x, ("npy", "csv"), header=columns)


def _parse(argv):
    parser = _parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        word = unknown[0]
        if not word.startswith("-"):
            raise DarnError(f"unexpected argument {word!r}; `darn {args.command or ''} --help` shows how")
        sub = parser._subparsers._group_actions[0].choices.get(args.command) if args.command else parser  # type: ignore[union-attr]
        options = [s for a in sub._actions for s in a.option_strings]  # type: ignore[union-attr]
        near = difflib.get_close_matches(word.split("=")[0], options, n=1)
        hint = f"did you mean {near[0]}?" if near else f"`darn {args.command or ''} --help` lists them"
        raise DarnError(f"there is no option {word}: {hint}")
    return parser, args


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit status: 0 done, 2 the input is at fault, 130 interrupted."""
    try:
        parser, args = _parse(argv)
        if args.version:
            from importlib.metadata import version

            print(f"darn {version('darn')}")
            return 0
        if args.command is None:
            parser.print_help()
            return 0
        return args.run(args) or 0
    except DarnError as e:
        print(f"darn: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("darn: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
