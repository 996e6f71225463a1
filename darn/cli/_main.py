"""The command line: parses arguments and runs one command; failures give one sentence and an exit status."""

import argparse
import difflib
import importlib
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence

from darn.cli import _codec, _complete, _eval, _plan, _query, _report, _sample, _synthetic, _tables, _together, _train
from darn.cli._base import Commands
from darn.cli._process import drop_output, open_streams, terminated
from darn.cli._words import reworded
from darn.errors import DarnError, printable

GROUPS = (
    _train,
    _plan,
    _eval,
    _sample,
    _complete,
    _query,
    _report,
    _synthetic,
    _codec,
    _tables,
)  # in the order of `darn --help`


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors."""

    def error(self, message):
        choice = re.search(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            name, given, known = choice[1], choice[2], choice[3].replace("'", "").split(", ")
            near = difflib.get_close_matches(given, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            name = name if name.startswith("-") else f"the {name}"
            raise DarnError(f"{name} must be one of {', '.join(known)}, not {given!r}{hint}")
        raise DarnError(f"{message}; see `{self.prog} --help`")


class CommandLine:
    """The parser of all commands."""

    def __init__(self):
        self.top = _Parser(
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
        self.top.add_argument("--version", action="store_true", help="print the version and exit")
        subparsers = self.top.add_subparsers(dest="command", parser_class=_Parser)
        add = Commands(subparsers)
        for group in GROUPS:
            group.register(add)
        self.commands: dict[str, argparse.ArgumentParser] = dict(subparsers.choices)

    def options(self) -> dict[str, frozenset[str]]:
        """The options of every command; those of `darn` itself under an empty name."""
        every = {"": self.top} | self.commands
        return {name: frozenset(p._option_string_actions) for name, p in every.items()}

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments; an option that the command does not have is an error with a hint."""
        args, unknown = self.top.parse_known_args(argv)
        if not unknown:
            return args
        word = unknown[0]
        prog = f"darn {args.command}" if args.command else "darn"
        if not word.startswith("-"):
            raise DarnError(f"unexpected argument {word!r}; see `{prog} --help`")
        near = difflib.get_close_matches(word.split("=")[0], self.options()[args.command or ""], n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}?" if near else f"`{prog} --help` lists them"
        raise DarnError(f"there is no option {word}: {hint}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The words after `darn`; default: those of this process.

    Returns:
        The exit status: 0 done, 2 the input is at fault, 3 another process has ended, 130 interrupted.
    """
    open_streams()
    try:
        with terminated():
            status = _main(argv)
    except Exception:
        if _together.member is None:
            raise
        traceback.print_exc()
        status = 1
    if _together.member is not None:
        _together.member.leave(status)
    return status


def _main(argv: Sequence[str] | None) -> int:
    try:
        line = CommandLine()
        args = line.parse(argv)
    except DarnError as e:
        return _fail(str(e))
    try:
        status = _run(line, args)
        sys.stdout.flush()  # a full disk or a closed pipe shows here
        return status
    except DarnError as e:
        return _fail(reworded(e, args.command, line.options()))
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except _together.Lost as e:
        return _fail(str(e), _together.LOST)
    except BrokenPipeError:  # the reader of the output has closed it
        drop_output()
        return 0
    except UnicodeEncodeError as e:
        found = e.object[e.start]
        return _fail(f"the output is in {e.encoding}, which has no {found!r}: set PYTHONUTF8=1, or write to a file")
    except OSError as e:
        drop_output()
        return _fail(f"{e.filename or 'the output'}: {e.strerror or e}")
    except Exception as e:
        if isinstance(e, MemoryError) or "RESOURCE_EXHAUSTED" in str(e):
            smaller = ", a smaller --batch" if "--batch" in line.options()[args.command or ""] else ""
            return _fail(f"out of memory: try a smaller model{smaller} or fewer rows")
        if _together.member is not None and type(e).__name__ == "JaxRuntimeError":
            time.sleep(60)  # another process is gone: the parent is going to say which, and end this one
        raise


def _run(line: CommandLine, args: argparse.Namespace) -> int:
    if args.version:
        from importlib.metadata import version

        print(f"darn {version('darn')}")
        return 0
    if args.command is None:
        line.top.print_help()
        return 0
    _import([*os.environ.get("DARN_IMPORT", "").split(","), *args.imports])
    return args.run(args) or 0


def _import(names: Sequence[str]) -> None:
    """Imports the user's modules, which register layers; the working folder is searched last."""
    for name in filter(None, (n.strip() for n in names)):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except Exception as e:  # the module may raise anything
            raise DarnError(f"cannot import {name}: {type(e).__name__}: {e}") from e


def _fail(message: str, status: int = 2) -> int:
    message = printable(" ".join(message.split()))
    print(f"darn: {message}", file=sys.stderr)
    if _together.member is not None:
        _together.member.message = message
    return status
