"""Batches in halves, to be accumulated."""

from foci.tasks.frame.task import Shard, Task


class Halves:
    """The batches of two processes in turn, which together are the batches of one."""

    def __init__(self, parts):
        self.parts = parts

    def __iter__(self):
        streams = [iter(part) for part in self.parts]
        while True:
            yield from map(next, streams)

    def state_dict(self):
        return self.parts[1].state_dict()


def in_halves(kind: type[Task]):
    """Return what gives the batches of a task as the shares of two processes in turn."""
    batches = kind.batches
    return lambda *given: Halves([batches(*given[:-2], Shard(rank, 2), given[-1]) for rank in range(2)])
