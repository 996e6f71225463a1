"""The command line: arguments in, one call out, a sentence and an exit status where that fails."""

import argparse
import difflib
import os
import re
import sys

from darn.cli import _codec, _complete, _eval, _report, _sample, _tables, _train
from darn.cli._base import Commands
from darn.errors import DarnError

GROUPS = (_train, _eval, _sample, _complete, _report, _codec, _tables)  # in the order of `darn --help`


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

    add = Commands(subparsers)
    for group in GROUPS:
        group.register(add)
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
