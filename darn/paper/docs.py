"""The tables inside documents: blocks between two comments, rewritten from the results."""

import re
from pathlib import Path

from darn.errors import DarnError
from darn.files import atomic
from darn.paper import atari, bench
from darn.paper.claims import claims
from darn.paper.results import read_all
from darn.paper.tables import as_markdown, markdown, times

DOCUMENTS = ("README.md", "docs/results.md")
_BLOCK = re.compile(r"(<!-- results: ([\w ]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def _block(what: str, found: dict[str, dict], results: Path) -> str:
    """A table with all its rows, with `ours` or its `times` alone; or `atari`, `codec`, `speed`, `claims`."""
    name, _, some = what.partition(" ")
    if name == "atari":
        return as_markdown(*atari.table(atari.rows(results)))
    if name in bench.TABLES:
        return as_markdown(*bench.TABLES[name](results))
    if name == "claims":
        body = [f"| {c.text} | {c.verdict} | {c.figures} |" for c in claims(found)]
        return "\n".join(["| the paper says | here | figures |", "|---|---|---|", *body])
    if some == "times":
        return "\n".join(f"{line}." for line in times(name, found))
    return markdown(name, found, only_ours=some == "ours")


def documented(text: str, results: Path) -> str:
    """A document with its blocks as the results have them."""
    found = read_all(results)
    return _BLOCK.sub(lambda m: f"{m[1]}{_block(m[2], found, results)}\n{m[3]}", text)


def document(root: Path) -> list[Path]:
    """Rewrites the blocks of the documents under `root`; returns those that changed."""
    changed = []
    for name in DOCUMENTS:
        path = root / name
        if not path.exists():
            raise DarnError(f"there is no {path}: run this at the root of a checkout")
        text = path.read_text()
        if (new := documented(text, root / "results")) != text:
            with atomic(path) as f:
                f.write_text(new)
            changed.append(path)
    return changed
