"""What the commands share: how they take arguments, choose a device and speak."""

import argparse
import json
import math
import os
from functools import partial

from darn.errors import DarnError
from darn.runs.recipe import fields_of, parse_field


class Commands:
    """Adds commands to the parser, all of one style."""

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
        return p

    def computing(self, p):
        """Options of commands that compute."""
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

    def fields(self, p):
        """An option for every field of a recipe."""
        group = p.add_argument_group("fields of the recipe (defaults are the recipe's own)")
        for f in fields_of():
            names = [f"--{f.name}"] + ([f"--{f.name.replace('_', '-')}"] if "_" in f.name else [])
            choices = f.metadata["choices"]
            text = f.metadata["help"] + (f": {', '.join(choices)}" if choices else "")
            # "--skip" alone is "--skip true"; another word after it is refused at once, not taken for its value
            flag = f.type is bool or f.type == "bool"
            more = {"nargs": "?", "const": "true", "type": partial(_checked, f.name)} if flag else {}
            group.add_argument(*names, dest=f"field_{f.name}", metavar="V", help=text.replace("%", "%%"), **more)


def add_delimiter(p) -> None:
    """The option of commands that read a table."""
    p.add_argument("--delimiter", metavar="D", help="between the cells of a text table: one character, tab or blank")


def _checked(name: str, text: str) -> str:
    """The text, if the field can be read from it."""
    parse_field(name, text)
    return text


def say(args, facts, *lines: str) -> None:
    """The facts as JSON where that is asked for, the lines otherwise."""
    print(json.dumps(finite(facts), indent=1) if args.json else "\n".join(lines))


def finite(value):
    """JSON knows neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(v) -> str:
    if isinstance(v, dict):
        return ", ".join(f"{k} {short(w)}" for k, w in v.items())
    return ",".join(map(str, v)) if isinstance(v, list | tuple) else "-" if v is None else str(v)


def at_least_one(args, *names: str) -> None:
    """Refuses numbers below 1 of the options so named; those not given are left alone."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise DarnError(f"-{'-' * (len(name) > 1)}{name} must be at least 1, not {value}")


def check_seed(args) -> None:
    if args.seed is not None and not 0 <= args.seed < 2**31:
        raise DarnError(f"--seed must be a number from 0 to 2147483647, not {args.seed}")


def check_different(*outputs: str | None) -> None:
    """Refuses to write two outputs to one file."""
    named = [os.path.abspath(path) for path in outputs if path is not None]
    if len(set(named)) < len(named):
        raise DarnError(f"{named[0]} is named for two outputs: give each a file of its own")


def use_device(args) -> None:
    """Chooses the platform before JAX looks for one."""
    import jax

    if args.precision == "highest":
        jax.config.update("jax_default_matmul_precision", "highest")
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        jax.devices(args.device)
    except RuntimeError as e:
        if args.device == "gpu":
            raise DarnError(
                "no GPU that JAX can use was found: install darn with the extra `cuda`, or leave out --device gpu"
            ) from e
        raise DarnError(f"JAX finds no device to compute on: {e}") from e
