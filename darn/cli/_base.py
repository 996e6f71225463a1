"""What the commands share: how they take arguments, choose a device and print."""

import argparse
import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import Field
from functools import partial
from pathlib import Path
from typing import Any

from darn.cache import use_cache
from darn.cli import _together
from darn.errors import DarnError, printable
from darn.files import read_bytes
from darn.jsonable import FieldError
from darn.runs.fields import fields_of, join_texts, parse_field, placeholder, show_field
from darn.runs.shards import Shard, claimed

BAR = {"unit": " rows", "disable": None}  # a progress bar with the time left, on a terminal only

# argparse, not tyro: fields have their own notation ('80x12', '8/4/32'), and every error is one sentence.


TUPLES = [f.name for f in fields_of("data") if f.type == tuple[str, ...]]  # each text of these is one entry


class Commands:
    """Adds commands to the parser, in a common style."""

    def __init__(self, subparsers):
        self.subparsers = subparsers

    def command(self, name, run, text, example):
        """A command's own parser; `run(args)` carries it out."""
        p = self.subparsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"examples:\n{example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        p.set_defaults(run=run)
        p.add_argument("--json", action="store_true", help="print numbers as JSON")
        p.add_argument(
            "--import",
            dest="imports",
            action="append",
            default=[],
            metavar="MODULE",
            help="import a Python module first, such as one that registers layers; also the variable DARN_IMPORT",
        )
        return p

    def computing(self, p):
        """Options of commands that compute."""
        group = p.add_argument_group("computing")
        group.add_argument("--device", choices=("cpu", "gpu"), help="where to compute (default: a GPU if there is one)")
        group.add_argument(
            "--devices", type=_devices, metavar="N|all", help="how many devices to use, in each process (default: 1)"
        )
        group.add_argument(
            "--matmul",
            choices=("default", "highest"),
            default="default",
            help="the precision of matrix products on a GPU (default: default)",
        )
        group.add_argument(
            "--no-cache", action="store_true", help="compile anew, without the cache of compiled programs (DARN_CACHE)"
        )

    def together(self, p):
        """Options of commands that several devices or processes run together."""
        self.sharding(p)
        group = p.add_argument_group("several processes", "each is started with the same command and its own number")
        group.add_argument(
            "--coordinator",
            metavar="HOST:PORT",
            help="the first process's host, and a free port there; auto under SLURM",
        )
        group.add_argument("--processes", type=int, metavar="N", help="how many processes there are")
        group.add_argument("--process", type=int, metavar="I", help="the number of this one, from 0 on")
        group.add_argument(
            "--wait", type=float, default=300.0, metavar="SECONDS", help="for the others to start (default 300)"
        )

    def sharding(self, p):
        """The option of commands that know of shared weights."""
        p.add_argument(
            "--shard-weights",
            action="store_true",
            help="with several devices: each holds only a part of the weights and of the optimiser's state",
        )

    def fields(self, p):
        """An option for every field of a recipe, in groups."""
        p.usage = f"{p.prog} [options] recipe"  # not a list of 50 fields, which follow with their help
        for part in ("architecture", "training", "data"):
            group = p.add_argument_group(
                f"{part} of the recipe",
                "defaults in brackets, unless the recipe or the size of your data says otherwise",
            )
            for f in fields_of(part):
                add_field(group, f)


def add_field(group, f: Field) -> None:
    """The option --field, and --its-name-with-dashes, which help does not show."""
    more: dict[str, Any] = {"dest": f"field_{f.name}", "metavar": _values(f)}
    if f.type is bool:
        # "--skip" alone is "--skip true"; any other word after it is refused, not taken as its value
        more |= {"nargs": "?", "const": "true", "type": partial(_checked, f.name)}
    elif f.metadata["repeatable"]:
        more |= {"action": "append"}
    default = "" if f.default is None or f.name in TUPLES else f" [{show_field(f.default)}]"
    group.add_argument(f"--{f.name}", help=(f.metadata["help"] + default).replace("%", "%%"), **more)
    if "_" in f.name:
        group.add_argument(f"--{f.name.replace('_', '-')}", help=argparse.SUPPRESS, **more)


def _values(f: Field) -> str:
    return "{" + ",".join(f.metadata["choices"]) + "}" if f.metadata["choices"] else placeholder(f)


def add_unseen(p) -> None:
    """The option of commands that give rows of a table to a model."""
    p.add_argument(
        "--unseen",
        choices=("error", "missing", "nearest"),
        default="error",
        help="what a category that no training row had counts as (default: error)",
    )


def add_delimiter(p) -> None:
    """The option of commands that read a table."""
    p.add_argument("--delimiter", metavar="D", help="between the cells of a text table: one character, tab or blank")


def add_shard(p) -> None:
    """The option of commands whose work many processes can share."""
    p.add_argument(
        "--shard",
        type=Shard.parse,
        metavar="I/N",
        help="do the I-th of N parts only, into a file beside the output; `darn cat` joins them; see docs/scale.md",
    )


@contextlib.contextmanager
def sharing(args, out: str, model: Path, **job: Any) -> Iterator[str | None]:
    """The path to write: the output, or the shard of it that is asked for; None if that is done already.

    Args:
        args: of a command with `add_shard`.
        out: the output.
        model: the model file.
        job: what else the shards have in common, such as the data and options.
    """
    if args.shard is None:
        yield out
        return
    about = {"command": args.command, "model": hashlib.sha256(read_bytes(model)).hexdigest(), **job}
    with claimed(args.shard, out, about) as todo:
        path = str(args.shard.path(out))
        if not todo:
            say(args, {"shard": str(args.shard), "out": path, "done": True}, f"{path} is done already")
        yield path if todo else None


def _checked(name: str, text: str) -> str:
    """The text, if the field can be read from it."""
    try:
        parse_field(name, text)
    except FieldError as e:
        raise DarnError(f"--{e}") from None
    return text


def given_fields(args) -> dict[str, Any]:
    """The recipe fields given on the command line; a repeated option becomes a list."""
    given = {k.removeprefix("field_"): v for k, v in vars(args).items() if k.startswith("field_") and v is not None}
    join = lambda k, v: join_texts(v) if k in TUPLES else ",".join(v)  # noqa: E731
    return {k: parse_field(k, join(k, v) if isinstance(v, list) else v) for k, v in given.items()}


def names_in(texts: list[str] | None) -> list[str] | None:
    """The names of an option that takes several: 'a,b', or given once for each."""
    return None if texts is None else [name for text in texts for name in text.split(",") if name]


def say(args, facts, *lines: str) -> None:
    """Prints the facts as JSON if requested, the lines otherwise."""
    print(json.dumps(finite(facts), indent=1) if args.json else "\n".join(map(printable, lines)))


def counted(n: int, what: str = "row") -> str:
    """So many things, in words."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def finite(value):
    """JSON has neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(v) -> str:
    """A value in one line of text."""
    if isinstance(v, dict):
        return ", ".join(f"{k} {short(w)}" for k, w in v.items())
    return ",".join(map(str, v)) if isinstance(v, list | tuple) else "-" if v is None else str(v)


def at_least_one(args, *names: str) -> None:
    """Refuses values below 1 for these options, if they are given."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise DarnError(f"-{'-' * (len(name) > 1)}{name} must be at least 1, not {value}")


def add_given(p) -> None:
    """The option of commands that take conditions."""
    p.add_argument(
        "--given",
        action="append",
        metavar="CONDITIONS",
        help="conditions on columns, such as 'sex=Female, age>=40, kind in {cat, dog}'; see docs/query.md",
    )


def add_precision(p, repeats: int) -> None:
    """The options of commands that estimate a likelihood: to a precision, or with a fixed number of samples."""
    p.add_argument(
        "--precision", type=float, metavar="NATS", help="of -log p: each row gets the samples it needs (default 0.01)"
    )
    p.add_argument("--samples", type=int, help="importance samples for every row, instead of a precision")
    p.add_argument("--repeats", type=int, help=f"repeats of the estimate with --samples (default {repeats})")
    p.set_defaults(default_repeats=repeats)
    p.add_argument("--seed", type=int, default=0, help="of the importance samples (default 0)")


def precision_of(args) -> dict:
    """What `likelihood.evaluate` is told by the options of `add_precision`."""
    at_least_one(args, "samples", "repeats")
    check_seed(args)
    if args.samples is not None:
        if args.precision is not None:
            raise DarnError("--precision chooses the samples of every row: leave out --precision or --samples")
        return {"n_samples": args.samples, "repeats": args.repeats or args.default_repeats}
    if args.repeats is not None:
        raise DarnError("--repeats repeats an estimate with --samples: give both, or a --precision")
    if args.precision is None:
        return {}
    if not 0 < args.precision < math.inf:
        raise DarnError(f"--precision must be a positive number of nats, not {args.precision:g}")
    return {"precision": args.precision}


def check_seed(args) -> None:
    """Refuses a seed that does not fit into a 32-bit integer."""
    if args.seed is not None and not 0 <= args.seed < 2**31:
        raise DarnError(f"--seed must be a number from 0 to 2147483647, not {args.seed}")


def check_different(*outputs: str | None) -> None:
    """Refuses to write two outputs to one file."""
    named = [os.path.abspath(path) for path in outputs if path is not None]
    if len(set(named)) < len(named):
        raise DarnError(f"{named[0]} is given for two outputs: use a different file for each")


def check_rows_of_a_table(path: str, run) -> None:
    """Refuses rows as Parquet of a model that is not over a table."""
    if path.lower().endswith(".parquet") and run.schema is None:
        raise DarnError(f"{path}: only rows of a table can be Parquet; this model is over bits: use .npy or .csv")


def _devices(text: str) -> int | str:
    if text != "all" and not re.fullmatch("[0-9]{1,6}", text):
        raise DarnError(f"--devices must be a number or all, not {text!r}")
    return text if text == "all" else int(text)


def use_device(args) -> None:
    """Chooses the platform before JAX looks for one, and turns on the cache of compiled programs."""
    import jax

    from darn import devices

    if not args.no_cache:
        use_cache()
    if args.matmul == "highest":
        jax.config.update("jax_default_matmul_precision", "highest")
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if _together.member is not None:
        _together.member.connect()
    try:
        jax.devices(args.device)
        devices.use(args.devices, shard_weights=getattr(args, "shard_weights", False))
    except RuntimeError as e:
        if args.device == "gpu":
            raise DarnError("JAX found no GPU: install darn with the extra `cuda`, or leave out --device gpu") from e
        raise DarnError(f"JAX finds no device to compute on: {e}") from e
