"""The commands `sweep` and `reproduce`."""

import difflib
import sys
from functools import partial
from pathlib import Path

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

    from darn import cluster
    from darn.runs import sweep, sweep_record

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
            spread=None if args.ray is None else cluster.spread(None if args.ray == "here" else args.ray),
        )
    say(
        args,
        record | {"run": str(out / "best")},
        *_sweep_lines(record, out, sweep_record.table(record), recipe.training.bound_name),
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

TABLES, FIGURES = ("table1", "table2", "dynamic", "claims", "atari"), ("fig2", "fig3", "fig4", "fig5")
TARGETS = ("table1", "table2", "dynamic", "fig2", "claims", "costs", "atari", "fig3", "fig4", "fig5", "all")


def reproduce(args) -> int:
    """Prints the paper's figures and ours; with --run, --rows or --tiny, computes ours first."""
    at_least_one(args, "samples", "repeats")
    args.rows = names_in(args.rows)
    results, runs = Path(args.results), Path(args.runs)
    if args.tiny:  # separate from the results
        runs = runs / "tiny"
        results = runs / "results"
    making = args.run_rows or args.rows is not None or args.tiny
    if not results.is_dir() and not making:
        raise DarnError(f"there is no folder {results}: run this at the root of a checkout, or name one with --results")
    targets = [t for t in TARGETS if t != "all"] if args.part == "all" else [args.part]
    rows = _chosen_rows(targets, args.rows)
    driver = None
    if making or set(targets) & set(FIGURES):
        use_device(args)
        from darn.paper.run import Driver
        from darn.paper.scoring import Protocol

        protocol = Protocol.default(args.samples, args.repeats or 10, args.method)
        driver = Driver(results, runs, protocol, args.again, args.tiny, not args.quiet)
    from darn.paper.results import read

    if making and not _make_rows(rows, args, driver):
        return 130
    if making and "costs" in targets and not args.rows:
        from darn.paper import costs

        costs.run(results, again=args.again, progress=partial(print, file=sys.stderr))
    found = read(results)
    facts, lines = {}, []
    for target in targets:
        title = [f"{target}:"] if len(targets) > 1 else []
        try:
            if target in FIGURES:
                more, text = _show_figure(target, driver, found, making, args.rows)
            else:
                more, text = _SHOW[target](args, results, found)
        except DarnError as e:  # a figure needs data and a model; the tables are useful without it
            if args.part != "all":
                raise
            more, text = None, [f"cannot be shown: {e}"]
        facts[target] = more
        lines += [*title, *text, *([""] if len(targets) > 1 else [])]
    say(args, facts if len(targets) > 1 else facts[targets[0]], *lines)
    return 0


def _chosen_rows(targets: list[str], names: list[str] | None) -> list:
    from darn.paper.results import ROWS

    rows = {r.name: r for r in ROWS if r.table in set(targets) & set(TABLES)}
    for figure in set(targets) & set(FIGURES):
        from darn.paper import figures

        rows |= {r.name: r for r in figures.rows_of(figure)}
    if names is None:
        return list(rows.values())
    if not rows:
        raise DarnError(f"--rows does not go with {targets[0]}, which has no rows")
    for name in names:
        if name not in rows:
            near = difflib.get_close_matches(name, rows, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(rows)}"
            raise DarnError(f"{' and '.join(t for t in targets if t != 'costs')} has no row {name!r}: {hint}")
    return [rows[n] for n in names]


def _make_rows(rows: list, args, driver) -> bool:
    """Computes the rows one after another; False if Ctrl-C ended it."""
    from darn.paper import run

    for row in rows:
        why = run.can_run(row)
        if why and args.rows is None:
            print(f"{row.name}: {why}", file=sys.stderr)
            continue
        record = driver.record(row)
        if record is None:
            print("darn: interrupted; rerun the same command to continue", file=sys.stderr)
            return False
        paper = f"-log p {row.nll or '-'}, bound {row.bound or '-'}"
        bound = "" if record["bound"] is None else f", bound {record['bound']:.3f}"
        print(f"{row.name}: -log p {record['nll']:.3f}{bound} nats (paper: {paper})", file=sys.stderr)
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


def _show_atari(args, results, found):
    from darn.paper import atari
    from darn.paper.tables import as_text

    mine = {row.name: found[row.name] for row in atari.ROWS if row.name in found}
    note = "nats per test frame: bounds of the paper and of darn, on the paper's split and by episode"
    return mine, [*as_text(*atari.table(found)), "", note]


def _show_figure(target, driver, found, making: bool, only: list[str] | None):
    from darn.paper import figures

    facts, lines = figures.draw(target, driver, make=making, only=only)
    if target == "fig2":
        path = driver.results / target / "curves.png"
        n = figures.curves({k: r for k, r in found.items() if r.get("table") != "atari"}, path)
        facts |= {"curves": n}
        lines.append(f"{path}: training curves of {n} rows" if n else "curves: not yet run")
    return facts, lines


_SHOW = {
    "table1": _show_table("table1"),
    "table2": _show_table("table2"),
    "dynamic": _show_table("dynamic"),
    "claims": _show_claims,
    "costs": _show_costs,
    "atari": _show_atari,
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
    p.add_argument("recipe", help="a recipe's name, a data set's name, or your own file or folder")
    p.add_argument(
        "--grid",
        nargs="+",
        action="extend",
        metavar="FIELD=V1,V2",
        help="values to try, every combination ('+' between the layers of n_h and n_d; default: the paper's grid)",
    )
    p.add_argument("--out", help="the sweep's folder (default: runs/sweep-NAME)")
    p.add_argument("--resume", action="store_true", help="continue an interrupted sweep")
    p.add_argument(
        "--ray",
        nargs="?",
        const="here",
        metavar="ADDRESS",
        help="train on the workers of a Ray cluster: HOST:PORT of its head, or auto; without an address, on this "
        "machine's cores or GPUs; needs the extra `cluster`",
    )
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress line")
    p.add_argument(
        "--programs",
        type=int,
        help="pad models until this many programs are left (default: 4 on a GPU, no padding on a CPU)",
    )
    p.add_argument("--width", type=int, help="models trained at once (default: all that fit on a GPU, 1 on a CPU)")
    add.computing(p)
    add.fields(p)

    p = add.command(
        "reproduce",
        reproduce,
        "the paper's tables, figures, claims and sampling costs beside ours",
        "  darn reproduce table1                                 from the files under results/\n"
        "  darn reproduce table1 --rows mushrooms,fvsbn-mushrooms  train and score these rows first\n"
        "  darn reproduce atari --rows pong,pong-fvsbn           train and score these if they are missing\n"
        "  darn reproduce fig3 --run                             train what is missing, draw it\n"
        "  darn reproduce all --run",
    )
    p.add_argument("part", choices=TARGETS, help="which part of the paper")
    p.add_argument("--run", dest="run_rows", action="store_true", help="compute every missing row")
    p.add_argument("--rows", metavar="A,B", action="append", help="compute only these rows")
    p.add_argument(
        "--tiny", action="store_true", help="a trial with small networks and few epochs, kept under RUNS/tiny"
    )
    p.add_argument("--again", action="store_true", help="compute rows again that exist already")
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
