"""Parts of a self-contained HTML page: pictures as data, charts as numbers that the page's script draws."""

import base64
import html
import io
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

TEAL, ORANGE = (17, 140, 133), (206, 108, 52)  # seen on light paper and on dark

# The page may load nothing from anywhere: what is not in the file is not shown.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
# The arrays that a picture's caption or a chart may hold are short; more figures than this add bytes, not sight.
_DIGITS = 6


def esc(text) -> str:
    """Text that stands for itself in HTML, in an attribute too."""
    return html.escape(str(text))


def _png(image) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def picture(values: np.ndarray, shape: tuple[int, int]) -> str:
    """Values in [0,1] as ink on paper; the page inverts them in the dark. One bit a pixel where they are bits."""
    from PIL import Image

    ink = np.asarray(values, np.float32).reshape(shape)
    image = Image.fromarray(np.round(255 * (1 - np.clip(ink, 0, 1))).astype(np.uint8))
    return _png(image.convert("1", dither=Image.Dither.NONE) if np.isin(ink, (0, 1)).all() else image)


def signed(values: np.ndarray, shape: tuple[int, int], top: float | None = None) -> str:
    """Values of either sign, as strength of one of two colours: teal above zero, orange below."""
    from PIL import Image

    v = np.asarray(values, np.float32).reshape(shape)
    top = float(np.abs(v).max()) if top is None else top
    out = np.zeros((*shape, 4), np.uint8)
    out[..., :3] = np.where(v[..., None] >= 0, TEAL, ORANGE)
    out[..., 3] = np.round(255 * np.clip(np.abs(v) / (top or 1), 0, 1))
    return _png(Image.fromarray(out))


def difference(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> str:
    """Two rows in one: grey where both are on, teal where only `a` is, orange where only `b` is."""
    from PIL import Image

    a, b = (np.round(np.asarray(v, np.float32)).reshape(shape).astype(bool) for v in (a, b))
    out = np.zeros((*shape, 4), np.uint8)
    out[a & b] = (128, 128, 128, 150)
    out[a & ~b], out[b & ~a] = (*TEAL, 255), (*ORANGE, 255)
    return _png(Image.fromarray(out))


def img(uri: str, alt: str, kind: str = "p", **data: str) -> str:
    """A picture: kind "p" for ink on paper, "d" for colours."""
    more = "".join(f' data-{k}="{esc(v)}"' for k, v in data.items())
    return f'<img class="{kind}" src="{uri}" alt="{esc(alt)}"{more}>'


def table(head: Sequence[str], rows: Iterable[Sequence], *, numbers: Iterable[int] = (), sortable: bool = False) -> str:
    """A table; a cell is text, or (text, value to sort by), or ready HTML in a list of one."""
    numbers = set(numbers)

    def cell(i, value):
        text, sort = value if isinstance(value, tuple) else (value, None)
        inner = text[0] if isinstance(text, list) else esc(text)
        mark = ' class="n"' if i in numbers else ""
        by = "" if sort is None else f' data-v="{float(sort)!r}"'
        return f"<td{mark}{by}>{inner}</td>"

    def heading(i, name):
        mark = ' class="n"' if i in numbers else ""
        inner = f'<button type="button">{esc(name)}</button>' if sortable and i in numbers else esc(name)
        return f'<th scope="col"{mark}>{inner}</th>'

    top = "".join(heading(i, name) for i, name in enumerate(head))
    body = "".join(f"<tr>{''.join(cell(i, v) for i, v in enumerate(row))}</tr>" for row in rows)
    mark = " data-sortable" if sortable else ""
    return f'<div class="scroll"><table{mark}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, str]], changed: Iterable[str] = ()) -> str:
    """Names and values side by side; `changed` ones stand out."""
    changed = set(changed)
    mark = ' class="changed"'
    rows = (f"<dt>{esc(k)}</dt><dd{mark if k in changed else ''}>{esc(v)}</dd>" for k, v in pairs if v != "")
    return f'<dl class="facts">{"".join(rows)}</dl>'


def tile(name: str, value: str, unit: str = "", note: str = "", main: bool = False) -> str:
    """One headline number."""
    mark = " main" if main else ""
    return (
        f'<div class="tile{mark}"><dt>{esc(name)}</dt><dd>{esc(value)} <small>{esc(unit)}</small></dd>'
        f"<p>{esc(note)}</p></div>"
    )


class Page:
    """Sections in order, and the numbers behind their charts."""

    def __init__(self, title: str, kicker: str, lede: str):
        self.title, self.kicker, self.lede = title, kicker, lede
        self.tiles: list[str] = []
        self.sections: list[tuple[str, str, str]] = []
        self.charts: dict[str, dict] = {}

    def section(self, name: str, title: str, *parts: str) -> None:
        """A section, linked from the top of the page."""
        self.sections.append((name, title, "\n".join(p for p in parts if p)))

    def chart(self, name: str, spec: dict, label: str, caption: str = "", *, legend=False, controls=False) -> str:
        """A figure that the page's script draws from `spec`; `label` says in words what it shows."""
        self.charts[name] = spec
        above = ('<div class="controls"></div>' if controls else "") + ('<div class="legend"></div>' if legend else "")
        below = f"<figcaption>{caption}</figcaption>" if caption else ""
        return (
            f'<figure data-chart="{name}">{above}<div class="plot" role="img" aria-label="{esc(label)}"></div>'
            f"{below}</figure>"
        )

    def render(self) -> str:
        """The whole file."""
        assets = files("darn.report") / "assets"
        links = "".join(f'<a href="#{name}">{esc(title)}</a>' for name, title, _ in self.sections)
        body = "\n".join(
            f'<section id="{name}">\n<h2>{esc(title)}</h2>\n{inner}\n</section>' for name, title, inner in self.sections
        )
        tiles = f'<dl class="tiles">{"".join(self.tiles)}</dl>' if self.tiles else ""
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{esc(self.title)} · darn</title>
<link rel="icon" href="data:,">
<style>
{(assets / "page.css").read_text()}</style>
</head>
<body>
<header class="top">
<div class="bar"><p>{esc(self.kicker)}</p><button id="theme" type="button">◐ auto</button></div>
<h1>{esc(self.title)}</h1>
<p class="lede">{esc(self.lede)}</p>
<nav aria-label="sections">{links}</nav>
</header>
<main>
{tiles}
<noscript><p class="note">The charts of this page are drawn by a script, which this browser does not run.</p></noscript>
{body}
</main>
<footer>Written by darn. All figures are nats unless they say bits.</footer>
<script type="application/json" id="data">{_json({"charts": self.charts})}</script>
<script>
{(assets / "page.js").read_text()}</script>
</body>
</html>
"""


def _json(value) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
