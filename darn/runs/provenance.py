"""Where a number comes from: versions, commit, device, command."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path


def versions() -> dict[str, str]:
    """The versions of the packages that a result may depend on."""
    versions = {"python": platform.python_version()}
    for name in ("darn", "jax", "jaxlib", "equinox", "optax", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with "+changes" if files differ from it.

    Returns:
        The commit; outside a checkout, the environment variable DARN_COMMIT, or None.
    """
    here = Path(__file__).resolve().parent.parent.parent
    elsewhere = os.environ.get("DARN_COMMIT")
    if not (here / ".git").exists():
        return elsewhere

    def git(*words):
        return subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)

    try:
        head = git("rev-parse", "HEAD")
        if head.returncode:
            return elsewhere
        # without results/, which these programs write row by row
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results").stdout.strip()
        return head.stdout.strip() + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return elsewhere


def device() -> str:
    """The device that JAX computes on."""
    import jax

    kind = jax.devices()[0].device_kind
    if jax.default_backend() == "cpu":
        return f"{platform.processor() or platform.machine()} CPU, {os.cpu_count()} cores"
    return kind


def precision() -> str:
    """How float32 matrix products are computed."""
    import jax

    asked = getattr(jax.config, "jax_default_matmul_precision", None)
    if jax.default_backend() == "cpu" or asked in ("highest", "float32"):
        return "float32"
    return asked or "tf32 (the device's default for float32)"


def command() -> str:
    """The command line as typed, the program by its bare name."""
    name = Path(sys.argv[0]).name
    return shlex.join(["darn" if name == "__main__.py" else name, *sys.argv[1:]])  # `python -m darn`
