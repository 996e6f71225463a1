"""Compressed files joined end to end: each is a member of the whole file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from darn.codec._container import MAGIC, Block, End, Head, read_blocks, read_head
from darn.errors import DarnError


@dataclass(frozen=True)
class Member:
    """A part of a file that could be a file of its own. Its header, which may be large, is read when it is needed."""

    rows: int
    begin: int  # position of its header in the file
    start: int  # of its blocks
    stop: int  # of whatever follows it
    model: int  # bytes of the model inside
    end: End

    def open(self, file: BinaryIO) -> Head:
        """Reads its header; the file is then just before its blocks."""
        file.seek(self.begin)
        return read_head(file)


def read_members(file: BinaryIO, *, check: Callable[[Block], object] | None = None) -> list[Member]:
    """The members of a file, found without decoding any rows.

    Args:
        file: open for reading bytes at its beginning; it is left at its end.
        check: called with every block, which is then read; by default they are passed over.
    """
    members: list[Member] = []
    kind = None
    while True:
        begin = file.tell()
        if members:
            following = file.read(len(MAGIC))
            if not following:
                return members
            if following != MAGIC:
                raise DarnError(
                    "there are extra bytes after the end of the compressed rows: get another copy of the file"
                )
            file.seek(begin)
        head = read_head(file)
        start, end = file.tell(), None
        for part in read_blocks(file, head, skip=check is None):
            if isinstance(part, End):
                end = part
            elif check is not None:
                check(part)
        assert end is not None  # `read_blocks` ends with it, or raises
        members.append(Member(head.rows, begin, start, file.tell(), len(head.model), end))
        own = head.fingerprint, head.n_x, head.model, len(end.q)
        if kind not in (None, own):
            raise DarnError("the file has parts of different models, which darn never writes: get another copy of it")
        kind = own
