"""Equations as MathML when the site is built: browsers draw it themselves, so that no script or font is fetched.

In the Markdown they stand between dollar signs, `$x$` in a line and `$$x$$` apart, as GitHub draws them too.
"""

import re

from latex2mathml.converter import convert

# Code comes first: what looks like an equation inside it is none.
_PARTS = re.compile(r"(?P<code>^```.*?^```$|`[^`\n]*`)|\$\$(?P<apart>.+?)\$\$|\$(?P<line>[^$\n]+?)\$", re.DOTALL | re.M)


def on_page_markdown(markdown: str, **_) -> str:
    """Called by MkDocs with the text of each page."""

    def one(found: re.Match) -> str:
        if found["code"] is not None:
            return found[0]
        if found["apart"] is not None:
            return f'<div class="equation">{convert(found["apart"].strip(), display="block")}</div>'
        # In a span: an element that Markdown does not know would end the paragraph where it begins a line.
        return f"<span>{convert(found['line'])}</span>"

    return _PARTS.sub(one, markdown)
