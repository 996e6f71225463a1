"""What a command is started with: its standard streams, and the signals that end it."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

ENDS = (signal.SIGTERM, signal.SIGHUP)


def open_streams() -> None:
    """Opens those of the three standard streams that are closed.

    Otherwise the next file to be opened would take the place of one, and get what a library prints there. What is
    written to an output that was closed is an error, as on a full disk.
    """
    for number, (name, how, mode) in enumerate(
        (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
    ):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, how)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def drop_output() -> None:
    """Forgets what could not be written to standard output: Python would try again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Ends the block as Ctrl-C does where a scheduler or a closed terminal asks for it: in good order.

    Signals that are ignored (nohup) or handled by somebody else stay so. That Ctrl-C is ignored, as by what a script
    runs in the background, is no obstacle.
    """
    ours, ignored = [], False
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in ENDS if signal.getsignal(number) is signal.SIG_DFL]
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    for number in ours:
        signal.signal(number, _as_ctrl_c)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_ctrl_c(*_: object) -> None:
    heed_ctrl_c()
    signal.raise_signal(signal.SIGINT)


def heed_ctrl_c() -> None:
    """Makes Ctrl-C end the process if it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
