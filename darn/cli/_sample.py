"""The commands `sample` and `encode`."""

import contextlib
import sys
import time
from collections.abc import Callable
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
    ending = _checked(args)
    use_device(args)
    import numpy as np
    from tqdm import tqdm

    from darn.data import open_archive, open_parquet, open_table, open_visible, open_words
    from darn.runs import questions, synthetic
    from darn.runs.classes import label_contexts
    from darn.runs.run import load

    run, shard = load(args.model), args.shard
    if args.out:
        check_rows_of_a_table(args.out, run)
    start, stop = (0, args.n) if shard is None else shard.rows(args.n)
    count = stop - start
    contexts = label_contexts(run, args.label)
    layers = [f"h{k + 1}" for k in range(run.model.n_layers)]
    delimiter = run.about.data.delimiter or ","  # as in the table that it was trained on
    words = run.schema is not None and ending in ("csv", "tsv", "parquet")
    within = questions.parts_for(questions.schema_of(run), args.given) if args.given else None
    drawn = _drawer(args, run, contexts, within, start)
    check_cost(args, run.model, ending, lambda n: list(drawn(n)))
    tally = _Tally(args, synthetic.Copies(run) if words and not args.given and shard is None else None)
    job = {"rows": args.n, "options": {"seed": args.seed, "label": args.label}}
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        out = None if args.csv else stack.enter_context(sharing(args, args.out, run.file, **job))
        if shard is not None and out is None:
            return
        bar = stack.enter_context(tqdm(total=None if args.given else count, **BAR, desc="sampling"))
        log_joint = open_table(args.log_joint, args.n, ["log_joint"]) if args.log_joint else None
        write_log_joint = None if log_joint is None else stack.enter_context(log_joint)
        write_h = stack.enter_context(open_archive(args.hidden, args.n, layers)) if args.hidden else None

        def rows():
            done = start
            for part in drawn(count, progress=bar.update):
                if write_log_joint is not None:
                    write_log_joint(part.log_joint)
                if write_h is not None:
                    write_h(part.h)
                tally.add(part)
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
    more, lines = tally.said(time.perf_counter() - began)
    if args.csv:  # standard output has the rows, and nothing else
        print(*map(printable, lines), sep="\n", end="\n" * bool(lines), file=sys.stderr)
    else:
        facts = {"rows": count, "seed": args.seed, "out": out} | more
        say(args, facts, f"{counted(count, 'sample')} in {out}", *lines)


def _checked(args) -> str:
    """The ending of the output; refuses options that do not go together."""
    from darn.data import ARCHIVES, PICTURES, TABLES, check_output

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
    extras = {"--sparse": args.sparse, "--log-joint": args.log_joint, "--hidden": args.hidden}
    extras = [option for option, value in extras.items() if value]
    if args.shard is not None:
        if ending == "parquet":
            raise DarnError("shards of a Parquet file cannot be joined: use --out FILE.csv")
        check_output(args.out, TABLES, args.model)
        if others := ["--csv"] * args.csv + ["--given"] * bool(args.given) + extras:
            raise DarnError(f"--shard writes rows into a file, and nothing else: leave out {', '.join(others)}")
    if args.given and extras:
        raise DarnError(f"--given draws rows alone: leave out {', '.join(extras)}")
    if args.sparse and args.log_joint:
        raise DarnError("--sparse counts additions and scores nothing: leave out --log-joint, or --sparse")
    return ending


def _drawer(args, run, contexts, within, start: int) -> Callable[..., Any]:
    """A function that draws so many rows, part by part.

    Args:
        args: of the command.
        run: the model.
        contexts: from the numbers of rows to their contexts; None without.
        within: what the conditions allow of the columns; None without conditions.
        start: the number of the first row.
    """
    import numpy as np

    from darn.batching import chunks
    from darn.inference import sampling, sparse
    from darn.runs import questions
    from darn.runs.classes import one_context

    schema = None if within is None else questions.schema_of(run)
    context = None if within is None else one_context(run, contexts, args.label)
    more = {} if args.sparse else {"log_joint": bool(args.log_joint)}
    more |= {} if args.shard is None else {"numbers": start, "of": args.n}
    draw: Any = sparse.sample_parts if args.sparse else sampling.sample_parts
    if args.sparse:
        sparse.flatten(run.model)  # a model that it does not suit is refused before anything is written

    def drawn(n: int, **options: Any) -> Any:
        if schema is not None and within is not None:
            return questions.given_rows(run.model, schema, within, n, context=context, seed=args.seed, **options)
        given = None
        if contexts is not None:
            given = (((), contexts(np.arange(start + i, start + i + m))) for i, m in chunks(n, sampling.CHUNK))
        return draw(run.model, n, given, seed=args.seed, **more, **options)

    return drawn


class _Tally:
    """What is said about the rows, which come in parts: copies of training rows, conditions, additions."""

    def __init__(self, args, copies):
        from darn.inference.summary import Moments

        self.args, self.copies = args, copies
        self.log_joint, self.given = Moments(), []
        self.additions = self.active = 0

    def add(self, part) -> None:
        if self.args.log_joint:
            self.log_joint.add(part.log_joint)
        if self.args.sparse:
            self.additions += int(part.additions.sum())
            self.active += sum(int(y.sum()) for y in part.h)
        if self.copies is not None:
            self.copies.add(part.x)
        if self.args.given:
            self.given.append(part.without_rows())

    def said(self, seconds: float) -> tuple[dict[str, Any], list[str]]:
        """(facts, lines of text) about rows that were drawn in so many seconds."""
        from darn.runs import questions, synthetic

        args, facts, lines = self.args, {}, []
        if self.copies is not None:
            found = facts["copies"] = self.copies.found()
            lines += [synthetic.sentence(found)] if found else []
        if self.given:
            one = questions.joined(self.given)
            facts["given"] = {"probability": one.given, "method": one.method, "ess": one.ess, "draws": one.draws}
            lines.append(one.sentence)
        if args.log_joint:
            facts["mean_log_joint"] = float(self.log_joint.mean) if args.n else None
        if args.sparse:
            each = max(args.n, 1)
            additions, active = self.additions / each, self.active / each
            facts |= {"samples_per_s": args.n / seconds, "additions": additions, "active": active}
            each_row = f"{additions:,.0f} weight additions and {active:.1f} active hidden units per sample"
            lines.append(f"{args.n / seconds:,.0f} samples/s; {each_row}")
        return facts, lines


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
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
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
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
    p.add_argument("data", nargs="?", help="rows to encode; default: the test rows of the model's own data")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    add_delimiter(p)
    add_unseen(p)
    p.add_argument("--out", required=True, metavar="FILE", help="FILE.npy or FILE.csv: all layers side by side")
    p.add_argument("--probabilities", action="store_true", help="write q(h=1 | below) instead of bits")
    p.add_argument("--seed", type=int, help="sample the code from q(h|x) instead of taking the most probable one")
    p.add_argument("--reconstruct", metavar="FILE", help="write the reconstructions, as .png, .npy or .csv")
    add.computing(p)
