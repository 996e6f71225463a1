"""A sweep on the workers of a Ray cluster: each trains some models, and another takes over if it is lost."""

import importlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

from darn.data import Splits
from darn.errors import DarnError
from darn.runs.provenance import versions
from darn.runs.sweep import Job, Trained, train_job
from darn.training import ctrl_c

RETRIES = 10  # of models whose worker was lost
REACHED = 10.0  # seconds to reach a cluster's head


def spread(address: str | None) -> Callable[[list[Job], Splits], Iterator[list[Trained]]]:
    """Connects to a Ray cluster.

    Args:
        address: HOST:PORT of its head, or "auto" for the one that this machine is part of; None starts one here.

    Returns:
        A function that trains jobs there, and yields the models of each as they are done; it ends early after Ctrl-C.

    Raises:
        DarnError: Ray is not installed, or there is no such cluster.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as e:
        raise DarnError("a sweep on Ray needs the package ray: install darn with the extra `cluster`") from e
    if not ray.is_initialized():
        _connect(ray, address)
    return lambda jobs, splits: _train(ray, jobs, splits)


def _connect(ray: Any, address: str | None) -> None:
    if address not in (None, "auto"):
        host, colon, port = str(address).removeprefix("ray://").rpartition(":")
        if not colon or not port.isdigit():
            raise DarnError(f"the address of a Ray cluster is HOST:PORT, or auto, not {address!r}")
        try:
            socket.create_connection((host, int(port)), REACHED).close()
        except (OSError, OverflowError) as e:
            raise DarnError(f"there is no Ray cluster at {address} ({e}): start it, or correct the address") from e
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False)
    except TypeError:  # only a cluster that is started here has a dashboard
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as e:
        if address is not None:
            _without_dashboard(ray, address, e)
        else:
            raise DarnError(f"no Ray cluster can be started here: {' '.join(str(e).split())[:200]}") from e


def _without_dashboard(ray: Any, address: str, failed: Exception) -> None:
    """Connects to a cluster that exists, which refuses what is said of a new one."""
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as e:
        said = " ".join(str(e).split())[:200]
        raise DarnError(f"there is no Ray cluster at {address} ({said}): start one (`ray start --head`)") from failed


def _train(ray: Any, jobs: list[Job], splits: Splits) -> Iterator[list[Trained]]:
    own = versions()
    gpu = 1 if ray.cluster_resources().get("GPU", 0) else 0

    def work(job: Job, splits: Splits) -> list[Trained]:
        there = versions()
        other = [f"{name} {there.get(name)} instead of {own[name]}" for name in own if there.get(name) != own[name]]
        if other:
            raise DarnError(f"a worker of the cluster has {', '.join(other)}: install the same versions everywhere")
        return train_job(job, splits)

    remote = ray.remote(max_retries=RETRIES, num_gpus=gpu, num_cpus=1)(work)
    rows = ray.put(splits)
    waiting = {remote.remote(job, rows): job for job in jobs}
    with ctrl_c() as pressed:
        while waiting and not pressed.is_set():
            done, _ = ray.wait(list(waiting), timeout=0.5)
            for found in done:
                job = waiting.pop(found)
                try:
                    yield ray.get(found)
                except ray.exceptions.RayTaskError as e:
                    if isinstance(e.cause, DarnError):
                        raise DarnError(str(e.cause)) from e
                    raise
                except ray.exceptions.RayError as e:
                    numbers = ", ".join(str(i) for i, _ in job.members)
                    raise DarnError(
                        f"{RETRIES + 1} workers were lost while training model {numbers} ({type(e).__name__}): give "
                        "workers more memory, then resume the sweep"
                    ) from e
        for left in waiting:
            ray.cancel(left, force=True)
