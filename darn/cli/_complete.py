"""The commands `complete` and `models`."""

import contextlib
import math
from collections import deque
from pathlib import Path
from typing import Any

from darn.cli._base import (
    BAR,
    Commands,
    add_delimiter,
    add_given,
    add_unseen,
    at_least_one,
    check_different,
    check_rows_of_a_table,
    check_seed,
    counted,
    say,
    use_device,
)
from darn.errors import DarnError, printable

DRAWS = 200  # of each row, to find the most probable values


def models(args) -> None:
    from darn.runs import pretrained

    found = pretrained.describe()
    width = max((len(m["name"]) for m in found), default=0)
    lines = [f"{'name':{width}} {'data':18} {'columns':>7}  {'bound':>7}   about"]
    for m in found:
        bound = "-" if m["valid_bound"] is None else f"{m['valid_bound']:.2f}"
        bound = f"{bound:>7}{'*' if m['encodings'] > 1 else ' '}"
        lines.append(f"{m['name']:{width}} {m['data'] or '-':18} {m['columns'] or '-':>7}  {bound}  {m['about']}")
    lines.append("bounds: of the validation rows, nats; `darn eval NAME` scores the test rows")
    if any(m["encodings"] > 1 for m in found):
        lines.append("* the tighter bound of several encodings, not comparable with the others")
    if away := sorted(set(pretrained.checksums()) - {m["name"] for m in found}):
        lines.append(f"{len(away)} more are downloaded when first used: {', '.join(away)}")
    say(args, found, *lines)


def complete(args) -> None:
    from darn.data import PARQUET, PICTURES, check_output, names, open_words

    check_output(args.out, (*PICTURES, "parquet"), args.data, args.model)
    check_output(args.cells, ("csv",), args.data, args.model)
    check_different(args.out, args.cells)
    at_least_one(args, "n", "samples", "every")
    if args.sweeps < 0:
        raise DarnError(f"--sweeps must be at least 0, not {args.sweeps}")
    many = args.cells or args.most_probable
    n = args.n or (DRAWS if many else 1)
    copies = 1 if args.most_probable else n  # of each row in the output
    check_seed(args)
    if args.given and (args.most_probable or args.hide):
        other = "--most-probable" if args.most_probable else "--hide"
        raise DarnError(f"{other} is without conditions: leave out {other} or --given")
    if args.hide is None and (args.data in (None, *names()) or Path(args.data).is_dir()):
        raise DarnError("nothing is missing: give a file with missing values, or hide a part of rows with --hide lower")
    use_device(args)
    from tqdm import tqdm

    from darn.inference import completion
    from darn.inference.summary import Moments
    from darn.runs import cells, holes, questions
    from darn.runs.run import load

    run = load(args.model)
    if args.out:
        check_rows_of_a_table(args.out, run)
    schema: Any = questions.schema_of(run) if args.cells else None
    options = {"seed": args.seed, "n_samples": args.samples, "sweeps": args.sweeps}
    facts: dict = {"model": str(args.model), "data": args.data or run.recipe.data.source, "n": copies}
    if args.hide is None:
        given = holes.read(run, args.data, args.every, args.delimiter, args.unseen)
    else:
        given = holes.hide(run, args.data, args.split, args.every, args.hide, args.delimiter, args.unseen)
    known, missing = given.survey(run.model)
    if not given.rows:
        raise DarnError(f"{args.data} has no rows: give at least one")
    if not known.rows:
        raise DarnError(f"nothing is missing in {args.data}: leave cells empty, or hide some with --hide")
    within, conditions = {}, None
    if args.given:
        known, conditions, within = cells.conditions(run, args.given, given, known)
    method = "importance" if known.how == "importance" else "exact"
    ess, least, exact, log_p = Moments(), math.inf, Moments(), Moments()

    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=known.rows, **BAR, desc="completing"))
        write_cells = stack.enter_context(open_words(args.cells, cells.HEADER)) if args.cells else None

        def filled():
            nonlocal least
            first, more = 1, {"conditions": conditions, "progress": bar.update, **options}
            drawn = holes.completed(run, given, known, n, scored=args.hide is not None, **more)
            for part, x, sizes, scores in drawn:
                if scores is not None:
                    log_p.add(scores)
                if sizes is not None:
                    ess.add(sizes)
                    least = min(least, float(sizes.min()))
                if write_cells is not None:
                    write_cells(list(cells.probabilities(schema, part, x, first, within)))
                if args.most_probable:
                    own, all_compared = cells.best(run, part, x, n_samples=args.samples, seed=args.seed)
                    exact.add(all_compared.astype(float))
                    x = own[:, None]
                first += len(x)
                yield part, x

        if args.out:
            within = cells.medians(run.schema) if args.most_probable else within
            holes.write(run, args.out, filled(), given, copies, args.seed, within)
        else:
            deque(filled(), maxlen=0)
    fraction = missing / (known.rows * run.model.n_x)
    facts |= {"rows": given.rows, "rows_with_holes": known.rows, "method": method, "missing": fraction}
    facts["ess"] = {"mean": float(ess.mean), "min": least} if ess.count else None
    how_many = f"{counted(n, 'completion')} of {counted(known.rows)}"
    lines = [f"{how_many} with missing values, {fraction:.0%} of their units missing ({method})"]
    if ess.count:
        lines[0] += f"; effective sample size {ess.mean:.1f} of {args.samples} (least {least:.1f})"
    if args.most_probable:
        share = facts["exact_most_probable"] = float(exact.mean)
        lines.append(f"  the most probable of all completions in {share:.0%} of the rows, of those drawn in the others")
    if args.cells:
        facts["cells"] = args.cells
        lines.append(f"  probabilities of the missing cells in {args.cells}: frequencies among {n:,} completions")
    if args.hide is not None:
        scored = {"this model": (log_p, method)}
        if args.baselines and not run.model.n_context:
            from darn.runs.baselines import best_mixture

            splits = run.splits()
            k, mixture = best_mixture(splits.train.unpack(), splits.valid.unpack())
            name, seen, other, how = f"mixture of {k} Bernoullis", given.survey(mixture)[0], Moments(), ""
            with tqdm(total=seen.rows, **BAR, desc="scoring") as bar:
                rows = given.given(mixture)
                for _, part in completion.conditional_parts(mixture, rows, seen, progress=bar.update, **options):
                    other.add(part.log_p)
                    how = part.method
            scored[name] = other, how
        facts["log_p_missing"] = {}
        for name, (found, how) in scored.items():
            mean, half = float(found.mean), 1.96 * float(found.std()) / found.count**0.5
            facts["log_p_missing"][name] = {"mean": mean, "rows_ci95": half, "method": how}
            lines.append(f"  log p(missing | observed) {mean:9.3f} nats ± {half:.2f} over rows ({how}): {name}")
    if args.out and run.schema is not None and (aside := set(run.schema.names) - set(run.schema.modelled)):
        named = [printable(name) for name in run.schema.names if name in aside]
        lines.append(f"  set aside, so copied with their missing cells: {', '.join(named)}")
    if given.layout is not None and Path(args.data or "").suffix.lower() not in PARQUET:
        facts["delimiter"] = given.layout.delimiter
        lines.append(f"  read with cells {given.layout.described}")
    if args.out:
        facts["out"] = args.out
        lines.append(f"in {args.out}")
    say(args, facts, *lines)


def register(add: Commands) -> None:
    p = add.command(
        "complete",
        complete,
        "fill in missing values, one or several times",
        "  darn complete runs/pets pets_with_holes.csv -n 5 --out filled.csv\n"
        "  darn complete runs/pets pets_with_holes.csv --most-probable --out best.csv --cells probabilities.csv\n"
        "  darn complete mnist-500 --hide lower --every 500 -n 10 --out halves.png",
    )
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
    p.add_argument("data", nargs="?", help="rows with missing values: empty cells of a .csv, NaN in a .npy")
    p.add_argument(
        "--hide", metavar="WHAT", help="what to hide of complete rows: lower, upper, left, right, or columns by name"
    )
    p.add_argument("--split", choices=("train", "valid", "test"), help="with --hide: which rows of a data set")
    add_delimiter(p)
    add_unseen(p)
    add_given(p)
    p.add_argument("--every", type=int, default=1, metavar="K", help="every K-th row only")
    p.add_argument("-n", type=int, help=f"completions of each row (default 1; {DRAWS} for the next two options)")
    p.add_argument(
        "--most-probable", action="store_true", help="write each row once, with its most probable values together"
    )
    p.add_argument("--cells", metavar="FILE.csv", help="write the probability of every value of each missing cell")
    p.add_argument("--samples", type=int, default=100, help="importance samples per row (default 100)")
    p.add_argument("--sweeps", type=int, default=5, help="Gibbs sweeps that refine them (default 5)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same completions")
    p.add_argument("--baselines", action="store_true", help="with --hide: also score a mixture of Bernoullis")
    p.add_argument(
        "--out", metavar="FILE", help="FILE.png, FILE.npy (rows, n, columns) or FILE.csv; of a table also FILE.parquet"
    )
    add.computing(p)

    add.command("models", models, "list the pretrained models", "  darn models\n  darn eval mnist-500 --every 50")
