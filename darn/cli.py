"""The command line: arguments in, one call out, a sentence and an exit status where that fails."""

import argparse
import difflib
import os
import re
import sys

from darn import commands, commands_atari, commands_codec, commands_report, commands_tables
from darn.errors import DarnError
from darn.recipes import fields_of


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors."""

    def error(self, message):
        choice = re.search(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            name, given, known = choice[1], choice[2], choice[3].replace("'", "").split(", ")
            near = difflib.get_close_matches(given, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise DarnError(f"the {name} must be one of {', '.join(known)}, not {given!r}{hint}")
        raise DarnError(f"{message}; `{self.prog} --help` shows how")


def _later(name: str):
    """A command of a module that is loaded when the command runs."""

    def run(args):
        from darn import commands_complete

        return getattr(commands_complete, name)(args)

    return run


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
    subparsers = top.add_subparsers(dest="command", parser_class=_Parser)

    def command(name, run, text, example):
        p = subparsers.add_parser(
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

    def fields(p):
        group = p.add_argument_group("fields of the recipe (defaults are the recipe's own)")
        for f in fields_of():
            names = [f"--{f.name}"] + ([f"--{f.name.replace('_', '-')}"] if "_" in f.name else [])
            choices = f.metadata["choices"]
            text = f.metadata["help"] + (f": {', '.join(choices)}" if choices else "")
            group.add_argument(*names, dest=f"field_{f.name}", metavar="V", help=text.replace("%", "%%"))

    p = command("recipes", commands.recipes, "list the recipes", "  darn recipes\n  darn recipes mnist-500")
    p.add_argument("name", nargs="?", help="show one recipe's fields")

    p = command(
        "data",
        commands_atari.data_sets,
        "list the data sets, or fetch and check one; record Atari frames",
        "  darn data\n  darn data mushrooms\n  darn data atari --game pong --frames 100000",
    )
    p.add_argument("name", nargs="?", help="a data set's name, or a file of one's own")
    p.add_argument("--binarize", help="how grey levels become bits: threshold, static, dynamic or intensity")
    p.add_argument("--labels", metavar="COLUMN", help="the column that holds class labels")
    p.add_argument("--game", metavar="A,B", help="atari: the games to record, side by side; 'all' for the paper's five")
    p.add_argument("--frames", type=int, default=100_000, help="atari: frames to keep of each game (default 100000)")
    p.add_argument("--seed", type=int, default=2014, help="atari: everything random follows from this")
    p.add_argument("--processes", type=int, help="atari: emulators side by side; default one a core")

    p = command(
        "train",
        commands.train,
        "train a recipe, or a model of one's own data",
        "  darn train mushrooms --n_h 16 --out runs/m16\n  darn train my.csv --visible nade --epochs 50\n"
        "  darn train mnist-500 --resume",
    )
    p.add_argument("recipe", help="a recipe's name, a data set's name, or a file or folder of one's own")
    p.add_argument("--out", help="the run folder; default runs/NAME")
    p.add_argument("--resume", action="store_true", help="continue an interrupted run as if it had never stopped")
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    computing(p)
    fields(p)

    p = command(
        "eval",
        commands.evaluate,
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
    p.add_argument(
        "--quick", action="store_true", help="every 10th row, 1,000 samples, the stored seed: minutes on a CPU"
    )
    p.add_argument("--every", type=int, default=1, metavar="K", help="score every K-th row only")
    p.add_argument(
        "--method", choices=("auto", "exact", "importance"), default="auto", help="auto: exact up to 16 units"
    )
    p.add_argument("--per-row", metavar="OUT.npy", help="write log p of every row, nats")
    p.add_argument("--baselines", action="store_true", help="beside independent Bernoullis and a mixture")
    computing(p)

    p = command(
        "sample",
        commands.sample,
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
    p.add_argument("--sparse", action="store_true", help="fDARN's sampler: only active units cost, and are counted")
    computing(p)

    p = command(
        "encode",
        commands.encode,
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

    p = command(
        "sweep",
        commands_tables.sweep,
        "train every model of a grid, choose by validation bound",
        "  darn sweep ocr_letters                                the paper's grid: 105 models\n"
        "  darn sweep adult --grid lr=1e-3,2.5e-4 n_h=16,64,32+16 --epochs 100\n"
        "  darn sweep adult --resume\n  darn eval runs/sweep-adult/best",
    )
    p.add_argument("recipe", help="a recipe's name, a data set's name, or a file or folder of one's own")
    p.add_argument(
        "--grid",
        nargs="+",
        metavar="FIELD=V1,V2",
        help="values to try, every combination ('+' between the layers of n_h and n_d); default: the paper's grid",
    )
    p.add_argument("--out", help="the sweep's folder; default runs/sweep-NAME")
    p.add_argument("--resume", action="store_true", help="continue an interrupted sweep")
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    p.add_argument("--quiet", action="store_true", help="no progress line")
    p.add_argument(
        "--programs", type=int, help="how many programs padding may leave; default: 4 on a GPU, and no padding on a CPU"
    )
    p.add_argument("--width", type=int, help="models trained side by side; default: all that fit on a GPU, 1 on a CPU")
    computing(p)
    fields(p)

    p = command(
        "reproduce",
        commands_tables.reproduce,
        "the paper's tables, figures, claims and sampling costs beside ours",
        "  darn reproduce table1                                 from the files under results/\n"
        "  darn reproduce table1 --rows mushrooms,fvsbn-mushrooms  train and score these rows first\n"
        "  darn reproduce atari --rows pong                      train what is missing, score it, draw it\n"
        "  darn reproduce all --run\n  darn reproduce docs       rewrite the tables of the README and the docs",
    )
    p.add_argument("what", choices=(*commands_tables.TARGETS, *commands_atari.TARGETS), help="which part of the paper")
    p.add_argument("--run", dest="run_rows", action="store_true", help="make every row that is not there yet")
    p.add_argument("--rows", metavar="A,B", help="make these rows only; atari, fig3: these games")
    p.add_argument(
        "--tiny", action="store_true", help="atari and its figures: small networks, few epochs; does it run?"
    )
    p.add_argument("--again", action="store_true", help="make rows again that are there already")
    p.add_argument("--results", default="results", metavar="DIR", help="where rows and models lie (default results)")
    p.add_argument("--runs", default="runs/reproduce", metavar="DIR", help="where they are trained; resumable")
    p.add_argument("--samples", type=int, help="importance samples a row; default the paper's 100,000, on a CPU 1,000")
    p.add_argument("--repeats", type=int, help="repeats of the estimate (default 10)")
    p.add_argument(
        "--method", choices=("auto", "exact", "importance"), default="auto", help="auto: exact up to 16 units"
    )
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    computing(p)

    p = command(
        "compress",
        commands_codec.compress,
        "compress rows or bilevel images without loss, to the model's own description length",
        "  darn compress runs/mushrooms my.npy my.drn\n  darn compress runs/pages scans/ scans.drn\n"
        "  darn compress --train my.csv my.drn\n  cat my.npy | darn compress runs/mushrooms - - > my.drn",
    )
    p.add_argument("paths", nargs="+", metavar="RUN IN OUT", help="model, rows or images, file to write; - is a pipe")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    p.add_argument("--train", action="store_true", help="no model given: train one on these rows and put it inside")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    computing(p)

    p = command(
        "decompress",
        commands_codec.decompress,
        "the rows or images that were compressed, bit for bit",
        "  darn decompress runs/mushrooms my.drn my.npy\n  darn decompress runs/pages scans.drn scans/\n"
        "  darn decompress my.drn my.csv         (a file with its model inside)",
    )
    p.add_argument("paths", nargs="+", metavar="[RUN] IN OUT", help="model unless it is inside, file, what to write")
    p.add_argument("--keep-going", action="store_true", help="leave out rows whose block is damaged")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    computing(p)

    p = command("inspect", commands_codec.inspect, "where the bytes of a compressed file go", "  darn inspect my.drn")
    p.add_argument("file", metavar="FILE", help="a file that `darn compress` wrote")

    def page(name, run, text, example, what, default):
        p = command(name, run, text, example)
        p.add_argument(*what[:1], **what[1])
        p.add_argument("--out", metavar="FILE.html", help=f"default: {default}")
        p.add_argument("--split", choices=("train", "valid", "test"), default="test", help="which rows to score")
        p.add_argument(
            "--rows", type=int, default=1000, help="score at most so many rows, evenly spaced (default 1000)"
        )
        p.add_argument("--samples", type=int, default=200, help="importance samples a row (default 200)")
        p.add_argument("--repeats", type=int, default=5, help="repeats of the estimate (default 5)")
        p.add_argument("--seed", type=int, default=0, help="of the importance samples")
        computing(p)

    page(
        "report",
        commands_report.report,
        "one HTML page on a run: curves, samples, codes, costs",
        "  darn report runs/digits\n  darn report runs/mnist-500 --rows 10000 --samples 1000 --out mnist.html",
        ("model", {"metavar": "RUN", "help": "a run folder or a model file"}),
        "report.html in the run folder",
    )
    page(
        "compare",
        commands_report.compare,
        "one HTML page on several runs side by side",
        "  darn compare runs/m16 runs/m32 runs/m64 --out sizes.html",
        ("models", {"metavar": "RUN", "nargs": "+", "help": "run folders or model files"}),
        "comparison.html",
    )

    p = command(
        "complete",
        _later("complete"),
        "fill in what is missing, several times over",
        "  darn complete runs/pets pets_with_holes.csv -n 5 --out filled.csv\n"
        "  darn complete mnist-500 --hide lower --every 500 -n 10 --out halves.png",
    )
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a ready model's name")
    p.add_argument("data", nargs="?", help="rows with holes: empty cells of a .csv, NaN of a .npy")
    p.add_argument("--hide", metavar="WHAT", help="hide of whole rows: lower, upper, left, right, or columns by name")
    p.add_argument("--split", choices=("train", "valid", "test"), help="with --hide: which rows of a data set")
    p.add_argument("--every", type=int, default=1, metavar="K", help="every K-th row only")
    p.add_argument("-n", type=int, default=1, help="completions of each row (default 1)")
    p.add_argument("--samples", type=int, default=100, help="importance samples a row (default 100)")
    p.add_argument("--sweeps", type=int, default=5, help="Gibbs sweeps that refine them (default 5)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same completions")
    p.add_argument("--baselines", action="store_true", help="with --hide: beside a mixture of Bernoullis")
    p.add_argument("--out", metavar="FILE", help="FILE.png, FILE.npy (rows, n, columns) or FILE.csv")
    computing(p)

    command("models", _later("models"), "list the ready models", "  darn models\n  darn eval mnist-500 --every 50")
    return top


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
    status = 0
    try:
        parser, args = _parse(argv)
        if args.version:
            from importlib.metadata import version

            print(f"darn {version('darn')}")
        elif args.command is None:
            parser.print_help()
        else:
            status = args.run(args) or 0
        sys.stdout.flush()  # a full disk or a closed pipe shows here
        return status
    except DarnError as e:
        return _fail(str(e))
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        return _fail(f"{e.filename or 'the output'}: {e.strerror or e}")
    except Exception as e:
        if isinstance(e, MemoryError) or "RESOURCE_EXHAUSTED" in str(e):
            return _fail("out of memory: try a smaller model, a smaller --batch, or fewer rows")
        raise


def _fail(message: str, status: int = 2) -> int:
    print(f"darn: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
