"""Pages looked at in a real browser, headless: what a script inside the page finds, at desktop and phone width."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import unquote

FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = {"desktop": 1280, "phone": 390}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=15000",
]


def _with_probe(page: str, script: str) -> str:
    """The page with one more script, which its policy is told to allow; everything else stays forbidden."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return page.replace("</body>", f"<script>{script}</script></body>")


def look(pages: dict[str, Path], probe: str) -> tuple[dict, list[str]]:
    """Opens every page in a frame of every width and runs `probe` in it, the body of a function that returns JSON.

    Returns ({(page, width): what the probe returned}, all lines that anything wrote on the console).
    """
    assert FOUND
    with tempfile.TemporaryDirectory() as folder:
        frames = []
        for name, path in pages.items():
            for width, pixels in WIDTHS.items():
                # The browser's own windows are never narrower than 500 pixels; a frame can be.
                script = (
                    "addEventListener('load', async () => { let found; try { found = await (async () => {"
                    + probe
                    + "\n})(); } catch (e) { found = {failed: String(e) + e.stack}; } "
                    + f"parent.postMessage({{at: {json.dumps([name, width])}, found}}, '*'); }});"
                )
                copy = Path(folder, f"{name}-{width}.html")
                copy.write_text(_with_probe(path.read_text(), script))
                frames.append(f'<iframe src="{copy.name}" style="width:{pixels}px;height:900px;border:0"></iframe>')
        top = Path(folder, "top.html")
        top.write_text(
            "<pre id=found></pre><script>const all = []; addEventListener('message', (e) => { all.push(e.data); "
            "found.textContent = encodeURIComponent(JSON.stringify(all)); });</script>" + "".join(frames)
        )
        done = subprocess.run(
            [FOUND, *FLAGS, f"--user-data-dir={folder}/profile", "--dump-dom", top.as_uri()],
            capture_output=True,
            text=True,
            timeout=180,
            env={**os.environ, "HOME": folder},
        )
    said = re.search(r'<pre id="found">([^<]*)</pre>', done.stdout)
    assert said, done.stderr[-2000:]
    found = {tuple(entry["at"]): entry["found"] for entry in json.loads(unquote(said[1]) or "[]")}
    return found, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
