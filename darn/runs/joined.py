"""Files of one kind joined to one: compressed rows of one model, arrays of one width, tables with one header."""

import shutil
from pathlib import Path

import numpy as np

from darn import codec, data
from darn.errors import DarnError
from darn.files import atomic, check_suffix, check_target, open_input
from darn.runs.shards import in_order

KINDS = (".drn", ".npy", ".csv", ".tsv")


def join(paths: list[str], out: str) -> tuple[int, list[str]]:
    """Writes the rows of several files, one after the other, as one file.

    Args:
        paths: .drn, .npy, .csv or .tsv files; shards of one output are put in order, and all of them must be there.
        out: the file to write, of the same kind.

    Returns:
        (rows, the paths in order).

    Raises:
        DarnError: The files do not fit together, or one of them is damaged.
    """
    suffix = Path(out).suffix.lower()
    check_suffix(out, KINDS)
    for path in paths:
        if Path(path).suffix.lower() != suffix:
            raise DarnError(f"{path} is not a {suffix} file, but {out} is to be one: join files of one kind")
    paths = in_order(paths)
    check_target(out, *paths)
    with atomic(out) as temporary:
        write = {".drn": _compressed, ".npy": _arrays, ".csv": _tables, ".tsv": _tables}[suffix]
        return write(paths, temporary), paths


def _compressed(paths: list[str], out: Path) -> int:
    """Every block is compared with its checksum on the way."""
    first, rows = None, 0
    names: list[dict] = []
    with open(out, "wb") as target:
        for path in paths:
            with open_input(path) as f:
                try:
                    members = codec.read_members(f, check=codec.check_block)
                except DarnError as e:
                    raise DarnError(f"{path}: {e}") from e
                for member in members:
                    head = member.open(f)
                    own = head.fingerprint, head.n_x, head.model
                    if first is not None and first != own:
                        raise DarnError(f"{path} was compressed with another model than {paths[0]}: join files of one")
                    first = own
                    for before in names:
                        data.check_joint(before, head.notes)
                    if not names or "images" in head.notes:
                        names.append({k: head.notes[k] for k in head.notes if k != "lines"})
                    rows += member.rows
                f.seek(0)
                shutil.copyfileobj(f, target, 1 << 20)
    return rows


def _arrays(paths: list[str], out: Path) -> int:
    maps = [data.map_array(Path(path)) for path in paths]
    kinds = {(m.dtype.str, m.shape[1:]) for m in maps}
    if len(kinds) > 1 or not maps[0].ndim:
        raise DarnError("the arrays have different types or widths: join arrays of one kind")
    rows = sum(len(m) for m in maps)
    with data.open_table(str(out), rows, []) as write:
        for m in maps:
            step = max((1 << 22) // max(m.nbytes // max(len(m), 1), 1), 1)
            for start in range(0, max(len(m), 1), step):
                write(np.array(m[start : start + step]))
    return rows


def _tables(paths: list[str], out: Path) -> int:
    """Below the first file's header, the text of all rows as it is."""
    rows, top = 0, None
    with open(out, "wb") as target:
        for path in paths:
            table = data.open_table_parts(path, path)
            layout = table.layout
            if top is None:
                top = layout.head
                target.write((b"\xef\xbb\xbf" if layout.bom else b"") + top.encode())
            elif layout.head.rstrip() != top.rstrip():
                raise DarnError(f"{path} has another header than {paths[0]}: join tables with the same columns")
            rows, piece = rows + table.count(), b""
            with open_input(path) as f:
                f.seek(3 * layout.bom + len(layout.head.encode()))
                while more := f.read(1 << 20):
                    target.write(more)
                    piece = more
            if piece and not piece.endswith((b"\n", b"\r")):  # the last line of a file may have no end
                target.write(layout.newline.encode())
    return rows
