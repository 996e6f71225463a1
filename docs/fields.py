"""Build hook: the fields of a configuration as a table, instead of the source that declares them.

A page asks for it by `<!-- fields: Architecture -->`.
"""

import dataclasses
import re
from typing import Any

from darn import config

_MARK = re.compile(r"<!-- fields: (\w+) -->")


def table(name: str) -> str:
    """The fields of a dataclass of `darn.config` as a Markdown table."""
    rows = [_row(f) for f in dataclasses.fields(getattr(config, name))]
    return "\n".join(["| field | default | |", "| --- | --- | --- |", *rows])


def _row(f: dataclasses.Field[Any]) -> str:
    about = f.metadata["help"]
    if choices := f.metadata["choices"]:
        about += f": {', '.join(f'`{c}`' for c in choices)}"
    default = "" if f.default is None else f"`{f.default!r}`"
    return f"| `{f.name}` | {default} | {about.replace('|', '&#124;')} |"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return _MARK.sub(lambda found: table(found[1]), markdown)
