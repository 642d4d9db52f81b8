"""Two nodes on one machine: network namespaces of Linux, joined by a link that can be cut. They need root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

ADDRESSES = ("10.213.77.1", "10.213.77.2")
"""Of the two nodes; they exist in the namespaces only."""


class NoNamespacesError(Exception):
    """Namespaces cannot be made here; the message says why."""


class Node(NamedTuple):
    """One namespace: its name, its end of the link, and its address."""

    name: str
    link: str
    address: str


@contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    """Make two namespaces with a link between them, and remove them at the end."""
    nodes = [Node(f"foci-{os.getpid()}-{side}", f"foci{side}", own) for side, own in zip("ab", ADDRESSES)]
    first, second = nodes
    made = []
    try:
        for node in nodes:
            _ip("netns", "add", node.name)
            made.append(node)
        ends = ("name", second.link, "netns", second.name)
        _ip("-n", first.name, "link", "add", first.link, "type", "veth", "peer", *ends)
        for node in nodes:
            _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", node.link)
            for device in ("lo", node.link):
                _ip("-n", node.name, "link", "set", device, "up")
        yield first, second
    finally:
        for node in made:
            _ip("netns", "delete", node.name)


def cut(node: Node) -> None:
    """Cut the link between the nodes: nothing that is sent arrives, and neither side is told."""
    _ip("-n", node.name, "link", "set", node.link, "down")


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoNamespacesError("the program ip is missing (package iproute2)") from error
    except subprocess.CalledProcessError as error:
        raise NoNamespacesError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error


class Launch:
    """A command of foci under torchrun on each of the nodes, one process per node.

    Args:
        nodes: where it runs.
        arguments: of the command.
        logs: a folder for what each node prints.
        restarts: how often torchrun restarts the workers.
    """

    def __init__(self, nodes: Sequence[Node], arguments: Sequence[str], logs: Path, restarts: int) -> None:
        self.logs = [logs / f"{node.link}.log" for node in nodes]
        self.agents = []
        for node, log in zip(nodes, self.logs):
            launcher = ["-m", "torch.distributed.run", f"--nnodes={len(nodes)}", "--nproc-per-node=1"]
            launcher += [f"--max-restarts={restarts}", "--rdzv-backend=c10d", "--rdzv-id=7"]
            launcher += [f"--rdzv-endpoint={nodes[0].address}:29400", f"--local-addr={node.address}"]
            launcher += [f"--rdzv-conf=is_host={int(node is nodes[0])}"]  # both have the name of one machine
            command = ["ip", "netns", "exec", node.name, sys.executable, *launcher, "-m", "foci_cli", *arguments]
            variables = {"GLOO_SOCKET_IFNAME": node.link, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            environment = os.environ | {"OMP_NUM_THREADS": "1", **variables}
            with log.open("w") as file:
                self.agents.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self.agents:  # it ends its workers; behind a cut link it may wait for the other node instead
            agent.terminate()
        for agent in self.agents:
            try:
                agent.wait(5)
            except subprocess.TimeoutExpired:
                agent.kill()

    def worker(self, node: int) -> int:
        """Return the id of the process that trains on a node."""
        agent = self.agents[node].pid
        return int(Path(f"/proc/{agent}/task/{agent}/children").read_text().split()[0])

    def said(self, node: int) -> str:
        """Return what a node has printed."""
        return self.logs[node].read_text(errors="replace")


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is true, at most some seconds; return whether it is."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
