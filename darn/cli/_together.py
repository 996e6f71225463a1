"""Several processes that train one model: they watch each other, and end together.

A process that computes with others may wait forever for one that is gone, and JAX ends it with a crash report if the
first one is. So each process is divided in two: this part, without JAX, is connected with the first process, and a
child computes. If a process dies, the connection to it breaks at once (or falls silent, if its machine has died), and
the others end their children and say which one it was.
"""

import contextlib
import os
import selectors
import signal
import sys
import threading
import time

from darn.cli._meet import GRACE, LONGEST, Peer, Place, meet
from darn.cli._process import heed_ctrl_c

LOST = 3  # exit status: another process has ended
BEAT, SILENCE = 5.0, 30.0  # seconds between signs of life, and without one


class Member:
    """In the child: its place, and how it ends."""

    def __init__(self, place: Place, port: int, said: int):
        self.place, self.port, self.said = place, port, said
        self.message = ""

    def connect(self) -> None:
        """Joins JAX's own runtime; before JAX has looked for devices."""
        import jax

        # Under SLURM, JAX finds out which GPU of the node is this task's.
        found_by = None if "SLURM_LOCALID" in os.environ else "deactivate"
        place, address = self.place, self.place.with_port(self.port)
        jax.distributed.initialize(address, place.processes, place.process, cluster_detection_method=found_by)

    def leave(self, status: int) -> None:
        """Ends the child: all together if all is well; otherwise without waiting for the others."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(self.said, self.message.encode()[:LONGEST])
        if status == 0:
            import jax

            jax.distributed.shutdown()
        elif self.place.process == 0:
            time.sleep(1)  # JAX crashes those who are still there when the first process ends
        os._exit(status)


member: Member | None = None  # in a child


def is_other() -> bool:
    """Whether this process computes for another one, which writes files and prints."""
    return member is not None and member.place.process > 0


def divide(place: Place, versions: dict[str, str], wait: float) -> int | None:
    """Meets the other processes, and starts the child that computes.

    Args:
        place: Of this process.
        versions: As for `meet`.
        wait: As for `meet`.

    Returns:
        None in the child; in the parent, once all is over, the exit status.
    """
    global member
    peers, port = meet(place, versions, wait)
    alive, said = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        heed_ctrl_c()  # the parent asks by it
        os.close(alive[1])
        os.close(said[0])
        for peer in peers:
            peer.link.close()
        threading.Thread(target=_end_with, args=(alive[0],), daemon=True).start()
        # JAX's libraries print to the standard output, which belongs to the results.
        out = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY) if place.process else out, "w")
        member = Member(place, port, said[1])
        return None
    os.close(alive[0])
    os.close(said[1])
    return Watch(place, peers, child, said[0]).run()


def _end_with(parent: int) -> None:
    os.read(parent, 1)
    os._exit(LOST)


class Watch:
    """In the parent: the child here and the other processes, until all is over."""

    def __init__(self, place: Place, peers: list[Peer], child: int, said: int):
        self.place, self.peers, self.child, self.said = place, peers, child, said
        self.message = b""
        self.ended: int | None = None  # the child's status; negative for a signal
        self.verdict = ""  # why this process must end, if another one has ended
        self.deadline = float("inf")  # for the child to end, or for news of the reason for its end

    def run(self) -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets it too, and ends in good order
        # A scheduler that wants the machine back says so: end in good order.
        signal.signal(signal.SIGTERM, lambda *_: os.kill(self.child, signal.SIGINT))
        beat = 0.0
        with selectors.DefaultSelector() as watched:
            watched.register(self.said, selectors.EVENT_READ, None)
            for peer in self.peers:
                watched.register(peer.link, selectors.EVENT_READ, peer)
            while not self._over():
                for key, _ in watched.select(timeout=0.2):
                    if key.data is None:
                        self._hear_child(watched)
                    else:
                        self._hear(key.data, watched)
                now = time.monotonic()
                if now - beat > BEAT:
                    beat = now
                    for peer in self.peers:
                        peer.send()
                for peer in self.peers:
                    if not peer.done and now - peer.heard > SILENCE:
                        self._blame(f"{peer.name} has not answered for {SILENCE:g} s", 0)
        return self._end()

    def _over(self) -> bool:
        if self.ended == 0:  # the first process waits, so that all end together
            return self.place.process > 0 or all(peer.done for peer in self.peers) or self._late()
        if self.ended is not None and self.ended > 0:
            return True
        return self._late() or (self.ended is not None and bool(self.verdict))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _hear_child(self, watched) -> None:
        data = os.read(self.said, LONGEST)
        self.message += data
        if data:
            return
        watched.unregister(self.said)
        self.ended = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        for peer in self.peers:
            peer.send({"bye": self.ended, "why": self.message.decode(errors="replace")})
        # After a crash: it may be that of another process, whose news are on the way.
        self.deadline = min(self.deadline, time.monotonic() + (60 if self.ended == 0 else GRACE))

    def _hear(self, peer: Peer, watched) -> None:
        try:
            messages = peer.receive()
        except OSError:
            watched.unregister(peer.link)
            if not peer.done:
                peer.done = True
                self._blame(f"{peer.name} is gone", 0)
            return
        for said in messages:
            if "end" in said:
                self._blame(str(said["end"]), GRACE if said.get("wait") else 0)
            elif "bye" in said:
                peer.done = True
                status, why = said["bye"], str(said.get("why", "")).rstrip(".")
                if status != 0:
                    how = f"was killed by signal {-status}" if status < 0 else "has failed"
                    self._blame(f"{peer.name} {how}" + (f": {why}" if why else ""), GRACE)

    def _blame(self, what: str, grace: float) -> None:
        if not self.verdict:
            self.verdict = what
            if self.place.process == 0:
                for peer in self.peers:
                    peer.send({"end": what, "wait": grace > 0})
        self.deadline = min(self.deadline, time.monotonic() + grace)

    def _end(self) -> int:
        if self.ended is None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        if self.ended is not None and self.ended >= 0:
            return self.ended  # the child has said why
        what = self.verdict or f"this process was killed by signal {-(self.ended or 0)}"
        raise Lost(f"{what}; start all processes again with --resume: the run continues from its last checkpoint")


class Lost(Exception):
    """Another process has ended, and so does this one."""
