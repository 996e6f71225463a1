"""Packing files into one set, behind `darn data pack`."""

from darn.cli._base import BAR, check_seed, given_fields, say
from darn.errors import DarnError

TABLE = ("categorical", "column", "drop", "weights", "delimiter")  # fields that are about a table


def pack(args) -> None:
    from darn import data

    if not args.files or args.out is None:
        raise DarnError("say what to pack and where to: `darn data pack FILE... --out FOLDER`")
    check_seed(args)
    given = given_fields(args)
    how = {"binarize": args.binarize, "threshold": args.threshold, "seed": args.seed or 0, "labels": args.labels}
    how["columns"] = data.Columns(**{name: given[name] for name in TABLE if name in given})
    if args.like is not None:
        if given.keys() - {"delimiter"} or args.binarize or args.labels:
            raise DarnError("with --like, rows are read as the model reads them: leave the other options out")
        from darn.runs.run import load

        how = load(args.like).how(given.get("delimiter"))
    from tqdm import tqdm

    with tqdm(**BAR, desc="packing") as bar:

        def progress(total: int):
            bar.reset(total)
            return bar.update

        found = data.pack_files(args.files, args.out, **how, progress=progress)
    rows: dict[str, int] = {}
    for part in found.parts:
        rows[part.split] = rows.get(part.split, 0) + part.rows
    size = sum(rows.values()) * found.record.itemsize
    facts = {"out": args.out, "rows": rows, "columns": found.n, "bytes": size, "parts": len(found.parts)}
    facts |= {"binarize": found.binarize, "shape": found.shape, "classes": found.classes}
    held = f" ({', '.join(f'{n:,} {s}' for s, n in rows.items())})" if len(rows) > 1 else ""
    say(args, facts, f"{sum(rows.values()):,} rows{held} of {found.n} columns, {size:,} bytes, are in {args.out}")
