"""Pretrained models by name: some come with the package, the others are downloaded when first used.

A model is looked for in the repository's results/models, among the models installed with the package, and in the user's
data folder. Otherwise it is downloaded from the address in DARN_MODELS_URL and checked against the list of SHA-256
checksums beside this file, which `python -m darn.runs.pretrained` (`make models`) writes.
"""

import difflib
import importlib.metadata
import os
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path

from darn.data import data_dir
from darn.errors import DarnError, InputError, NotFoundError
from darn.files import retrieve
from darn.model_file import read_info
from darn.runs.info import read_info as info_of

CHECKSUMS = Path(__file__).parent / "models.txt"  # one line per model: file and SHA-256, as pooch reads them
MAX_BYTES = 256 << 20  # of a download
_REPOSITORY = Path(__file__).parent.parent.parent / "results" / "models"


def folders() -> list[Path]:
    """The folders that may hold models: the repository's, the installed package's, the user's data folder's."""
    return [_REPOSITORY, *_installed(), data_dir() / "models"]


@lru_cache
def _installed() -> tuple[Path, ...]:
    """The folder of the models that were installed with the package."""
    try:
        files = importlib.metadata.files("darn") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return ()
    return tuple({Path(str(f.locate())).resolve().parent for f in files if f.match("share/darn/models/*")})


def names() -> dict[str, Path]:
    """Name and file of every pretrained model on this machine."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob("*.safetensors")):
            found.setdefault(path.stem, path)
    return found


@lru_cache
def checksums() -> dict[str, str]:
    """SHA-256 of every pretrained model by name."""
    pairs = (line.split() for line in CHECKSUMS.read_text().splitlines())
    return {file.removesuffix(".safetensors"): sha256 for file, sha256 in pairs}


def find(name: str) -> Path:
    """The file of a pretrained model, downloaded if it is not on this machine.

    Args:
        name: as `darn models` lists it.

    Returns:
        Its path.

    Raises:
        NotFoundError: if there is no model of that name, or it cannot be downloaded.
    """
    here = names()
    if name in here:
        return here[name]
    if name in checksums():
        return _download(name)
    near = difflib.get_close_matches(name, [*here, *checksums()], n=1)
    hint = f"did you mean {near[0]}?" if near else "`darn models` lists the pretrained ones"
    raise NotFoundError(
        f"there is no model at {name}: give a run folder, a model file or the name of a pretrained model; {hint}"
    )


def _download(name: str) -> Path:
    import pooch  # not needed by most commands

    folder = data_dir() / "models"
    base = os.environ.get("DARN_MODELS_URL")
    if not base:
        raise NotFoundError(
            f"the model {name} is not on this machine: copy it from results/models of the repository to {folder}, or "
            "set DARN_MODELS_URL to the https address of that folder"
        )
    if not base.startswith("https://"):
        raise InputError(f"DARN_MODELS_URL must be an https address, not {base}")
    url = f"{base.rstrip('/')}/{name}.safetensors"
    pooch.get_logger().setLevel("WARNING")

    def transfer(url, file, _):
        retrieve(url, Path(file), MAX_BYTES)

    try:
        known = {"known_hash": checksums()[name], "fname": f"{name}.safetensors", "path": folder}
        found = pooch.retrieve(url, **known, downloader=transfer)  # pyright: ignore[reportArgumentType]
    except (OSError, ValueError, HTTPException) as e:  # ValueError: the checksum
        raise NotFoundError(f"the model {name} could not be downloaded from {url} ({e})") from e
    return Path(found)


def describe() -> list[dict]:
    """Describes each model on this machine: name, data, figures, file."""
    out = []
    for name, path in names().items():
        try:
            info = info_of(read_info(path))
        except DarnError:  # the folder holds other files as well
            continue
        how = info.recipe.training
        out.append(
            {
                "name": name,
                "data": info.data.name,
                "columns": info.data.n,
                "n_h": list(info.recipe.architecture.n_h),
                "valid_bound": info.training.valid_bound,
                "encodings": how.n_samples if how.weighted else 1,  # that the bound is of
                "about": info.recipe.description,
                "path": str(path),
                "bytes": path.stat().st_size,
            }
        )
    return out


def write_checksums(folder: Path = _REPOSITORY) -> None:
    """Rewrites the list of checksums.

    Args:
        folder: where the models are.
    """
    import pooch

    lines = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            read_info(path)
        except DarnError:  # the RBMs of the baselines are stored beside the models
            continue
        lines.append(f"{path.name} {pooch.file_hash(str(path))}\n")
    CHECKSUMS.write_text("".join(lines))


if __name__ == "__main__":
    write_checksums()
