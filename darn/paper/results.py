"""results/<table>/<row>.json: what a record holds, reading and writing it."""

import json
from pathlib import Path

from darn.files import atomic, read_record
from darn.paper import atari
from darn.paper.rows import PAPER, Row

ROWS: tuple[Row, ...] = (*PAPER, *atari.ROWS)  # of every table and figure

KEYS = (
    "row",
    "paper",
    "dataset",
    "dataset_sha256",
    "split",
    "method",
    "nll",
    "nll_ci95",
    "ess",
    "n_samples",
    "repeats",
    "bound",
    "quick",
    "parameters",
    "seconds_train",
    "seconds_eval",
    "device",
    "versions",
    "seed",
    "commit",
    "command",
    "model",
)


def path_of(results: Path, row: Row) -> Path:
    return results / row.table / f"{row.name}.json"


def model_of(results: Path, row: Row) -> Path:
    return results / "models" / f"{row.name}.safetensors"


def read(results: Path) -> dict[str, dict]:
    """Every row that we have, by name."""
    return {row.name: read_record(p) for row in ROWS if (p := path_of(results, row)).exists()}


def read_all(results: Path) -> dict[str, dict]:
    """The rows by name, and the counted costs of sampling as "costs", if there are any."""
    costs = results / "costs" / "costs.json"
    return read(results) | ({"costs": read_record(costs)} if costs.exists() else {})


def write(path: Path, record: dict) -> None:
    """Writes a record atomically."""
    with atomic(path) as f:
        f.write_text(json.dumps(record, indent=1) + "\n")


def lacking(record: dict) -> list[str]:
    """The keys that a record should have and does not."""
    return [k for k in KEYS if k not in record]


def quick_of(model: str | Path) -> dict | None:
    """The stored quick figure of a committed model: from the row's file beside results/models."""
    model = Path(model).absolute()
    for row in ROWS:
        path = path_of(model.parent.parent, row)
        if row.name == model.stem and model.parent.name == "models" and path.exists():
            return read_record(path).get("quick")
    return None


def quick_line(nll: float, nll_ci95: float, stored: dict) -> str:
    """How a quick figure compares with the stored one."""
    gap = nll - stored["nll"]
    same = "reproduced" if abs(gap) <= max(nll_ci95 + stored["nll_ci95"], 1e-3) else "NOT reproduced"
    return f"  stored   {stored['nll']:10.3f} nats  {same}: {gap:+.4f}"
