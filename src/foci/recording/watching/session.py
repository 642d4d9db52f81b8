"""The with-blocks that are open: their models, what is put on their tapes, and which edits they make."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from foci import torch_private
from foci.errors import ConfigError
from foci.recording.edits import Edit, Edits
from foci.recording.missed import Calls
from foci.recording.projections import Projections
from foci.recording.tape import ROOT, Entry, Recording
from foci.recording.torch_calls import Flow
from foci.recording.watching.frames import Frame
from foci.recording.written_out import Read
from foci.weights import Weights
from foci.weights.sources import Dense


@dataclass(eq=False)
class Session:
    """One with-block: its tape or its edits, and the path of every module of its model."""

    paths: dict[nn.Module, str]
    watched: Calls
    tape: Recording | None = None
    edits: Edits | None = None
    detach: bool = False
    gradients: bool = False

    def entry(
        self,
        module: nn.Module,
        suffix: str,
        weights: Weights,
        flow: Flow | None = None,
        written_out: Read | None = None,
    ) -> Entry:
        """Return the entry of a call for the tape."""
        if not self.gradients:
            flow = None
        elif flow is None and isinstance(weights.source, Dense) and weights.source.weights.requires_grad:
            flow = Flow(weights.source.weights)
            flow.tensor.retain_grad()
        if self.detach:
            weights = weights.detach()
        return Entry(self.paths[module] + suffix, weights, flow, written_out)


class _Process:
    """The blocks of all threads."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.of_main_thread: list[Session] = []
        self.edits = False

    def open(self, session: Session) -> None:
        """Add a block of this thread."""
        self.sessions = [*self.sessions, session]
        self.edits = self.edits or session.edits is not None
        if threading.current_thread() is threading.main_thread():
            self.of_main_thread = [*self.of_main_thread, session]

    def close(self, session: Session) -> None:
        """Remove a block."""
        self.sessions = [other for other in self.sessions if other is not session]
        self.edits = any(other.edits is not None for other in self.sessions)
        self.of_main_thread = [other for other in self.of_main_thread if other is not session]


PROCESS = _Process()


class Sessions:
    """The blocks that a thread runs in.

    Attributes:
        own: those that it has opened.
        attended: how many functions that attend were seen.
    """

    def __init__(self) -> None:
        self.own: list[Session] = []
        self.attended = 0

    @property
    def all(self) -> list[Session]:
        """The blocks of this thread; where it has none, those of the main thread."""
        return self.own or PROCESS.of_main_thread

    @property
    def active(self) -> list[Session]:
        """Those that record and count what is called now."""
        # In the backward pass activation checkpointing runs modules again, which are on the tape already. Their
        # weights are still computed, since checkpointing requires the second run to do what the first did.
        return [] if torch_private.is_backward_running() else self.all

    @property
    def edits(self) -> list[Edits]:
        """The edits of the blocks."""
        if not PROCESS.edits:  # this is asked at every function
            return []
        return [session.edits for session in self.all if session.edits is not None]

    @property
    def has_tapes(self) -> bool:
        """Whether any of the blocks records."""
        return any(session.tape is not None for session in self.all)

    @property
    def wants_gradients(self) -> bool:
        """Whether any of the blocks keeps what gradients are computed from."""
        return any(session.gradients for session in self.all)

    @property
    def projections(self) -> list[Projections]:
        """Where values are kept."""
        found = (session.tape._projections for session in self.active if session.tape is not None)
        return [projections for projections in found if projections is not None]

    def knows(self, module: nn.Module) -> bool:
        """Return whether the module belongs to a model that is recorded or edited."""
        return any(module in session.paths for session in self.all)

    def looks_inside(self, module: nn.Module) -> bool:
        """Return whether more than the weights in this module is asked for, which fused paths do not have."""
        return any(
            session.gradients
            or (session.tape is not None and session.tape._projections is not None)
            or (session.edits is not None and session.edits._touches(module))
            for session in self.all
        )

    def saw_called(self, module: nn.Module) -> None:
        """Take note that a module was called."""
        for session in self.all:
            if module in session.paths:
                session.watched.called.add(session.paths[module])

    def begin(self, frames: Sequence[Frame], part: str = "") -> tuple[str, list[Edit]]:
        """Count a call of an attention, and return its path and its edits."""
        # Activation checkpointing computes calls again, which were counted.
        again, name, found = torch_private.is_backward_running(), "", list[Edit]()
        for edits in self.edits:
            path, of_block = edits._begin([frame.module for frame in frames], again, part)
            name, found = path or name, found + of_block
        return name, found

    def saw(
        self,
        read: Callable[[], Weights],
        flow: Flow | None,
        frames: Sequence[Frame],
        written_out: Read | None = None,
        *,
        edited: bool = False,
    ) -> None:
        """Record a function that attends for the innermost module of each model."""
        self.attended += 1
        weights = read() if self.has_tapes else None
        for session in self.active:
            inner = [frame for frame in frames if frame.module in session.paths]
            if inner:
                inner[-1].edited |= edited
                if session.tape is not None and weights is not None:
                    entry = session.tape._add(session.entry(inner[-1].module, "", weights, flow, written_out))
                    inner[-1].seen.append((session.tape, entry))

    def add(self, module: nn.Module, read: Callable[[], Mapping[str, Weights]], flow: Flow | None = None) -> None:
        """Record what a module attended to."""
        answers = read() if self.has_tapes else {}
        for session in self.active:
            if module in session.paths:
                if session.tape is not None:
                    for suffix, weights in answers.items():
                        session.tape._add(session.entry(module, suffix, weights, flow))
                elif session.edits is not None:
                    session.edits._returned[session.paths[module]] = None


def paths_of(owner: str, model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module; a module wrapped by `torch.compile` has the path of its wrapper."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{owner}: model is a {type(model).__name__}, expected a torch.nn.Module.")
    paths = {}
    for name, module in model.named_modules():
        if "_orig_mod" not in module._modules:
            paths[module] = ".".join(part for part in name.split(".") if part != "_orig_mod") or ROOT
    return paths
