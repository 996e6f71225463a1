"""What the README shows, runs; what it links to, exists."""

import re
import shlex
from pathlib import Path

import pytest

from darn.cli import _parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_python_snippets_run(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert re.search(r"-log p 1\d\.\d+ ± \d", capsys.readouterr().out)  # between 10 and 20 nats: it has learned


def shell_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("darn ")]


@pytest.mark.parametrize("line", shell_lines())
def test_shell_lines_parse(line):
    words = shlex.split(line, comments=True)[1:]
    args, unknown = _parser().parse_known_args(words)
    assert args.command == words[0]
    assert unknown == []


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target):
    assert target.startswith("https://") or (ROOT / target).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs/paper_map.md").read_text()))))
def test_the_paper_map_names_tests_that_exist(name):
    assert (ROOT / "tests" / name).exists()
