"""The commands `sample` and `encode`."""

import sys
import time

from darn.cli._base import Commands, add_delimiter, add_unseen, check_different, check_seed, say, use_device
from darn.errors import DarnError


def sample(args) -> None:
    from darn.data import ARCHIVES, PICTURES, TABLES, check_output, write_arrays, write_rows, write_table, write_words

    check_output(args.out, PICTURES, args.model)
    check_output(args.log_prob, TABLES, args.model)
    check_output(args.hidden, ARCHIVES, args.model)
    check_different(args.out, args.log_prob, args.hidden)
    if args.csv and args.json:
        raise DarnError("--csv and --json both write to standard output: use --out FILE.csv instead of --csv")
    ending = "csv" if args.csv else args.out.lower().rsplit(".", 1)[-1]
    least = 1 if ending == "png" else 0
    if args.n < least:
        raise DarnError(f"-n must be at least {least}, not {args.n}")
    check_seed(args)
    use_device(args)
    from darn.inference import sampling
    from darn.runs import synthetic
    from darn.runs.folder import load

    run = load(args.model)
    context = _label_context(run, args.label, args.n)
    cost = {}
    if args.sparse:
        found, cost = _sparse(run.model, args, context)
    else:
        found = sampling.sample(run.model, args.n, seed=args.seed, context=context, log_prob=bool(args.log_prob))
    facts = {"rows": args.n, "seed": args.seed, "out": args.out} | cost
    if found.log_p is not None:
        write_table(args.log_prob, found.log_p, ["log_p"])
    if args.hidden:
        write_arrays(args.hidden, {f"h{k + 1}": y for k, y in enumerate(found.h)})
    lines = [] if args.csv else [f"{args.n:,} samples in {args.out}"]
    if run.schema is not None and ending == "csv":
        names, rows = synthetic.table(run, found.x, context, seed=args.seed)
        write_words(args.out, names, rows)
        copies = facts["copies"] = synthetic.copies(run, found.x)
        lines += [synthetic.sentence(copies)] if copies else []
    else:
        write_rows(args.out, found.x, shape=run.shape, columns=run.columns)
    if found.log_p is not None:
        facts["mean_log_p"] = float(found.log_p.mean()) if args.n else None
    if cost:
        each = f"{cost['additions']:,.0f} weight additions and {cost['active']:.1f} active hidden units per sample"
        lines.append(f"{cost['samples_per_s']:,.0f} samples/s; {each}")
    if args.csv:  # standard output has the rows, and nothing else
        print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr)
    else:
        say(args, facts, *lines)


def _sparse(model, args, context):
    """Samples of the sparse sampler, their counted additions, and the time taken once it is compiled."""
    from darn.inference import sampling, sparse

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

    classes = list(run.about.data.classes or ())
    if label is not None and not classes:
        raise DarnError("this model was trained without --labels, so there is no class to choose")
    if run.model.n_context != len(classes):
        raise DarnError("this model needs an observed context for every row: sample it from Python")
    if not classes:
        return None
    if label is not None and label not in classes:
        raise DarnError(f"there is no class {label!r}: choose one of {', '.join(classes)}")
    chosen = np.arange(n) % len(classes) if label is None else np.full(n, classes.index(label))
    return np.eye(len(classes), dtype=np.float32)[chosen]


def encode(args) -> None:
    from darn.data import PICTURES, TABLES, check_output, write_rows, write_table

    check_output(args.out, TABLES, args.data, args.model)
    check_output(args.reconstruct, PICTURES, args.data, args.model)
    check_different(args.out, args.reconstruct)
    check_seed(args)
    use_device(args)
    import numpy as np

    from darn.inference import code as codes
    from darn.inference import sampling
    from darn.runs.folder import load, scored_rows

    run = load(args.model)
    if not run.model.n_layers:
        raise DarnError(
            "this model has no stochastic hidden layer (it was trained with --n_h ''), so rows have no code"
        )
    x, context = scored_rows(run.rows(args.data, args.split, delimiter=args.delimiter, unseen=args.unseen))
    code = sampling.encode(run.model, x, context=context, seed=args.seed)
    header = [f"h{l + 1}_{j + 1}" for l, n in enumerate(run.model.n_h) for j in range(n)]
    write_table(args.out, np.concatenate(code.q if args.probabilities else code.h, axis=1), header)
    if args.reconstruct:
        write_rows(args.reconstruct, code.x, shape=run.shape, columns=run.columns)
    facts = {"rows": len(x), "layers": list(run.model.n_h), "out": args.out}
    use = codes.measure(run.model, x, context)
    facts["idle"] = use is not None and use.idle
    say(args, facts, f"{len(x):,} codes of {sum(run.model.n_h)} units in {args.out}")
    if use is not None and use.idle:
        print(f"darn: {use.warning}", file=sys.stderr)


def register(add: Commands) -> None:
    p = add.command(
        "sample",
        sample,
        "draw exact, independent samples",
        "  darn sample runs/digits -n 100 --seed 1 --out digits.png\n  darn sample runs/adult -n 1000 --csv | head",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("-n", type=int, default=100, help="number of rows (default 100)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same rows")
    where = p.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="FILE.png, FILE.npy or FILE.csv")
    where.add_argument("--csv", action="store_true", help="the rows as a table on standard output")
    p.add_argument("--log-prob", metavar="OUT.npy", help="write log p(x, h) of every sample, nats")
    p.add_argument("--hidden", metavar="OUT.npz", help="write the hidden layers h1, h2, ...")
    p.add_argument("--label", help="for a model trained with --labels: the class to draw")
    p.add_argument("--sparse", action="store_true", help="fDARN's sampler, which counts its additions")
    add.computing(p)

    p = add.command(
        "encode",
        encode,
        "encode rows as binary codes, and reconstruct them",
        "  darn encode runs/digits my.npy --out codes.npy\n  darn encode runs/digits --probabilities --out q.csv",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("data", nargs="?", help="rows to encode; default: the test rows of the model's own data")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    add_delimiter(p)
    add_unseen(p)
    p.add_argument("--out", required=True, metavar="FILE", help="FILE.npy or FILE.csv: all layers side by side")
    p.add_argument("--probabilities", action="store_true", help="write q(h=1 | below) instead of bits")
    p.add_argument("--seed", type=int, help="sample the code from q(h|x) instead of taking the most probable one")
    p.add_argument("--reconstruct", metavar="FILE", help="write the reconstructions, as .png, .npy or .csv")
    add.computing(p)
