"""The commands `eval` and `score`."""

import contextlib
import time

from darn.cli._base import (
    BAR,
    Commands,
    add_delimiter,
    add_precision,
    add_shard,
    add_unseen,
    at_least_one,
    precision_of,
    say,
    sharing,
    use_device,
)
from darn.errors import DarnError


def evaluate(args) -> None:
    at_least_one(args, "every")
    precision_of(args)
    from darn.data import TABLES, check_output, open_scores

    check_output(args.per_row, TABLES, args.data, args.model)
    stored = _quick(args) if args.quick else None
    use_device(args)
    from tqdm import tqdm

    from darn import data
    from darn.inference import likelihood
    from darn.inference.summary import Running
    from darn.paper import rbm
    from darn.runs import provenance
    from darn.runs.run import load

    if rbm.is_rbm(args.model):
        return _evaluate_rbm(args, stored)
    run = load(args.model)
    rows = run.open(args.data, args.split, delimiter=args.delimiter, unseen=args.unseen).every(args.every)
    own = args.data in (None, run.recipe.data.source)
    split = args.split or ("test" if args.data is None or args.data in data.names() else None)
    method = likelihood.method_for(run.model) if args.method == "auto" else args.method
    precision = precision_of(args) if method == "importance" else {}
    repeats = precision.get("repeats", 1)
    running = Running(method, precision.get("n_samples"), repeats)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=rows.rows * repeats, **BAR, desc="scoring"))
        write = stack.enter_context(open_scores(args.per_row, rows.rows, args.every)) if args.per_row else None
        options = {"method": method, "seed": args.seed, "progress": bar.update, **precision}
        for part in likelihood.score_parts(run.model, rows.scored(), rows.rows, **options):
            running.add(part)
            if write is not None:
                write(part.log_p)
    found = running.summary()
    comparable = own and split == "test" and args.every == 1
    facts = {
        "model": str(args.model),
        "data": args.data or run.recipe.data.source,
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
        facts["baselines"] = _baselines(run, rows)
    if stored is not None:
        facts["stored"] = stored
    say(args, facts, *_eval_lines(facts, found))


def score(args) -> None:
    precision_of(args)
    from darn.data import TABLES, check_output, open_scores

    check_output(args.out, TABLES, args.data, args.model)
    use_device(args)
    import numpy as np
    from tqdm import tqdm

    from darn.inference import likelihood
    from darn.inference.summary import Running
    from darn.runs.run import load
    from darn.runs.shards import mark_of

    run = load(args.model)
    rows = run.open(args.data, args.split, delimiter=args.delimiter, unseen=args.unseen)
    method = likelihood.method_for(run.model) if args.method == "auto" else args.method
    precision = precision_of(args) if method == "importance" else {}
    start, stop = (0, rows.rows) if args.shard is None else args.shard.rows(rows.rows)
    job = {"data": mark_of(args.data or run.recipe.data.source), "split": args.split, "rows": rows.rows}
    job |= {"options": {"method": method, "seed": args.seed, "unseen": args.unseen, **precision}}
    with sharing(args, args.out, run.file, **job) as out, contextlib.ExitStack() as stack:
        if out is None:
            return
        bar = stack.enter_context(tqdm(total=(stop - start) * precision.get("repeats", 1), **BAR, desc="scoring"))
        write = stack.enter_context(open_scores(out, stop - start, first=start))
        running = Running(method, precision.get("n_samples"), precision.get("repeats", 1))
        options = {"method": method, "seed": args.seed, "numbers": start, "progress": bar.update, **precision}
        if start == stop:  # fewer rows than shards
            write(np.zeros(0))
        for part in likelihood.score_parts(run.model, rows.within(start, stop).scored(), rows.rows, **options):
            running.add(part)
            write(part.log_p.astype(np.float64))
    facts = {"model": str(args.model), "data": args.data or run.recipe.data.source, "out": out, "rows": stop - start}
    facts |= {"first_row": start, "seed": args.seed}
    mean = ""
    if stop > start:
        found = running.summary()
        facts |= {"method": found.method, "nll": found.nll}
        mean = f"; -log p {found.nll:.3f} nats on average"
    say(args, facts, f"{stop - start:,} scores in {out}{mean}")


def _evaluate_rbm(args, stored: dict | None) -> None:
    """Scores a restricted Boltzmann machine on the test rows of its own data, log Z by annealing."""
    if args.data or args.per_row or args.baselines or args.split not in (None, "test"):
        raise DarnError(
            f"{args.model} is a restricted Boltzmann machine, which can only be scored on its own test rows"
        )
    from darn.paper.results import quick_line
    from darn.paper.rows import QUICK
    from darn.paper.scoring import score_rbm

    steps = QUICK[1] if args.quick else args.samples or 1000
    found = score_rbm(args.model, 100 if args.quick else steps, steps, every=args.every, seed=args.seed)
    lines = [f"  -log p   {found['nll']:10.3f} nats  ± {found['nll_ci95']:.3f} (95%, {found['method']})"]
    if stored is not None:
        found["stored"] = stored
        lines.append(quick_line(found["nll"], found["nll_ci95"], stored))
    say(args, {"model": str(args.model)} | found, f"{args.model} on {found['rows']:,} rows", *lines)


def _quick(args) -> dict | None:
    """Sets the options of a quick evaluation; the figure stored with a committed model, if there is one."""
    from darn.paper.results import quick_of
    from darn.paper.rows import QUICK

    usual = {"samples": None, "repeats": None, "precision": None, "every": 1}
    if other := [f"--{name}" for name, value in usual.items() if getattr(args, name) != value]:
        raise DarnError(f"--quick chooses the rows and their samples: leave out {', '.join(other)}")
    stored = quick_of(args.model)
    args.every, args.samples = QUICK
    args.repeats, args.precision = 1, None
    if stored:
        args.every, args.samples = stored["every"], stored["n_samples"] or args.samples
        args.seed = stored["seed"]
        if args.method == "auto":
            args.method = "importance" if stored["n_samples"] else "exact"
    return stored


def _baselines(run, rows) -> dict[str, float]:
    from darn.inference import likelihood
    from darn.inference.summary import Running
    from darn.runs import baselines

    splits = run.splits()
    train, valid = splits.train.unpack(), splits.valid.unpack()
    sizes = (10, 20, 50, 100, 200) if len(train) >= 10 else (1, 2, 5)
    k, mixture = baselines.best_mixture(train, valid, sizes)

    def nll(model) -> float:
        running = Running("exact")
        bits = ((x, None, density) for x, _, density in rows.scored())
        for part in likelihood.score_parts(model, bits, rows.rows, method="exact"):
            running.add(part)
        return running.summary().nll

    return {"independent Bernoulli": nll(baselines.independent(train)), f"mixture of {k} Bernoullis": nll(mixture)}


def _eval_lines(facts, found):
    n, split = facts["rows"], f" ({facts['split']})" if facts["split"] else ""
    yield f"{facts['model']} on {n:,} {'row' if n == 1 else 'rows'} of {facts['data']}{split}"
    among = f"; over rows ± {found.rows_ci95:.2f}" if n > 1 else ""
    if found.method == "exact":
        yield f"  -log p   {found.nll:10.3f} nats  exact sum{among}"
    else:
        how = f"{found.n_samples:,} samples " + ("a row" if found.least_drawn is not None else f"x {found.repeats}")
        yield f"  -log p   {found.nll:10.3f} nats  ± {found.nll_ci95:.3f} (95%, importance sampling, {how}){among}"
        if found.at:
            yield "  at       " + ", ".join(f"S={s:,}: {v:.3f}" for s, v in found.at.items())
        yield f"  ESS      {found.ess_mean:10.1f} of {found.n_samples:,} samples (least {found.ess_min:.1f})"
        if found.unsettled:
            yield f"  rows that need more samples than the limit, their -log p perhaps too high: {found.unsettled:,}"
    yield f"  bound    {found.bound:10.3f} nats  expected description length, an upper bound on -log p"
    if (density := found.log_density) is not None:
        cells = f"{found.nll + density:.3f} nats choose cells"
        yield f"  numbers  {-density:10.3f} nats of -log p are the densities of numbers within their cells; {cells}"
    if facts["paper_nll"] is not None:
        bound = f" (bound {facts['paper_bound']})" if facts["paper_bound"] else ""
        yield f"  paper    {facts['paper_nll']:10.3f} nats{bound}"
    if "stored" in facts:
        from darn.paper.results import quick_line

        yield quick_line(found.nll, found.nll_ci95, facts["stored"])
    for name, value in facts.get("baselines", {}).items():
        change = 100 * (1 - found.nll / value)
        yield f"  {name}: {value:.3f} nats; this model takes {abs(change):.1f}% {'fewer' if change > 0 else 'more'}"


def register(add: Commands) -> None:
    p = add.command(
        "eval",
        evaluate,
        "bound and -log p of rows, with intervals",
        "  darn eval runs/mushrooms\n  darn eval runs/mnist-500 --samples 100000 --repeats 10\n"
        "  darn eval runs/m my_rows.csv --per-row scores.npy",
    )
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
    p.add_argument("data", nargs="?", help="rows to score (default: the test rows of the model's own data)")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    add_delimiter(p)
    add_unseen(p)
    add_precision(p, repeats=10)
    p.add_argument(
        "--quick",
        action="store_true",
        help="like the stored figure, usually every 10th row with 1,000 samples",
    )
    p.add_argument("--every", type=int, default=1, metavar="K", help="score every K-th row only (default 1)")
    _add_method(p)
    p.add_argument("--per-row", metavar="FILE", help="log p of every row, nats, as .npy, or as .csv with row numbers")
    p.add_argument("--baselines", action="store_true", help="also score independent Bernoullis and a mixture")
    add.computing(p)

    p = add.command(
        "score",
        score,
        "write log p of every row: what `eval` measures, alone",
        "  darn score runs/m my_rows.csv --out scores.npy\n"
        "  darn score runs/m my_rows.parquet --out scores.npy --shard 3/8",
    )
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
    p.add_argument("data", nargs="?", help="rows to score (default: the test rows of the model's own data)")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    p.add_argument("--out", required=True, metavar="FILE", help="FILE.npy or FILE.csv: log p of every row, nats")
    add_shard(p)
    add_delimiter(p)
    add_unseen(p)
    add_precision(p, repeats=10)
    _add_method(p)
    add.computing(p)


def _add_method(p) -> None:
    p.add_argument(
        "--method",
        choices=("auto", "exact", "importance"),
        default="auto",
        help="auto, the default: exact up to 16 units, fewer under a NADE",
    )
