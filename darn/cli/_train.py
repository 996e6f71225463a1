"""The commands `recipes`, `data` and `train`."""

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from darn.cli import _atari, _pack, _together
from darn.cli._base import Commands, add_field, counted, given_fields, say, short, use_device
from darn.cli._meet import place_of
from darn.errors import DarnError, printable
from darn.paper.recipes import RECIPES, find
from darn.runs.fields import fields_of, show_field
from darn.runs.place import is_new
from darn.runs.provenance import versions
from darn.runs.recipe import PARTS, Recipe, override

if TYPE_CHECKING:
    from darn.data import Splits


def recipes(args) -> None:
    if args.name is None:
        width = max(map(len, RECIPES))
        lines = [f"{name:{width}}  {recipe.description}" for name, recipe in RECIPES.items()]
        return say(args, {k: r.to_json() for k, r in RECIPES.items()}, *lines)
    recipe = find(args.name)[1]
    lines = [recipe.description, f"  {'source':18} {recipe.data.source}"]
    for part in PARTS:
        lines += [f"{part}:", *(f"  {f.name:18} {show_field(recipe.value(f.name))}" for f in fields_of(part))]
    for name in ("paper_nll", "paper_bound"):
        lines.append(f"{name:20} {short(getattr(recipe, name))}")
    return say(args, recipe.to_json(), *lines)


def data_sets(args) -> None:
    if args.name == "atari" or args.game:
        return _atari.record(args)
    if args.name == "pack":
        return _pack.pack(args)
    if args.files or args.out or args.like:
        raise DarnError("several files, --out and --like are for `darn data pack`: name one set or file")
    from darn import data

    if args.name is None:
        sets = data.describe()
        lines = [f"{'name':32} {'columns':>7}  {'train / valid / test':24} {'here':5} what"]
        for s in sets:
            rows = " / ".join(map(str, s["rows"]))
            lines.append(f"{s['name']:32} {s['columns']:7}  {rows:24} {'yes' if s['present'] else 'no':5} {s['about']}")
        return say(args, sets, *lines, f"data folder: {data.data_dir()} (set DARN_DATA to use another)")
    given = given_fields(args)
    columns = data.Columns(**{name: given[name] for name in _pack.TABLE if name in given})
    splits = data.load(args.name, binarize=args.binarize, threshold=args.threshold, labels=args.labels, columns=columns)
    parts = {k: getattr(splits, k) for k in ("train", "valid", "test")}
    facts = {
        "name": splits.name,
        "columns": splits.train.n if splits.schema is None else len(splits.schema.columns),
        "units": splits.train.n,
        "rows": {k: len(v) for k, v in parts.items()},
        "mean": {k: round(float(v.mean().mean()), 4) for k, v in parts.items()},
        "binarize": splits.binarize,
        "shape": splits.shape,
        "classes": splits.classes,
        "source": splits.source,
        "sha256": splits.sha256,
    }
    lines = [f"{k:10} {short(v)}" for k, v in facts.items()]
    if splits.schema is not None:
        facts["table"] = {c.name: c.describe() for c in splits.schema.columns}
        lines += splits.schema.statement()
    return say(args, facts, *lines)


def train(args) -> int:
    place = place_of(args.coordinator, args.processes, args.process)
    if place is None:
        return _train(args)
    if not 0 <= args.wait < math.inf:
        raise DarnError("--wait takes a number of seconds, 0 or more")
    status = _together.divide(place, versions(), args.wait)
    if status is not None:
        return status
    use_device(args)  # at once: the others wait
    args.quiet = args.quiet or _together.is_other()
    return _train(args)


def _train(args) -> int:
    out, recipe, splits = asked_recipe(args, "")
    own = splits is not None
    if args.search and _together.member is not None:
        raise DarnError("--search chooses a model in one process: choose it first, then train it in several")
    if args.search is not None and not (own and 0 <= args.search < math.inf):
        raise DarnError("--search takes a number of seconds, 0 or more, and only for your own data: recipes are fixed")
    if splits is not None and splits.schema is not None and not (args.quiet or args.json):
        print("columns:", *map(printable, splits.schema.statement()), sep="\n", flush=True)
    if _together.member is None:
        use_device(args)
    from darn.inference import code
    from darn.runs import folder, search
    from darn.runs.dataset import read_data
    from darn.runs.start import candidates

    splits = read_data(recipe) if splits is None else splits
    alone = _together.member is None
    choices = candidates(recipe, given_fields(args), splits, args.search) if own and alone and not args.tiny else []
    fit = folder.train(recipe, out, splits=splits, candidates=choices, resume=args.resume, progress=not args.quiet)
    if _together.is_other():
        return 130 if fit.interrupted else 0
    if not fit.steps:
        print("darn: interrupted while choosing a model; rerun with --resume to continue", file=sys.stderr)
        return 130
    rows = splits.valid.take(slice(code.ROWS))
    use = code.measure(fit.model, rows.unpack(), rows.context)
    facts = {
        "run": str(out),
        "valid_bound": fit.bound,
        "best_epoch": fit.epoch,
        "epochs": fit.epochs,
        "steps": fit.steps,
        "seconds": round(fit.seconds, 2),
        "interrupted": fit.interrupted,
        "code": None
        if use is None
        else {"nats": use.nats, "distinct": use.distinct, "rows": use.rows, "idle": use.idle},
        "search": fit.search,
    }
    best = f"{recipe.training.bound_name} {fit.bound:.2f} nats at epoch {fit.epoch}"
    how = "interrupted" if fit.interrupted else "done"
    text = f"{how} after {counted(fit.epochs, 'epoch')} ({fit.seconds:.1f} s of training): "
    chosen = [] if fit.search is None else [search.statement(fit.search)]
    say(args, facts, *chosen, f"{text}{best if fit.epoch else 'not yet validated'}; the model is in {out}")
    if use is not None and use.idle and fit.epoch:
        print(f"darn: {use.warning}", file=sys.stderr)
    if fit.interrupted:
        print("darn: interrupted; rerun with --resume to continue", file=sys.stderr)
    return 130 if fit.interrupted else 0


def asked_recipe(args, prefix: str) -> tuple[Path, Recipe, "Splits | None"]:
    """The folder, recipe and data that the arguments of `train` and `sweep` select.

    Args:
        args: The command's arguments.
        prefix: Of the default folder's name.

    Returns:
        (folder, recipe, the data if they had to be read to size the recipe).
    """
    own = _own_data(args.recipe)
    name, recipe = find(args.recipe, own)
    out = Path(args.out or Path("runs") / f"{prefix}{name}")
    if not args.resume and not _together.is_other() and not is_new(out):
        raise DarnError(f"{out} exists already: continue it with --resume, or choose another folder with --out")
    given = given_fields(args)
    splits = None
    if own is not None:
        recipe = override(recipe, given)  # a wrong field is found before the data are read
        from darn.runs.dataset import read_data
        from darn.runs.start import sized

        splits = read_data(recipe)
        recipe = sized(recipe, given, splits)
    return out, override(recipe.tiny() if args.tiny else recipe, given), splits


def _own_data(name: str) -> str | None:
    """What to train on if `name` is not a recipe: a known set, or a file by its full path (runs are read later)."""
    if name in RECIPES:
        return None
    from darn import data

    return name if name in data.names() else os.path.abspath(name) if name and os.path.exists(name) else None


def register(add: Commands) -> None:
    p = add.command("recipes", recipes, "list the recipes", "  darn recipes\n  darn recipes mnist-500")
    p.add_argument("name", nargs="?", help="show one recipe's fields")

    p = add.command(
        "data",
        data_sets,
        "list the data sets, or fetch and check one; pack files of any size; record Atari frames",
        "  darn data\n  darn data mushrooms\n  darn data pets.csv --categorical auto\n"
        "  darn data pack a.csv b.csv --out packed\n"
        "  darn data atari --game pong --frames 100000",
    )
    p.add_argument("name", nargs="?", help="a data set's name, or your own file; pack or atari")
    p.add_argument("files", nargs="*", metavar="FILE", help="pack: the files to write as one packed set")
    p.add_argument("--out", metavar="FOLDER", help="pack: the folder to write")
    p.add_argument("--like", metavar="RUN", help="pack: read the files as this model does, to score or complete them")
    p.add_argument("--binarize", help="how grey levels become bits: threshold, static, dynamic or intensity")
    p.add_argument("--threshold", type=float, default=0.5, help="of full scale, for --binarize threshold (default 0.5)")
    p.add_argument("--labels", metavar="COLUMN", help="the column that holds class labels")
    for f in fields_of("data"):
        if f.name in _pack.TABLE:
            add_field(p, f)
    p.add_argument(
        "--game",
        metavar="A,B",
        action="append",
        help="atari: the games to record, in parallel; 'all' for the paper's five",
    )
    p.add_argument("--frames", type=int, default=100_000, help="atari: frames to keep of each game (default 100000)")
    p.add_argument("--seed", type=int, help="of everything random (default 0; for atari 2014)")
    p.add_argument("--processes", type=int, help="atari: emulators in parallel (default: one per core)")

    p = add.command(
        "train",
        train,
        "train a recipe, or a model of your own data",
        "  darn train mushrooms --n_h 16 --out runs/m16\n  darn train my.csv --visible nade --epochs 50\n"
        "  darn train mnist-500 --resume",
    )
    p.add_argument("recipe", help="a recipe's name, a data set's name, or your own file or folder")
    p.add_argument("--out", help="the run folder (default: runs/NAME)")
    p.add_argument("--resume", action="store_true", help="continue an interrupted run as if it had never stopped")
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    p.add_argument(
        "--search",
        type=float,
        metavar="SECONDS",
        help="your own data: choose among a few models by validation for about this long on two cores; 0: no choice, "
        "one default for the size of the data (default: a minute, longer for more than 10,000 rows, 0 with --epochs)",
    )
    add.computing(p)
    add.together(p)
    add.fields(p)
