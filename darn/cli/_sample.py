"""The commands `sample` and `encode`."""

import contextlib
import sys
import time
from typing import Any

from darn.cli._base import (
    BAR,
    Commands,
    add_delimiter,
    add_given,
    add_shard,
    add_unseen,
    check_different,
    check_rows_of_a_table,
    check_seed,
    counted,
    say,
    sharing,
    use_device,
)
from darn.cli._cost import check_cost
from darn.errors import DarnError, printable


def sample(args) -> None:
    from darn.data import (
        ARCHIVES,
        PICTURES,
        TABLES,
        check_output,
        open_archive,
        open_parquet,
        open_table,
        open_visible,
        open_words,
    )

    check_output(args.out, (*PICTURES, "parquet"), args.model)
    check_output(args.log_joint, TABLES, args.model)
    check_output(args.hidden, ARCHIVES, args.model)
    check_different(args.out, args.log_joint, args.hidden)
    if args.csv and args.json:
        raise DarnError("--csv and --json both write to standard output: use --out FILE.csv instead of --csv")
    ending = "csv" if args.csv else args.out.lower().rsplit(".", 1)[-1]
    least = 1 if ending == "png" else 0
    if args.n < least:
        raise DarnError(f"-n must be at least {least}, not {args.n}")
    check_seed(args)
    shard = args.shard
    if shard is not None:
        check_output(args.out, TABLES, args.model)
        more = {"--given": args.given, "--sparse": args.sparse, "--log-joint": args.log_joint, "--hidden": args.hidden}
        if args.csv or any(more.values()):
            named = ["--csv"] * args.csv + [k for k, v in more.items() if v]
            raise DarnError(f"--shard writes rows into a file, and nothing else: leave out {', '.join(named)}")
    extras = {"--sparse": args.sparse, "--log-joint": args.log_joint, "--hidden": args.hidden}
    if args.given and any(extras.values()):
        raise DarnError(f"--given draws rows alone: leave out {', '.join(k for k, v in extras.items() if v)}")
    if args.sparse and args.log_joint:
        raise DarnError("--sparse counts additions and scores nothing: leave out --log-joint, or --sparse")
    use_device(args)
    import numpy as np
    from tqdm import tqdm

    from darn.batching import chunks
    from darn.inference import sampling, sparse
    from darn.inference.summary import Moments
    from darn.runs import questions, synthetic
    from darn.runs.classes import label_contexts, one_context
    from darn.runs.run import load

    run = load(args.model)
    start, stop = (0, args.n) if shard is None else shard.rows(args.n)
    count = stop - start
    contexts = label_contexts(run, args.label)
    layers = [f"h{k + 1}" for k in range(run.model.n_layers)]
    delimiter = run.about.data.delimiter or ","  # as in the table that it was trained on
    words = run.schema is not None and ending in ("csv", "tsv", "parquet")
    if ending == "parquet" and args.shard:
        raise DarnError("shards of a Parquet file cannot be joined: use --out FILE.csv")
    if args.out:
        check_rows_of_a_table(args.out, run)
    more = {} if args.sparse else {"log_joint": bool(args.log_joint)}
    draw: Any = sparse.sample_parts if args.sparse else sampling.sample_parts

    schema = questions.schema_of(run) if args.given else None
    within = questions.parts_for(schema, args.given) if schema is not None else None
    context = one_context(run, contexts, args.label) if args.given else None

    def drawn(n: int, **options) -> Any:
        if schema is not None and within is not None:
            given = {"context": context, "seed": args.seed, **options}
            return questions.given_rows(run.model, schema, within, n, **given)
        given = None
        if contexts is not None:
            given = (((), contexts(np.arange(start + i, start + i + m))) for i, m in chunks(n, sampling.CHUNK))
        some = {} if shard is None else {"numbers": start, "of": args.n}
        return draw(run.model, n, given, seed=args.seed, **more, **some, **options)

    check_cost(args, run.model, ending, lambda n: list(drawn(n)))
    log_joint, additions, active, kept = Moments(), 0, 0, []
    copies = synthetic.Copies(run) if words and not args.given and shard is None else None
    job = {"rows": args.n, "options": {"seed": args.seed, "label": args.label}}
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        out = None if args.csv else stack.enter_context(sharing(args, args.out, run.file, **job))
        if shard is not None and out is None:
            return
        bar = stack.enter_context(tqdm(total=None if args.given else count, **BAR, desc="sampling"))
        write_log_joint = (
            stack.enter_context(open_table(args.log_joint, args.n, ["log_joint"])) if args.log_joint else None
        )
        write_h = stack.enter_context(open_archive(args.hidden, args.n, layers)) if args.hidden else None

        def rows():
            nonlocal additions, active
            done = start
            for part in drawn(count, progress=bar.update):
                if write_log_joint is not None:
                    write_log_joint(part.log_joint)
                    log_joint.add(part.log_joint)
                if write_h is not None:
                    write_h(part.h)
                if args.sparse:
                    additions += int(part.additions.sum())
                    active += sum(int(y.sum()) for y in part.h)
                if copies is not None:
                    copies.add(part.x)
                if args.given:
                    kept.append(part.without_rows())
                yield part.x, None if contexts is None else contexts(np.arange(done, done + len(part.x)))
                done += len(part.x)

        if words:
            names, texts = synthetic.table(run, rows(), seed=args.seed, within=within, first=start)
            columns = run.schema.columns if run.schema is not None else ()
            typed = open_parquet(out, columns, names[len(columns) :]) if out and ending == "parquet" else None
            write: Any = stack.enter_context(typed or open_words(out, names, delimiter))
        else:
            texts = (x for x, _ in rows())
            how = {"shape": run.shape, "columns": run.columns, "n": run.model.n_x, "delimiter": delimiter}
            write = stack.enter_context(open_visible(out, count, **how))
        for part in texts:
            write(part)
    seconds = time.perf_counter() - began
    facts = {"rows": count, "seed": args.seed, "out": out}
    lines = [] if args.csv else [f"{counted(count, 'sample')} in {out}"]
    if copies is not None:
        found = facts["copies"] = copies.found()
        lines += [synthetic.sentence(found)] if found else []
    if kept:
        one = questions.joined(kept)
        facts["given"] = {"probability": one.given, "method": one.method, "ess": one.ess, "draws": one.draws}
        lines.append(one.sentence)
    if args.log_joint:
        facts["mean_log_joint"] = float(log_joint.mean) if args.n else None
    if args.sparse:
        each = max(args.n, 1)
        facts |= {"samples_per_s": args.n / seconds, "additions": additions / each, "active": active / each}
        each_row = f"{additions / each:,.0f} weight additions and {active / each:.1f} active hidden units per sample"
        lines.append(f"{args.n / seconds:,.0f} samples/s; {each_row}")
    if args.csv:  # standard output has the rows, and nothing else
        print(*map(printable, lines), sep="\n", end="\n" * bool(lines), file=sys.stderr)
    else:
        say(args, facts, *lines)


def encode(args) -> None:
    from darn.data import PICTURES, TABLES, check_output, open_table, open_visible

    check_output(args.out, TABLES, args.data, args.model)
    check_output(args.reconstruct, PICTURES, args.data, args.model)
    check_different(args.out, args.reconstruct)
    check_seed(args)
    use_device(args)
    import numpy as np
    from tqdm import tqdm

    from darn.batching import recut
    from darn.inference import code as codes
    from darn.inference import sampling
    from darn.runs.run import load

    run = load(args.model)
    if not run.model.n_layers:
        raise DarnError(
            "this model has no stochastic hidden layer, so rows have no code: train one with hidden units, such as "
            "`darn train FILE --n_h 16`"
        )
    rows = run.open(args.data, args.split, delimiter=args.delimiter, unseen=args.unseen)
    header = [f"h{l + 1}_{j + 1}" for l, n in enumerate(run.model.n_h) for j in range(n)]
    back = {"shape": run.shape, "columns": run.columns, "n": run.model.n_x}
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=rows.rows, **BAR, desc="encoding"))
        write = stack.enter_context(open_table(args.out, rows.rows, header))
        write_back = None
        if args.reconstruct:
            write_back = stack.enter_context(open_visible(args.reconstruct, rows.rows, **back))
        options = {"seed": args.seed, "progress": bar.update}
        for code in sampling.encode_parts(run.model, rows.parts(), rows.rows, **options):
            write(np.concatenate(code.q if args.probabilities else code.h, axis=1))
            if write_back is not None:
                write_back(code.x)
    facts = {"rows": rows.rows, "layers": list(run.model.n_h), "out": args.out}
    use = codes.measure(run.model, *next(recut(rows.parts(), codes.ROWS)))
    facts["idle"] = use is not None and use.idle
    say(args, facts, f"{counted(rows.rows, 'code')} of {counted(sum(run.model.n_h), 'unit')} in {args.out}")
    if use is not None and use.idle:
        print(f"darn: {use.warning}", file=sys.stderr)


def register(add: Commands) -> None:
    p = add.command(
        "sample",
        sample,
        "draw exact, independent samples",
        "  darn sample runs/digits -n 100 --seed 1 --out digits.png\n  darn sample runs/adult -n 1000 --csv | head\n"
        "  darn sample runs/pets -n 50 --given 'animal=cat, weight>=4' --csv",
    )
    p.add_argument("model", metavar="RUN", help="a run folder or a model file")
    p.add_argument("-n", type=int, default=100, help="number of rows (default 100)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same rows")
    add_given(p)
    where = p.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="FILE.csv, FILE.npy or FILE.png; of a table also FILE.parquet")
    where.add_argument("--csv", action="store_true", help="the rows as a table on standard output")
    p.add_argument("--log-joint", metavar="OUT.npy", help="write log p(x, h) of every sample, nats")
    p.add_argument("--hidden", metavar="OUT.npz", help="write the hidden layers h1, h2, ...")
    p.add_argument("--label", help="for a model trained with --labels: the class to draw")
    p.add_argument("--sparse", action="store_true", help="fDARN's sampler, which counts its additions")
    add_shard(p)
    p.add_argument("--large", action="store_true", help="even if it takes more than a day, or more than 100 GB")
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
