"""The commands `compress`, `decompress`, `cat` and `inspect`."""

import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from darn.cli._base import Commands, add_delimiter, add_shard, counted, say, sharing, use_device
from darn.errors import DarnError
from darn.files import check_target, open_input


def compress(args) -> None:
    *model, source, target = _paths(args, "compress", with_model=not args.train)
    _check_output(target, source, *model)
    if args.shard is not None and (args.train or "-" in (source, target)):
        raise DarnError(
            "--shard is for a file and a model that is there already: leave out --train, and name the files"
        )
    use_device(args)
    from darn import codec
    from darn.data import open_source
    from darn.runs.run import load
    from darn.runs.shards import mark_of

    if args.train:
        made, inside, given, extra = _trained(args, source)
        return _compressed(args, codec.RowCodec(made), given, source, target, inside, extra)
    run = load(model[0])
    rows = codec.RowCodec(run.model)  # first: some models cannot compress, whatever the rows
    share = None if args.shard is None else args.shard.rows
    given = open_source(source, run.model.n_x, run.shape, args.split, run.schema, args.delimiter, share)
    with sharing(args, target, run.file, data=mark_of(source), split=args.split) as out:
        if out is not None:
            _compressed(args, rows, given, source, out, b"", {})


def _compressed(args, rows, given, source: str, target: str, inside: bytes, extra: dict) -> None:
    """Writes the file, and says what is in it."""
    from tqdm import tqdm

    from darn import codec
    from darn.data import unit_mask
    from darn.files import open_output

    held: list = []  # the first rows, to measure the cost of rounding

    def watched():
        for part in given.bits() if given.blocks is None else given.blocks():
            if not held:
                held.append((part if given.blocks is None else part[0])[:512])
            yield part

    began = time.monotonic()
    with (
        open_output(target) as f,
        tqdm(total=given.rows, desc="compressing", unit=" rows", disable=True if args.quiet else None) as bar,
    ):
        mask = unit_mask(given.notes)
        how = {"notes": given.notes, "model": inside, "mask": mask, "rest": given.cells, "progress": bar.update}
        found = rows.write(f, watched(), given.rows, **how)
    seconds = time.monotonic() - began
    cost = codec.rounding_cost(rows.model, rows.twin, held[0]) if held else 0.0
    facts = {
        **_facts(found),
        "rounding_cost_nats_a_row": cost,
        "seconds": round(seconds, 3),
        "rows_a_second": round(found.rows / seconds) if seconds else None,
        **extra,
        "out": target,
    }
    lines = [*_lines(target, found), f"  rounding   {cost:10.4f} nats per row, measured on the first rows"]
    if given.about:
        facts["read"] = given.about
        lines.append(f"  read       with {given.about}")
    if extra:
        lines.append(f"  trained    {extra['trained']}, weights in steps of 2^-{extra['grid']}")
        name, size = extra["general_compressor"]
        verdict = "which is smaller: use that" if size < found.size else "which is larger"
        lines.append(f"  instead    {name} takes {size:,} bytes, {verdict}")
    _say_beside(args, target, facts, *lines)


def _trained(args, source: str):
    """A model trained for these rows, its bytes, the rows, and facts to report about it."""
    import numpy as np

    from darn.data import open_source, own_schema
    from darn.runs import two_part

    schema = own_schema(source, args.delimiter) if args.split is None else None
    given = open_source(source, None, None, args.split, schema, args.delimiter)
    if not given.rows:
        raise DarnError(f"{source} has no rows to train on")
    plain = (np.packbits(part, axis=1).tobytes() for part in given.bits())
    groups = None
    if schema is not None:
        given.notes["table"]["inside"] = schema.to_json()
        groups, plain = schema.groups, iter([Path(source).read_bytes()])
    some = two_part.sample_of(given.bits(), given.rows, given.n)
    found = two_part.train_for(some, given.rows, groups=groups, progress=not args.quiet and sys.stderr.isatty())
    extra = {
        "trained": found.name,
        "grid": found.grid,
        "candidates": found.tried,
        "general_compressor": two_part.general(plain),
    }
    return found.model, found.inside, given, extra


def decompress(args) -> None:
    *model, source, target = _paths(args, "decompress", with_model=None)
    _check_output(target, source, *model)
    use_device(args)
    from tqdm import tqdm

    from darn import codec
    from darn.data import Schema, check_joint, check_restore, read_notes, restore, unit_mask
    from darn.runs.run import load

    with _open(source) as f:
        members = _members(f, source)
        head = members[0].open(f)
        columns = schema = None
        if model:
            run = load(model[0])
            made, columns, schema = run.model, run.columns, run.schema
        elif head.model:
            from darn.runs.two_part import unpack

            made, table = unpack(head.model), read_notes(head.notes).table
            if table is not None and table.inside is not None:
                schema = Schema.from_json(table.inside)
        else:
            raise DarnError(
                f"{source} does not contain its model: give the model first, as in "
                f"`darn decompress RUN {source} {target}`"
            )
        cells = []
        for i, member in enumerate(members):
            notes = member.open(f).notes
            cells.append(check_restore(target, notes, member.rows, head.n_x, schema))
            if i:
                check_joint(head.notes, notes)
        if args.keep_going and "images" in head.notes:
            raise DarnError("--keep-going is for tables: an image cannot be restored without all of its rows")
        total = sum(member.rows for member in members)
        rows, lost = codec.RowCodec(made), 0

        def read(**more):
            for member, rest in zip(members, cells):
                head = member.open(f)
                options = {"mask": unit_mask(head.notes), "rest": rest, "keep_going": args.keep_going}
                yield head.notes, rows.read(f, head, **options, **more)

        with tqdm(total=total, desc="decompressing", unit=" rows", disable=True if args.quiet else None) as bar:
            if args.keep_going:  # how many rows are left is known at the end only: once to count, once to write
                lost = total - sum(len(x) for _, blocks in read() for _, x in blocks)
            restore(target, read(progress=bar.update), total - lost, head.n_x, columns)
    facts = {"rows": total - lost, "lost": lost, "units": head.n_x, "out": target}
    left_out = f"; {lost:,} rows were damaged and are left out" if lost else ""
    _say_beside(args, target, facts, f"{counted(total - lost)} of {head.n_x:,} units in {target}{left_out}")


def cat(args) -> None:
    from darn.runs.joined import join

    rows, paths = join(args.files, args.out)
    facts = {"rows": rows, "files": len(paths), "bytes": os.path.getsize(args.out), "out": args.out}
    say(args, facts, f"{counted(rows)} of {counted(len(paths), 'file')} in {args.out}")


def inspect(args) -> None:
    from darn import codec
    from darn.data import read_notes

    with _open(args.file) as f:
        members = _members(f, args.file)
        f.seek(0)
        found = codec.inspect(f, verify=args.verify)
        notes, fingerprint = [], ""
        for member in members:
            head = member.open(f)
            fingerprint = head.fingerprint.hex()
            notes.append(read_notes(head.notes))
    images, tile = sum(len(n.images) for n in notes), notes[0].tile
    facts = _facts(found) | {"fingerprint": fingerprint, "images": images or None, "parts": len(members)}
    facts["verified"] = args.verify
    checked = "every block" if args.verify else "the header and the end, but not the rows: --verify checks every block"
    lines = [*_lines(args.file, found), f"  model      fingerprint {fingerprint}"]
    if len(members) > 1:
        lines.append(f"  parts      {len(members):,}, each a compressed file of its own")
    if tile:
        lines.append(f"  images     {images:,}, in tiles of {tile[0]} x {tile[1]}")
    say(args, facts, *lines, f"  checked    {checked}")


def _paths(args, name: str, with_model: bool | None) -> list[str]:
    paths = args.paths
    wanted = {True: (3,), False: (2,), None: (2, 3)}[with_model]
    if len(paths) not in wanted:
        usage = "IN OUT" if with_model is False else "RUN IN OUT" + ", or --train IN OUT" * (with_model is True)
        raise DarnError(f"give the paths {usage}, not {len(paths)} of them; `darn {name} --help` shows how")
    return paths


def _check_output(target: str, *inputs: str) -> None:
    if target == "-":
        if sys.stdout.isatty():
            raise DarnError("the output is binary: name a file, or redirect the output")
    elif not os.path.isdir(target) or Path(target).suffix:  # images are written into a folder
        check_target(target, *inputs)


def _open(path: str):
    if path == "-":
        held = tempfile.TemporaryFile()  # noqa: SIM115, closed by the caller
        shutil.copyfileobj(sys.stdin.buffer, held, 1 << 20)
        held.seek(0)
        return held
    return open_input(path)


def _members(f, path: str):
    from darn import codec

    try:
        return codec.read_members(f)
    except DarnError as e:
        raise DarnError(f"{path}: {e}") from e


def _say_beside(args, target: str, facts, *lines: str) -> None:
    """Prints to standard error if the output itself goes to standard output."""
    if target != "-":
        say(args, facts, *lines)


def _facts(found) -> dict:
    rows = max(found.rows, 1)
    per_row = lambda bits: bits * math.log(2) / rows  # noqa: E731
    return {
        "rows": found.rows,
        "units": found.n_x,
        "bytes": found.size,
        "bits_per_dim": 8 * found.size / (rows * found.n_x),
        "nats_a_row": per_row(8 * found.size),
        "model_asks_nats_a_row": per_row(found.ideal),
        "nats_a_row_by_layer": {
            "x_given_h": per_row(found.p[0]),
            **{f"h{l}": per_row(v) for l, v in enumerate(found.p[1:], 1)},
            **{f"bits_back_{k}": -per_row(v) for k, v in enumerate(found.q, 1)},
        },
        "overhead_bytes": found.overhead / 8,
        "rows_without_bits_back": found.first,
        "model_bytes": found.model,
        "head_bytes": found.head - found.model,
    }


def _lines(name: str, found):
    facts = _facts(found)
    yield f"{name}: {counted(found.rows)} of {found.n_x:,} units in {found.size:,} bytes"
    yield f"  per row    {facts['nats_a_row']:10.3f} nats, {facts['bits_per_dim']:.4f} bits per unit"
    yield f"  ideal      {facts['model_asks_nats_a_row']:10.3f} nats: the model's own length for the codes chosen"
    for part, value in facts["nats_a_row_by_layer"].items():
        yield f"    {part.replace('_', ' '):12} {value:10.3f}"
    first = f"; {counted(found.first)} coded without bits back" if found.q else ""
    yield f"  overhead   {facts['overhead_bytes']:10.1f} bytes, of which {facts['head_bytes']} are the header{first}"
    if found.model:
        yield f"  model      {found.model:10,} bytes inside"


def register(add: Commands) -> None:
    p = add.command(
        "compress",
        compress,
        "compress rows or bilevel images losslessly, to the model's own description length",
        "  darn compress runs/mushrooms my.npy my.drn\n  darn compress runs/pages scans/ scans.drn\n"
        "  darn compress --train my.csv my.drn\n  cat my.npy | darn compress runs/mushrooms - - > my.drn",
    )
    p.usage = "darn compress [options] RUN IN OUT\n       darn compress --train [options] IN OUT"
    p.add_argument("paths", nargs="+", metavar="RUN IN OUT", help="model, rows or images, output file; - for a pipe")
    p.add_argument("--split", choices=("train", "valid", "test"), help="which rows of a data set")
    add_delimiter(p)
    add_shard(p)
    p.add_argument("--train", action="store_true", help="train a model on these rows and store it inside the file")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    add.computing(p)

    p = add.command(
        "decompress",
        decompress,
        "restore the rows or images that were compressed, bit for bit",
        "  darn decompress runs/mushrooms my.drn my.npy\n  darn decompress runs/pages scans.drn scans/\n"
        "  darn decompress my.drn my.csv         (a file with its model inside)",
    )
    p.usage = "darn decompress [options] [RUN] IN OUT"
    p.add_argument(
        "paths", nargs="+", metavar="[RUN] IN OUT", help="model (unless it is inside the file), file, output"
    )
    p.add_argument("--keep-going", action="store_true", help="leave out rows whose block is damaged")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    add.computing(p)

    p = add.command(
        "cat",
        cat,
        "join compressed files of one model, or scores and samples, into one file",
        "  darn cat a.drn b.drn --out all.drn\n  darn cat scores-*-of-00008.npy --out scores.npy",
    )
    p.add_argument(
        "files", nargs="+", metavar="FILE", help=".drn, .npy, .csv or .tsv; the shards of one output in any order"
    )
    p.add_argument("--out", required=True, metavar="FILE", help="the file to write, of the same kind")

    p = add.command("inspect", inspect, "where the bytes of a compressed file go", "  darn inspect my.drn")
    p.add_argument("file", metavar="FILE", help="a file that `darn compress` wrote")
    p.add_argument("--verify", action="store_true", help="check the checksum of every block")
