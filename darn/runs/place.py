"""Where a run is written: which files, and whether a folder is free for them."""

from pathlib import Path

from darn.files import RUN_FILES, is_unused

WRITTEN = (*RUN_FILES, "report.html", "sweep.json")


def is_new(folder: str | Path) -> bool:
    """Whether a run may be started in the folder.

    Args:
        folder: Any path.

    Returns:
        True if there is nothing, an empty folder, or one with only the remains of a killed start.
    """
    return is_unused(folder, WRITTEN)
