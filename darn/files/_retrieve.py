"""Downloads, limited in size and time."""

import time
from pathlib import Path

SILENCE = 60  # seconds without an answer
LONGEST = 3600  # seconds from the first byte to the last


def retrieve(url: str, path: Path, most: int) -> Path:
    """Writes what an https address sends to `path`.

    Args:
        url: of the file. Redirects are followed to other https addresses.
        path: to be written; not whole after an error.
        most: bytes that the file may have.

    Returns:
        The path.

    Raises:
        OSError: No answer, more bytes, a redirect away from https, or an answer that takes more than an hour.
    """
    import urllib.request

    with urllib.request.urlopen(url, timeout=SILENCE) as answer, open(path, "wb") as out:
        if answer.url != url and not answer.url.startswith("https://"):
            raise OSError("redirected to an address that is not https")
        size, began = 0, time.monotonic()
        while piece := answer.read1(1 << 20):  # whatever has come: a server may send one byte a minute
            size += len(piece)
            if size > most:
                raise OSError(f"it is larger than {most >> 20} MiB")
            if time.monotonic() - began > LONGEST:
                raise OSError(f"it takes longer than {LONGEST // 60} minutes")
            out.write(piece)
        if answer.length:
            raise OSError("the connection broke off")
    return path
