"""What may lie under the name of a file and never end: a pipe, a device."""

import os
import signal
from contextlib import contextmanager


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


DISGUISES = (pipe, device)


@contextmanager
def no_waiting(seconds=20):
    """End a block that waits for ever, so that the test fails instead."""

    def end(number, frame):
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
