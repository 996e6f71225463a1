"""The cache of compiled programs: what one process has compiled, the next one loads."""

import hashlib
import os
import platform
import stat
import tempfile
import warnings
from pathlib import Path

LIMIT = 1 << 28  # bytes; a program takes 10 to 200 kB, a command 1 to 40 programs


def use_cache(folder: str | Path | None = None) -> Path | None:
    """Makes JAX keep its compiled programs on disk, for this process and later ones.

    If JAX already has a cache (`jax_compilation_cache_dir`), it stays as it is. A cache that cannot be read or written
    is as good as none. Whoever can write to the folder can run code in your processes: one that others can write to is
    not used.

    Args:
        folder: where; by default the environment variable DARN_CACHE, or `compiled` in the user's cache folder. "off"
            for no cache.

    Returns:
        The folder in use, or None if there is none.
    """
    import jax

    if jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return Path(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]
    given = folder or os.environ.get("DARN_CACHE")
    if str(given) == "off":
        return None
    try:
        folder = (Path(given).expanduser() if given else _default()) / _machine()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return None
        tempfile.TemporaryFile(dir=folder).close()
        shrink(folder, LIMIT)
    except (OSError, RuntimeError):  # a read-only home or none, a full disk
        return None
    # JAX says so if an entry cannot be read (cut short by a full disk) or written; then the program is compiled.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache", append=False)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user (and root) can change the folder, or put another in its place."""
    if not hasattr(os, "geteuid"):  # Windows
        return True
    for place in (folder, *folder.resolve().parents):
        about = place.stat()
        open_to_all = about.st_mode & stat.S_IWOTH and (place == folder or not about.st_mode & stat.S_ISVTX)
        if open_to_all or about.st_uid not in (os.geteuid(), 0):
            return False
    return not folder.stat().st_mode & stat.S_IWGRP


def _default() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("darn", appauthor=False) / "compiled"


def _machine() -> str:
    """A name for the kind of processor: a home may be shared by machines, and code for one may not run on another.

    Everything else that a program depends on (versions, device, flags) is in JAX's own keys.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


def shrink(folder: Path, limit: int) -> None:
    """Deletes the files that were not used for the longest time until the others take at most `limit` bytes.

    JAX has a limit of its own (`jax_compilation_cache_max_size`), but it reads a second file and takes a lock for every
    program, and a process killed between its two files stops it for good.
    """
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                about = entry.stat()
            except OSError:  # another process has deleted it
                continue
            files.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        Path(path).unlink(missing_ok=True)
        total -= size
