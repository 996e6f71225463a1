"""The commands `sweep` and `reproduce`."""

import difflib
import sys
from functools import partial
from pathlib import Path

from darn.cli import _atari
from darn.cli._base import Commands, at_least_one, given_fields, names_in, say, use_device
from darn.cli._train import asked_recipe
from darn.errors import DarnError
from darn.runs.grid import PAPER_GRID, PAPER_TRAINING, parse_grid
from darn.runs.recipe import override


def sweep(args) -> int:
    at_least_one(args, "programs", "width")
    out, recipe, splits = asked_recipe(args, "sweep-")
    grid = parse_grid(args.grid) if args.grid else PAPER_GRID
    if not args.grid:  # the paper's grid comes with the paper's training
        given = given_fields(args)
        recipe = override(recipe, {k: v for k, v in PAPER_TRAINING.items() if k not in given})
    use_device(args)
    from tqdm import tqdm

    from darn.runs import sweep

    with tqdm(bar_format="{elapsed} {desc}", disable=True if args.quiet else None, dynamic_ncols=True) as bar:
        record = sweep.run(
            recipe,
            grid,
            out,
            splits=splits,
            resume=args.resume,
            programs=args.programs,
            width=args.width,
            progress=bar.set_description_str,
        )
    say(
        args,
        record | {"run": str(out / "best")},
        *_sweep_lines(record, out, sweep.table(record), recipe.training.bound_name),
    )
    if record["interrupted"]:
        print("darn: interrupted; rerun with --resume to continue", file=sys.stderr)
    return 130 if record["interrupted"] else 0


def _sweep_lines(record: dict, out: Path, table: list[str], bound: str):
    yield from table
    n = len(record["models"])
    if record["best"] is not None:
        best = record["models"][record["best"]]
        fields = ", ".join(f"{k} {v}" for k, v in best["fields"].items())
        yield f"best of {n} models in {record['seconds']:.0f} s: {fields}"
        yield f"{bound} {best['valid_bound']:.3f} nats; the model is in {out / 'best'}"


# ---------------------------------------------------------------- reproduce

TARGETS = ("table1", "table2", "fig2", "claims", "costs", "docs", "all")


def reproduce(args) -> int:
    """Prints the paper's figures and ours; with --run or --rows, makes ours first."""
    args.rows = names_in(args.rows)
    if args.what in _atari.TARGETS:
        return _atari.reproduce(args)
    at_least_one(args, "samples", "repeats")
    results = Path(args.results)
    making = args.run_rows or args.rows is not None
    if not results.is_dir() and not making:
        raise DarnError(f"there is no folder {results}: run this at the root of a checkout, or name one with --results")
    targets = [t for t in TARGETS if t not in ("all", "docs")] if args.what == "all" else [args.what]
    rows = _chosen_rows(targets, args.rows)
    if making or "fig2" in targets:
        use_device(args)
    from darn.paper.results import read

    if making and not _make_rows(rows, args, results):
        return 130
    if making and "costs" in targets and not args.rows:
        from darn.paper import costs

        costs.run(results, again=args.again, progress=partial(print, file=sys.stderr))
    found = read(results)
    facts, lines = {}, []
    for target in targets:
        title = [f"{target}:"] if len(targets) > 1 else []
        try:
            more, text = _SHOW[target](args, results, found)
        except DarnError as e:  # a figure needs data and a model, the tables do not
            if args.what != "all":
                raise
            more, text = None, [f"cannot be shown: {e}"]
        facts[target] = more
        lines += [*title, *text, *([""] if len(targets) > 1 else [])]
    say(args, facts if len(targets) > 1 else facts[targets[0]], *lines)
    return 0


def _chosen_rows(targets: list[str], names: list[str] | None) -> list:
    from darn.paper.rows import PAPER

    tables = [t for t in targets if t in ("table1", "table2", "claims", "fig2")]
    rows = [r for r in PAPER if r.table in tables]
    if names is None:
        return rows
    if not tables:
        raise DarnError(f"--rows is for table1, table2, claims, fig2 and all: {targets[0]} has no rows")
    by_name = {r.name: r for r in rows}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(by_name)}"
            raise DarnError(f"{' and '.join(tables)} has no row {name!r}: {hint}")
    return [by_name[n] for n in names]


def _make_rows(rows: list, args, results: Path) -> bool:
    """Makes the rows one after the other; False if Ctrl-C ended it."""
    from darn.paper import run

    protocol = run.Protocol.default(args.samples, args.repeats or 10, args.method)
    for row in rows:
        why = run.can_run(row)
        if why and args.rows is None:
            print(f"{row.name}: {why}", file=sys.stderr)
            continue
        record = run.run_row(row, results, Path(args.runs), protocol, again=args.again, progress=not args.quiet)
        if record is None:
            print("darn: interrupted; rerun the same command to continue", file=sys.stderr)
            return False
        print(f"{row.name}: -log p {record['nll']:.3f} nats (paper {row.nll or '-'})", file=sys.stderr)
    return True


def _show_table(name: str):
    def show(args, results, found):
        from darn.paper.rows import PAPER
        from darn.paper.tables import lines

        mine = {r.name: found[r.name] for r in PAPER if r.table == name and r.name in found}
        return mine, lines(name, found)

    return show


def _show_claims(args, results, found):
    from darn.paper.claims import claims
    from darn.paper.results import read_all

    judged = claims(read_all(results))
    facts = [{"claim": c.text, "verdict": c.verdict, "figures": c.figures} for c in judged]
    return facts, [f"{c.verdict:14} {c.text}: {c.figures}" for c in judged]


def _show_costs(args, results, found):
    from darn.files import read_record
    from darn.paper import costs

    path = results / "costs" / "costs.json"
    if not path.exists():
        return None, ["not yet run: `darn reproduce costs --run` counts and times the samplers"]
    record = read_record(path)
    return record, costs.lines(record)


def _show_docs(args, results, found):
    from darn.paper.docs import document

    changed = [str(p) for p in document(results.absolute().parent)]
    return changed, [f"rewritten: {', '.join(changed)}" if changed else "the documents are up to date"]


def _show_fig2(args, results, found):
    from darn.paper import figures
    from darn.runs.folder import open_run

    facts, lines = {}, []
    folder = results / "fig2"
    model = results / "models" / "mnist-500.safetensors"
    if model.exists():
        facts["samples"] = f = figures.samples_beside_nearest(open_run(model), folder / "samples.png")
        lines.append(
            f"{folder / 'samples.png'}: {f['samples']} samples of mnist-500, each left of the nearest training row; "
            f"{f['mean_distance']:.1f} pixels apart in the mean, at least {f['least_distance']} "
            f"(validation rows: {f['mean_distance_of_validation_rows']:.1f})"
        )
    else:
        lines.append("samples: not yet run (mnist-500)")
    for name, what in (("mnist-intensity", "intensity"), ("mnist-fdarn", "fdarn")):
        model = results / "models" / f"{name}.safetensors"
        if not model.exists():
            lines.append(f"{what}: not yet run ({name})")
            continue
        figures.sample_probabilities(open_run(model), folder / f"{what}.png")
        lines.append(f"{folder / what}.png: p(x = 1 | h) of codes drawn from {name}")
    n = figures.curves(found, folder / "curves.png")
    lines.append(f"{folder / 'curves.png'}: training curves of {n} rows" if n else "curves: not yet run")
    return facts | {"curves": n}, lines


_SHOW = {
    "table1": _show_table("table1"),
    "table2": _show_table("table2"),
    "claims": _show_claims,
    "costs": _show_costs,
    "docs": _show_docs,
    "fig2": _show_fig2,
}


def register(add: Commands) -> None:
    p = add.command(
        "sweep",
        sweep,
        "train every model of a grid, choose by validation bound",
        "  darn sweep ocr_letters                                the paper's grid: 105 models\n"
        "  darn sweep adult --grid lr=1e-3,2.5e-4 n_h=16,64,32+16 --epochs 100\n"
        "  darn sweep adult --resume\n  darn eval runs/sweep-adult/best",
    )
    p.add_argument("recipe", help="a recipe's name, a data set's name, or a file or folder of one's own")
    p.add_argument(
        "--grid",
        nargs="+",
        action="extend",
        metavar="FIELD=V1,V2",
        help="values to try, every combination ('+' between the layers of n_h and n_d; default: the paper's grid)",
    )
    p.add_argument("--out", help="the sweep's folder (default: runs/sweep-NAME)")
    p.add_argument("--resume", action="store_true", help="continue an interrupted sweep")
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress line")
    p.add_argument(
        "--programs",
        type=int,
        help="pad models until so many programs are left (default: 4 on a GPU, no padding on a CPU)",
    )
    p.add_argument("--width", type=int, help="models trained side by side (default: all that fit on a GPU, 1 on a CPU)")
    add.computing(p)
    add.fields(p)

    p = add.command(
        "reproduce",
        reproduce,
        "the paper's tables, figures, claims and sampling costs beside ours",
        "  darn reproduce table1                                 from the files under results/\n"
        "  darn reproduce table1 --rows mushrooms,fvsbn-mushrooms  train and score these rows first\n"
        "  darn reproduce atari --rows pong                      train what is missing, score it, draw it\n"
        "  darn reproduce all --run\n  darn reproduce docs       rewrite the tables of the README and the docs",
    )
    p.add_argument("what", choices=(*TARGETS, *_atari.TARGETS), help="which part of the paper")
    p.add_argument("--run", dest="run_rows", action="store_true", help="make every row that is missing")
    p.add_argument("--rows", metavar="A,B", action="append", help="make these rows only; atari, fig3: these games")
    p.add_argument(
        "--tiny", action="store_true", help="atari and its figures: small networks and few epochs, as a trial"
    )
    p.add_argument("--again", action="store_true", help="make rows again that exist already")
    p.add_argument("--results", default="results", metavar="DIR", help="where rows and models are (default results)")
    p.add_argument(
        "--runs",
        default="runs/reproduce",
        metavar="DIR",
        help="where they are trained, resumably (default runs/reproduce)",
    )
    p.add_argument(
        "--samples", type=int, help="importance samples per row (default: the paper's 100,000, on a CPU 1,000)"
    )
    p.add_argument("--repeats", type=int, help="repeats of the estimate (default 10)")
    p.add_argument(
        "--method",
        choices=("auto", "exact", "importance"),
        default="auto",
        help="auto, the default: exact up to 16 units",
    )
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    add.computing(p)
