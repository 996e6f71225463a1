"""Random tables through every command: data, train, sample, complete, eval, compress, decompress, query, encode,
evaluate-synthetic, report; the same from Parquet, and as frames through `TableDARN`.

Known cells come back character for character and compressed files byte for byte, or a command refuses in one sentence
and leaves nothing behind.
"""

import contextlib
import csv
import io
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from darn import TableDARN
from darn.cli import main
from darn.data import read_table
from darn.errors import DarnError
from fuzz.drive import SilentChange, clock
from fuzz.mutate import Rng

NAMES = [
    "a",
    "b",
    "Größe",
    "a,b",
    'say "x"',
    "=",
    "a=number",
    " blank ",
    "x\ny",
    "log_p",
    "-n",
    "名",
    "é",
    "#",
    "c'd",
    "1a",
]
WORDS = [
    "cat",
    "dog",
    " dog",
    "Größe",
    'say "hi"',
    "a,b",
    "a;b",
    "x\ny",
    "",
    " ",
    "?",
    "NA",
    "#1",
    "'",
    "😀",
    "\\n",
    "1",
]
ROWS = [1, 10, 11, 25, 25, 60, 60, 60, 150, 150]
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")


def pick(rng: Rng, values, n: int) -> list[str]:
    return [str(values[int(i)]) for i in rng.integers(len(values), size=n)]


def _dates(rng: Rng, n: int) -> list[str]:
    days = np.datetime64("1999-12-01") + rng.integers(0, 3000, n)
    form = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%dT%H:%M:%S")[int(rng.integers(4))]
    return [day.item().strftime(form) for day in days]


WORDED = ["%d %b %Y", "%-d %B %Y", "%b %-d, %Y", "%d-%b-%y", "%B %d, %Y"]
CLOCKED = ["%m/%d/%y %-I:%M %p", "%Y/%m/%d %H:%M", "%-d.%-m.%Y %H:%M:%S", "%I:%M:%S %p", "%Y%m%d %H:%M"]
STRAYS = ["-", "inf", "#N/A", "unknown"]
ARABIC = {ord("0") + i: 0x660 + i for i in range(10)}


def _formatted(rng: Rng, n: int, forms: list[str]) -> list[str]:
    form = pick(rng, forms, 1)[0]
    return [moment.item().strftime(form) for moment in _moments(rng, n, "s")]


def _moments(rng: Rng, n: int, unit: str) -> np.ndarray:
    return np.datetime64("1969-12-30T00:00:00", unit) + rng.integers(0, 10**10, n)


def _numbers(rng: Rng, n: int) -> list[str]:
    before, after = pick(rng, ["", "0", "+", "-", " "], n), pick(rng, ["", ".0", "e0", " "], n)
    return [f"{a}{v}{b}" for a, v, b in zip(before, rng.integers(0, 99, n), after)]


# name: (rng, rows) -> the texts of a column
COLUMNS = {
    "words": lambda rng, n: pick(rng, WORDS, n),
    "few words": lambda rng, n: pick(rng, pick(rng, WORDS, 3), n),
    "many words": lambda rng, n: [f"w{int(v)}" for v in rng.gamma(0.5, 4000, n)],
    "texts": lambda rng, n: [" ".join(pick(rng, WORDS, 5)) for _ in range(n)],
    "bits": lambda rng, n: pick(rng, ["0", "1"], n),
    "truth": lambda rng, n: pick(rng, ["true", "False", ""], n),
    "constant": lambda rng, n: pick(rng, WORDS, 1) * n,
    "empty": lambda rng, n: [""] * n,
    "one number": lambda rng, n: [str(rng.integers(-5, 5))] * n,
    "counts": lambda rng, n: [str(v) for v in rng.poisson(80, n)],
    "mostly 0": lambda rng, n: [str(v) for v in np.where(rng.random(n) < 0.8, 0, rng.integers(-999, 99999, n))],
    "decimals": lambda rng, n: [f"{v:.2f}" for v in rng.normal(0, 30, n)],
    "all digits": lambda rng, n: [repr(float(v)) for v in rng.standard_cauchy(n)],
    "exponents": lambda rng, n: [f"{v:.3e}" for v in rng.lognormal(0, 40, n)],
    "extreme": lambda rng, n: pick(rng, ["1e308", "-1e-308", "5e-324", "9" * 40, "0", "-0.0", "1e99", "inf", "0.1"], n),
    "large whole": lambda rng, n: [str(int(v)) + "0" * int(rng.integers(30)) for v in rng.integers(1, 10**9, n)],
    "in many ways": _numbers,
    "dates": _dates,
    "times": lambda rng, n: [f"{v // 60 % 24:02}:{v % 60:02}" for v in rng.integers(0, 1440, n)],
    "odd dates": lambda rng, n: pick(rng, ["2014-02-30", "2014-1-1", "2014-01-01", "0001-01-01", "9999-12-31"], n),
    "zones": lambda rng, n: [
        f"{moment}{zone}" for moment, zone in zip(_moments(rng, n, "s"), pick(rng, ["Z", "+01:00", "-0530"], n))
    ],
    "milliseconds": lambda rng, n: [f"{m}Z".replace("T", " ") for m in _moments(rng, n, "ms")],
    "dates in words": lambda rng, n: _formatted(rng, n, WORDED),
    "moments": lambda rng, n: _formatted(rng, n, CLOCKED),
    "eight digits": lambda rng, n: _formatted(rng, n, ["%Y%m%d"]),
    "signed": lambda rng, n: [f"{v:+}" for v in rng.integers(-50, 50, n)],
    "in parentheses": lambda rng, n: [f"({-v:,})" if v < 0 else f"{v:,}" for v in rng.integers(-5000, 5000, n)],
    "owed dollars": lambda rng, n: [f"(${-v:,.2f})" if v < 0 else f"${v:,.2f}" for v in rng.normal(0, 2000, n)],
    "huge amounts": lambda rng, n: ["$" + "9" * int(d) for d in rng.integers(1, rng.choice([20, 400, 6000]), n)],
    "other digits": lambda rng, n: [str(v).translate(ARABIC) for v in rng.integers(0, 10**4, n)],
    "words among numbers": lambda rng, n: [
        pick(rng, STRAYS, 1)[0] if rng.random() < 0.1 else str(v) for v in rng.integers(0, 10**4, n)
    ],
    "percent": lambda rng, n: [f"{v:.1f}%" for v in rng.normal(0, 30, n)],
    "dollars": lambda rng, n: [f"${v:,.2f}" for v in rng.lognormal(6, 3, n)],
    "decimal commas": lambda rng, n: [f"{v:.3f}".replace(".", ",") for v in rng.normal(0, 3, n)],
    "grouped": lambda rng, n: [f"{v:,}".replace(",", " ") for v in rng.integers(-(10**7), 10**7, n)],
    "beyond 2^53": lambda rng, n: [str(2**60 + int(v)) for v in rng.integers(0, 10**6, n)],
    "yes and no": lambda rng, n: pick(rng, ["Yes", "no", "NO"][: int(rng.integers(2, 4))], n),
    "long": lambda rng, n: ["x" * (200_000 if rng.random() < 0.02 else 3) + str(v) for v in rng.integers(9, size=n)],
    "NUL": lambda rng, n: pick(rng, ["a", "b\tc", "d\u2028e", "\x1b[31m"], n),
    "row numbers": lambda rng, n: [str(i + 1) for i in range(n)],
    "ids": lambda rng, n: [f"{v:032x}" for v in rng.integers(1 << 62, size=n)],
}


def table(rng: Rng) -> tuple[list[str], list[list[str]]]:
    """(column names, rows)."""
    kinds = pick(rng, list(COLUMNS), int(rng.integers(1, 5))) + ["bits"] * (rng.random() < 0.8)
    n = int(ROWS[int(rng.integers(len(ROWS)))])
    columns = [COLUMNS[kind](rng, n) for kind in kinds]
    for column in columns:
        if rng.random() < 0.3:
            for i in np.flatnonzero(rng.random(n) < 0.2):
                column[i] = pick(rng, ["", "NA", "?", "nan", " "], 1)[0]
    unlike = rng.choice(len(NAMES), len(kinds), replace=False)
    names = [NAMES[i] for i in unlike] if rng.random() < 0.97 else ["twice"] * len(kinds)
    return names, [list(row) for row in zip(*columns)]


def write(rng: Rng, path: Path, names: list[str], rows: list[list[str]], way: dict) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, **way).writerows([names, *rows])
    path.write_bytes((b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + text.getvalue().encode())


def numbered(names: list[str]) -> list[str]:
    """The names of a table's columns as darn writes them: repeated ones by number."""
    names = [n.strip() for n in names]
    return [f"{n} (column {j})" if n in names[: j - 1] else n for j, n in enumerate(names, 1)]


def changed(rng: Rng, rows: list[list[str]], some: list[str], share: float) -> list[list[str]]:
    return [[pick(rng, some, 1)[0] if rng.random() < share else cell for cell in row] for row in rows]


class Tables:
    """One random table, or two, through every command."""

    def __init__(self, folder: Path):
        self.refusals: list[str] = []
        self.said = ""  # on standard output, by the last command

    def __call__(self, rng: Rng, folder: Path) -> str:
        home = folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        names, rows = table(rng)
        way: dict = {"delimiter": pick(rng, [",", ";", "\t"], 1)[0], "lineterminator": pick(rng, ["\n", "\r\n"], 1)[0]}
        way["quoting"] = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC][int(rng.integers(3))]
        given, run = home / "t.csv", home / "run"
        write(rng, given, names, rows, way)
        self.run(home, home / "none", "data", given, "--categorical", "auto")
        how = ["--delimiter", "tab" if way["delimiter"] == "\t" else way["delimiter"]]
        deep = ["--n_h", "4" if rng.random() < 0.2 else ""]
        quick = ["--tiny", "--epochs", "1", "--quiet", *deep]
        if not self.run(home, run, "train", given, "--categorical", "auto", *how, *quick, "--out", run):
            return "refused"
        self.sampled(home, run, names, way)
        self.completed(rng, home, run, names, rows, way, how)
        self.scored(home, run, given, way)
        self.compressed(home, run, given, how)
        self.asked(rng, home, run, names, rows)
        self.run(home, home / "codes.npy", "encode", run, given, *how, "--out", home / "codes.npy")
        self.framed(rng, home, run, way)
        self.from_parquet(rng, home, run, names, rows)
        if rng.random() < 0.2:
            self.judged(home, run, given)
        other = home / "other.csv"
        some = changed(rng, rows, [*WORDS, "7", "-1e9", "0.125", "2031-01-01"], 0.3)
        write(rng, other, names, some[: 1 if rng.random() < 0.3 else None], way)
        self.compressed(home, run, other, how)
        return "same"

    def run(self, home: Path, out: Path, *argv) -> bool:
        """Whether a command has done its work; if not, it has said why in one sentence and left nothing."""
        clock.command()
        before, err, out_text = self.files(home), io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out_text):
            status = main([str(a) for a in argv])
        self.said = out_text.getvalue()
        assert status in (0, 2), f"{argv[0]} ended with {status}"
        beside = self.files(home) - before - {out}
        if beside := {p for p in beside if out not in p.parents}:
            raise SilentChange(f"{argv[0]} left {sorted(p.name for p in beside)}")
        if status == 2:
            said = err.getvalue().strip().splitlines()[-1]
            assert said.startswith("darn: "), f"{argv[0]} said {said[:200]!r}"
            assert len(said) < 1000, f"{argv[0]} said {len(said)} characters"
            if out.exists():
                raise SilentChange(f"{argv[0]} refused, but left {out.name}")
            self.refusals.append(f"{argv[0]}: {said}")
        return status == 0

    def files(self, home: Path) -> set[Path]:
        return set(home.rglob("*"))

    def sampled(self, home: Path, run: Path, names: list[str], way) -> None:
        out = home / "new.csv"
        assert self.run(home, out, "sample", run, "-n", 5, "--out", out), self.refusals[-1]
        found = list(csv.reader(io.StringIO(out.read_text(), newline=""), delimiter=way["delimiter"]))
        assert found[0] == numbered(names), "the names are not those of the table"
        assert len(found) == 6

    def completed(self, rng: Rng, home: Path, run: Path, names, rows, way, how) -> None:
        holed, out = home / "holed.csv", home / "filled.csv"
        blank = changed(rng, rows, [""], 0.2)
        write(rng, holed, names, blank, way)
        if not self.run(home, out, "complete", run, holed, *how, "--out", out):
            return
        found = read_table(out, delimiter=way["delimiter"])
        seen = read_table(holed, delimiter=way["delimiter"])
        self.compared(seen.cells, found.cells, "complete")

    def scored(self, home: Path, run: Path, given: Path, way) -> None:
        out = home / "scores.csv"
        assert self.run(home, out, "eval", run, given, "--per-row", out), self.refusals[-1]
        values = [float(line.split(",")[-1]) for line in out.read_text().splitlines()[1:]]
        assert len(values) == len(read_table(given, delimiter=way["delimiter"]))
        assert all(map(math.isfinite, values)), "a row has no finite score"

    def compressed(self, home: Path, run: Path, given: Path, how) -> None:
        packed, back = home / "t.drn", home / "back.csv"
        assert self.run(home, packed, "compress", run, given, packed, "--quiet", *how), self.refusals[-1]
        assert self.run(home, back, "decompress", run, packed, back, "--quiet"), self.refusals[-1]
        if back.read_bytes() != given.read_bytes():
            raise SilentChange("a compressed table came back as another")
        packed.unlink()
        back.unlink()

    def asked(self, rng: Rng, home: Path, run: Path, names, rows) -> None:
        quoted = lambda text: '"' + text.strip().replace('"', '""') + '"'  # noqa: E731
        j, k = (int(v) for v in rng.integers(len(names), size=2))
        row = rows[int(rng.integers(len(rows)))]
        given = f"{quoted(names[k])}={quoted(row[k])}"
        questions = [f"P({quoted(names[j])})", f"P({quoted(names[j])}={quoted(row[j])} | {given})"]
        for question in [*questions, f"E({quoted(names[j])})"]:
            if self.run(home, home / "none", "query", run, question, "--samples", 500, "--json"):
                told = json.loads(self.said)
                result = told["result"]
                if told["kind"] == "probability" and not 0 <= result["value"] <= 1:
                    raise SilentChange(f"a probability of {result['value']}")

    def framed(self, rng: Rng, home: Path, run: Path, way) -> None:
        """The table with holes as a frame of texts, with an index where there is one."""
        seen = read_table(home / "holed.csv", delimiter=way["delimiter"])
        model = TableDARN.load(run).set_params(n_samples=10)
        make = pd.DataFrame if rng.random() < 0.5 else pl.DataFrame
        frame = make({name: seen.cells[:, j].tolist() for j, name in enumerate(seen.names)})
        try:
            filled = model.complete(frame, random_state=0)
        except DarnError as e:
            self.refusals.append(f"TableDARN: {e}")
        else:
            self.compared(
                seen.cells, np.array([filled[n].to_numpy() for n in seen.names], object).T, "TableDARN.complete"
            )
        assert list(model.sample(5, random_state=0).columns) == list(seen.names)

    def compared(self, before: np.ndarray, after: np.ndarray, what: str) -> None:
        same = [a == b for a, b in zip(before.ravel(), after.ravel()) if a.strip().lower() not in MISSING]
        if before.shape != after.shape or not all(same):
            raise SilentChange(f"{what} changed a cell that was given")

    def from_parquet(self, rng: Rng, home: Path, run: Path, names, rows) -> None:
        """The same rows, some cells being null."""
        given, out = home / "t.parquet", home / "from.csv"
        cells = [[None if rng.random() < 0.1 else cell for cell in row] for row in rows]
        columns = {n: pl.Series([row[j] for row in cells], dtype=pl.String) for j, n in enumerate(numbered(names))}
        pl.DataFrame(columns).write_parquet(given)
        if self.run(home, out, "complete", run, given, "--out", out):
            self.compared(read_table(given).cells, read_table(out, delimiter=",").cells, "complete, from Parquet,")
            out.unlink()
        packed, back = home / "t.drn", home / "back.csv"
        assert self.run(home, packed, "compress", run, given, packed, "--quiet"), self.refusals[-1]
        assert self.run(home, back, "decompress", run, packed, back, "--quiet"), self.refusals[-1]
        if read_table(back, delimiter=",").cells.tolist() != read_table(given).cells.tolist():
            raise SilentChange("a compressed Parquet table came back as another")
        packed.unlink()
        back.unlink()

    def judged(self, home: Path, run: Path, given: Path) -> None:
        self.run(home, home / "none", "evaluate-synthetic", given, home / "new.csv", "--rows", 100)
        self.run(home, home / "page.html", "report", run, "--out", home / "page.html")
