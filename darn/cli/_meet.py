"""How several processes find each other: where each one stands, the connections, and whether they fit together."""

import contextlib
import json
import os
import re
import socket
import time
from dataclasses import dataclass, field

from darn.errors import DarnError
from darn.jsonable import shown

GRACE = 5.0  # seconds for an answer
LONGEST = 1 << 16  # bytes of a message
NAMED = 8  # of many processes that are missing
_COUNT = re.compile("[0-9]{1,6}")


@dataclass(frozen=True)
class Place:
    """One process among several."""

    host: str  # of the first process
    port: int
    processes: int
    process: int

    @property
    def address(self) -> str:
        return self.with_port(self.port)

    def with_port(self, port: int) -> str:
        """Another port of the first process's host."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def place_of(coordinator: str | None, processes: int | None, process: int | None) -> Place | None:
    """Where this process stands, by its options, or the variables of JAX, SLURM or Kubernetes.

    Args:
        coordinator: HOST:PORT of the first process; "auto" for SLURM; None for the variable JAX_COORDINATOR_ADDRESS.
        processes: How many there are; None for JAX_NUM_PROCESSES or SLURM_NTASKS.
        process: The number of this one; None for JAX_PROCESS_ID, SLURM_PROCID or JOB_COMPLETION_INDEX.

    Returns:
        The place; None for a process that works alone.

    Raises:
        DarnError: Something is missing or makes no sense.
    """
    env = os.environ
    address = (env.get("JAX_COORDINATOR_ADDRESS") or None) if coordinator in (None, "auto") else coordinator
    if address is None and coordinator == "auto":
        job = env.get("SLURM_JOB_ID", "")
        if not re.fullmatch("[0-9]{1,18}", job):
            raise DarnError("this is not a SLURM job: give --coordinator HOST:PORT, --processes and --process")
        # The first node, and a port that other jobs on it are unlikely to use.
        nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", "")
        first = re.match(r"([^,\[]+)(?:\[(\d+))?", nodes)
        if first is None:
            raise DarnError("SLURM does not say which nodes the job has: start the processes with srun")
        address = f"{first[1]}{first[2] or ''}:{61440 + int(job) % 4096}"
    if address is None:
        if processes is not None or process is not None:
            raise DarnError("--processes and --process need the address of the first process: give --coordinator")
        return None
    count = _number(processes, "--processes", "JAX_NUM_PROCESSES", "SLURM_NTASKS")
    number = _number(process, "--process", "JAX_PROCESS_ID", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
    found = re.fullmatch(r"(.+):([0-9]{1,5})", address)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        raise DarnError(f"--coordinator must be HOST:PORT, not {address!r}")
    if count < 1:
        raise DarnError(f"--processes must be at least 1, not {count}")
    if not 0 <= number < count:
        raise DarnError(f"--process must be a number from 0 to {count - 1}, not {number}: there are {count} processes")
    return Place(found[1].strip("[]"), int(found[2]), count, number) if count > 1 else None


def _number(given: int | None, option: str, *variables: str) -> int:
    if given is not None:
        return given
    name = next((v for v in variables if os.environ.get(v)), None)
    if name is None:
        raise DarnError(f"with several processes {option} is needed, or the variable {variables[0]}")
    if not _COUNT.fullmatch(os.environ[name]):
        raise DarnError(f"the variable {name}, for {option}, must be a number, not {shown(os.environ[name])}")
    return int(os.environ[name])


# ---------------------------------------------------------------- connections


@dataclass
class Peer:
    """A connection to another process; messages are lines of JSON, an empty line is a sign of life."""

    link: socket.socket
    process: int = 0
    host: str = ""
    heard: float = field(default_factory=time.monotonic)
    done: bool = False
    _read: bytes = b""

    @property
    def name(self) -> str:
        return f"process {self.process}" + (f" ({self.host})" if self.host else "")

    def send(self, message: dict | None = None) -> None:
        with contextlib.suppress(OSError):  # its end shows in `receive`
            self.link.sendall((json.dumps(message) if message else "").encode() + b"\n")

    def receive(self) -> list[dict]:
        """The messages that have come.

        Raises:
            OSError: The connection is closed or broken.
        """
        data = self.link.recv(LONGEST)
        if not data or len(self._read) > LONGEST:
            raise ConnectionResetError
        self.heard = time.monotonic()
        *lines, self._read = (self._read + data).split(b"\n")
        try:
            return [message for message in map(json.loads, filter(None, lines)) if isinstance(message, dict)]
        except (ValueError, RecursionError) as e:
            raise ConnectionResetError from e

    def wait(self, until: float) -> dict:
        """The next message."""
        while time.monotonic() < until:
            self.link.settimeout(max(until - time.monotonic(), 0.1))
            if found := self.receive():
                self.link.settimeout(None)
                return found[0]
        raise TimeoutError


def meet(place: Place, versions: dict[str, str], wait: float) -> tuple[list[Peer], int]:
    """Waits for all processes and compares them.

    Args:
        place: Of this process.
        versions: Of the packages here; they must be the same everywhere.
        wait: The most seconds.

    Returns:
        (connections: of the first process to all others, of these to the first one; a port for JAX on its host).

    Raises:
        DarnError: A process cannot be reached, or differs.
    """
    until = time.monotonic() + wait
    return _gather(place, versions, wait, until) if place.process == 0 else _join(place, versions, wait, until)


def _join(place: Place, versions: dict[str, str], wait: float, until: float) -> tuple[list[Peer], int]:
    while True:
        try:
            link = socket.create_connection((place.host, place.port), timeout=5)
            break
        except (OSError, UnicodeError) as e:  # a name that cannot be one
            if time.monotonic() > until or isinstance(e, UnicodeError):
                raise DarnError(
                    f"the first process cannot be reached at {place.address} within {wait:g} s "
                    f"({getattr(e, 'strerror', None) or e}): start it, and check --coordinator and the network"
                ) from e
            time.sleep(0.2)
    peer = Peer(link, 0, place.host)
    peer.send({"process": place.process, "processes": place.processes, "host": _host(), "versions": versions})
    try:
        said = peer.wait(until + GRACE)
    except OSError as e:
        link.close()
        raise DarnError(f"the first process at {place.address} has ended before training began") from e
    if not isinstance(said.get("go"), int) or not 0 < said["go"] < 1 << 16:
        link.close()
        raise DarnError(str(said.get("end", f"what answers at {place.address} is not a first process")))
    return [peer], said["go"]


def _gather(place: Place, versions: dict[str, str], wait: float, until: float) -> tuple[list[Peer], int]:
    dual = socket.has_dualstack_ipv6()
    try:
        family = socket.AF_INET6 if dual else socket.AF_INET
        server = socket.create_server(("", place.port), family=family, dualstack_ipv6=dual)
    except OSError as e:
        raise DarnError(f"port {place.port} cannot be opened ({e.strerror or e}): choose another --coordinator") from e
    peers: dict[int, Peer] = {}
    problem = ""
    with server:
        while len(peers) < place.processes - 1 and not problem:
            server.settimeout(max(until - time.monotonic(), 0.01))
            try:
                peer, hello = _greeted(server)
            except TimeoutError:
                if time.monotonic() < until:
                    continue  # a stranger who says nothing
                missing = [i for i in range(1, place.processes) if i not in peers]
                names = ", ".join(map(str, missing[:NAMED])) + ", ..." * (len(missing) > NAMED)
                problem = f"process {names} did not come to {place.address} within {wait:g} s: start all processes"
                break
            except OSError:
                continue
            peer.process, peer.host = hello.get("process", -1), str(hello.get("host", ""))[:100]
            problem = _mismatch(place, peer, hello, versions, peers)
            if problem:
                peer.send({"end": problem})
                peer.link.close()
            else:
                peers[peer.process] = peer
    others = list(peers.values())
    if problem:
        for peer in others:
            peer.send({"end": problem})
            peer.link.close()
        raise DarnError(problem)
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    for peer in others:
        peer.send({"go": port})
    return others, port


def _greeted(server: socket.socket) -> tuple[Peer, dict]:
    """The next process that comes, and what it says first."""
    peer = Peer(server.accept()[0])
    try:
        return peer, peer.wait(time.monotonic() + GRACE)
    except OSError:
        peer.link.close()
        raise


def _mismatch(place: Place, peer: Peer, hello: dict, versions: dict[str, str], known: dict[int, Peer]) -> str:
    if not isinstance(peer.process, int):
        return f"a process has the number {shown(peer.process)}: give each its own, from 0 on"
    if hello.get("processes") != place.processes:
        told = shown(hello.get("processes"))
        return f"{peer.name} was told of {told} processes, process 0 of {place.processes}: give all the same number"
    if not 0 < peer.process < place.processes or peer.process in known:
        return f"there are two processes with the number {peer.process}: give each its own, from 0 on"
    theirs = hello.get("versions")
    if theirs != versions:
        theirs = theirs if isinstance(theirs, dict) else {}
        name = next((k for k in versions if theirs.get(k) != versions[k]), "darn")
        has = str(theirs.get(name))[:100]
        return f"{peer.name} has {name} {has}, process 0 has {versions.get(name)}: install the same versions everywhere"
    return ""


def _host() -> str:
    return socket.gethostname()
