"""Tables of the measurements of `benchmarks/`: compressed sizes beside the bound and other compressors, and speed."""

from pathlib import Path

from darn.files import read_record

Table = list[list[str]]  # the header first


def _records(results: Path, pattern: str) -> dict[str, dict]:
    return {p.stem: read_record(p) for p in sorted((results / "bench").glob(pattern))}


def codec(results: Path) -> Table:
    """Compressed test rows: bytes of the whole file, and nats a row beside the model's bound and other compressors."""
    table = [["of", "rows", "bytes", "nats a row", "the bound", "over it", "xz -9e", "best other", "rows/s in, out"]]
    for name, r in _records(results, "codec-sizes-*.json").items():
        others = {k: o["nats_a_row"] for k, o in r["others"].items() if isinstance(o, dict) and "nats_a_row" in o}
        best = min(others, key=lambda k: others[k])
        table.append(
            [
                name.removeprefix("codec-sizes-"),
                f"{r['rows']:,}",
                f"{r['bytes']:,}",
                f"{r['nats_a_row']:.2f}",
                f"{r['bound_nats_a_row']:.2f}",
                f"{r['over_the_bound_bytes']:.0f} bytes, {r['over_the_bound_percent']:.2f}%",
                f"{others['xz -9e']:.2f}",
                f"{others[best]:.2f} {best}",
                " / ".join(f"{r['rows_a_second'][way]:,.0f}" for way in ("encode", "decode")),
            ]
        )
    return table


def speed(results: Path) -> Table:
    """The speed of straightforward alternatives, and how many times faster darn is in the same run."""
    table = [["what", "on", "instead of darn", "its rate", "darn's", "times faster"]]
    for kind in ("training", "sampling"):
        for r in _records(results, f"*-{kind}.json").values():
            cpu = r["device"]["backend"] == "cpu"
            device = f"{r['threads']['usable']} CPU cores" if cpu else r["device"]["kind"]
            for row in r["rows"]:
                rate = row["ways"][row["ours"]]["rate"]
                for name, way in row["ways"].items():
                    if name != row["ours"] and not name.startswith("("):  # in brackets: ours, in part
                        times = f"{way['ours_is_times_faster']:.3g}"
                        rates = [f"{v:,.0f} {row['unit']}" for v in (way["rate"], rate)]
                        table.append([row["name"], device, name, *rates, times])
    return table


TABLES = {"codec": codec, "speed": speed}
