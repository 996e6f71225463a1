"""The tables inside the README and the results page, rewritten from results/: python docs/tables.py"""

import re
from pathlib import Path

from darn.files import atomic
from darn.paper import atari, bench, published
from darn.paper.claims import claims
from darn.paper.results import read_all
from darn.paper.tables import as_markdown, markdown, times

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/results.md", "docs/convolutions.md")
_BLOCK = re.compile(r"(<!-- results: ([\w ]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def _block(what: str, found: dict[str, dict], results: Path) -> str:
    """A table with all its rows, only `ours` or only its `times`; or `atari`, `published`, `codec`, `speed`,
    `claims`."""
    name, _, some = what.partition(" ")
    if name == "atari":
        return as_markdown(*atari.table(found))
    if name == "published":
        return as_markdown(*published.table(found))
    if name in bench.TABLES:
        return as_markdown(*bench.TABLES[name](results))
    if name == "claims":
        body = [f"| {c.text} | {c.verdict} | {c.figures} |" for c in claims(found)]
        return "\n".join(["| the paper says | here | figures |", "|---|---|---|", *body])
    if some == "times":
        return "\n".join(f"{line}." for line in times(name, found))
    return markdown(name, found, only_ours=some == "ours")


def documented(text: str, results: Path) -> str:
    """A document with its blocks made from the results."""
    found = read_all(results)
    return _BLOCK.sub(lambda m: f"{m[1]}{_block(m[2], found, results)}\n{m[3]}", text)


def document(root: Path = ROOT) -> list[str]:
    """Rewrites the blocks of the documents under `root`; returns the names of those that changed."""
    changed = []
    for name in DOCUMENTS:
        text = (root / name).read_text()
        if (new := documented(text, root / "results")) != text:
            with atomic(root / name) as f:
                f.write_text(new)
            changed.append(name)
    return changed


if __name__ == "__main__":
    changed = document()
    print(f"rewritten: {', '.join(changed)}" if changed else "the documents are up to date")
