"""A self-contained HTML page: sections rendered by templates, charts as numbers that the page's script draws."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_DIGITS = 6  # of a number in a chart: more would add bytes and change no pixel


@dataclass(frozen=True)
class Tile:
    """One headline number."""

    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure that the page's script draws; `label` says in words what it shows."""

    name: str
    label: str
    caption: str = ""
    legend: bool = False
    controls: bool = False


@dataclass(frozen=True)
class Cell:
    """A table's cell with the number it is sorted by."""

    text: str
    value: float


@dataclass(frozen=True)
class Section:
    """A part of the page that its navigation links to."""

    name: str
    title: str
    body: Markup


@cache
def _environment() -> Environment:
    # Whatever a template prints is escaped: names and recipes come from files that anybody may have written.
    env = Environment(
        loader=PackageLoader("darn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return env


@cache
def _asset(name: str) -> str:
    return (files("darn.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy(script: str, style: str) -> str:
    """The content-security policy: this one script, this one style sheet, pictures inside the file, nothing else."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


class Document:
    """Sections in order, and the numbers behind their charts; `in_nats`: whether figures without a unit are nats."""

    def __init__(self, title: str, kind: str, lede: str, *, in_nats: bool = True):
        self.title, self.kind, self.lede, self.in_nats = title, kind, lede, in_nats
        self.tiles: list[Tile] = []
        self.sections: list[Section] = []
        self.charts: dict[str, dict] = {}

    def chart(self, name: str, spec: dict, label: str, caption: str = "", **options: bool) -> Chart:
        """Registers a chart's numbers and returns what a template places."""
        self.charts[name] = spec
        return Chart(name, label, caption, **options)

    def section(self, name: str, title: str, template: str | None = None, **values) -> None:
        """Appends the section that `template` (by default the section's own) makes of the values."""
        body = _environment().get_template(f"{template or name}.html").render(**values)
        self.sections.append(Section(name, title, Markup(body)))

    def render(self) -> str:
        """The whole file."""
        script, style = _asset("page.js"), _asset("page.css")
        return (
            _environment()
            .get_template("page.html")
            .render(
                document=self,
                policy=policy(script, style),
                script=Markup(script),
                style=Markup(style),
                data={"charts": _plain(self.charts)},
            )
        )


def _plain(value):
    """Arrays as lists, floats rounded, what is not finite as null: what JSON can hold."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
