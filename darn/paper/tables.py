"""Tables of the paper's figures and ours, as text for a terminal and as Markdown for documents."""

from darn.paper.recipes import RECIPES
from darn.paper.rows import NOT_AT_HAND, OURS, PAPER, UCI, Row

NOT_RUN, NO_DATA, QUOTED = "not yet run", "data not at hand", "not ours"
AS_ABOVE = "as above"  # in "DARN, ours": no other architecture had a lower validation bound than the paper's


def figure(record: dict, key: str = "nll") -> str:
    """A figure of ours: an estimate with its half-width, an exact one without."""
    value = record.get(key)
    if value is None:
        return "-"
    half = record.get("nll_ci95") if key == "nll" else None
    return f"{value:.2f}" + (f" ± {half:.3f}" if half and half >= 5e-4 else " ± <0.001" if half else "")


def ours(row: Row, found: dict[str, dict], key: str = "nll") -> str:
    """Our figure of a row, or why there is none."""
    if row.name in found:
        return figure(found[row.name], key)
    if row.how == "quoted":
        return QUOTED
    if row.method == OURS and row.name not in RECIPES and row.data in found:
        return AS_ABOVE
    return NO_DATA if row.data in NOT_AT_HAND else NOT_RUN


def papers(row: Row, key: str = "nll") -> str:
    """The paper's figure of a row, as printed there."""
    value = getattr(row, key)
    if value is None:
        return "-"
    half = row.nll_ci95 if key == "nll" else None
    about = "≈ " if row.about else ""
    return f"{about}{value:.{row.decimals}f}" + ("" if half is None else f" ± {half:g}")


def grid(table: str, found: dict[str, dict]) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of a table as text."""
    rows = [r for r in PAPER if r.table == table]
    if table == "table1":
        header = ["model", "", *UCI]
        body = []
        for method in dict.fromkeys(r.method for r in rows):
            by_set = {r.data: r for r in rows if r.method == method}
            if method != OURS:
                body.append([method, "paper", *(papers(by_set[s]) for s in UCI)])
            body.append([method, "darn", *(ours(by_set[s], found) for s in UCI)])
        return header, body
    header = ["model", "paper -log p", "paper bound", "darn -log p", "darn bound"]
    body = []
    for r in rows:
        bound = ours(r, found, "bound") if r.name in found and _has_code(found[r.name]) else "-"
        body.append([r.method, papers(r), papers(r, "bound"), ours(r, found), bound])
    return header, body


def _has_code(record: dict) -> bool:
    """Whether the model has hidden units: without them the bound is -log p itself."""
    return bool(record.get("recipe", {}).get("architecture", {}).get("n_h", True))


def lines(table: str, found: dict[str, dict]) -> list[str]:
    """A table for the terminal."""
    header, body = grid(table, found)
    short = {NOT_RUN: "-", NO_DATA: "no data"} if table == "table1" else {}
    body = [[short.get(c, c) for c in r] for r in body]
    note = [f"-: {NOT_RUN}; no data: {NO_DATA} (RCV1)"] if short else []
    return [
        *as_text(header, *body),
        "",
        "test rows, nats; ± 95% of the estimate's own noise",
        *note,
        *times(table, found),
    ]


def times(table: str, found: dict[str, dict]) -> list[str]:
    """The time that training and scoring a table's rows took, by device; no line without rows."""
    records = [found[r.name] for r in PAPER if r.table == table and "device" in found.get(r.name, {})]
    minutes: dict[str, float] = {}
    for r in records:
        trained_on = r.get("training", {}).get("made", r)["device"]  # "made": of a model that was already there
        for device, seconds in ((trained_on, r.get("seconds_train")), (r["device"], r.get("seconds_eval"))):
            minutes[device] = minutes.get(device, 0) + (seconds or 0) / 60
    parts = " and ".join(f"{spent:.1f} min on {device}" for device, spent in sorted(minutes.items()))
    return [f"{len(records)} row{'s' if len(records) > 1 else ''} trained and scored in {parts}"] if records else []


def markdown(table: str, found: dict[str, dict], *, only_ours: bool = False) -> str:
    """The same table in Markdown; `only_ours` leaves out rows without a figure of ours."""
    header, body = grid(table, found)
    if only_ours:
        empty = (NOT_RUN, QUOTED, NO_DATA, AS_ABOVE, "-")
        body = [r for r in body if any(c not in empty for c in (r[2:] if table == "table1" else r[3:]))]
        if table == "table1":  # the paper's line of a method goes with ours
            have = {r[0] for r in body if r[1] == "darn"}
            body = [r for r in body if r[0] in have]
    return as_markdown(header, *body)


def as_text(*rows: list[str]) -> list[str]:
    """Rows in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
        for r in rows
    ]


def as_markdown(header: list[str], *body: list[str]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(r) + " |" for r in [header, rule, *body])
