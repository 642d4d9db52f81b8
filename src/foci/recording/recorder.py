"""Record what any PyTorch model attends to, without changing what it computes.

    with foci.record(model) as tape:
        model(inputs)
    tape["encoder.layers.0.self_attn"].dense()      # (B, H, L, S)

Recorded are the mechanisms of foci, `torch.nn.MultiheadAttention`, every call of `foci.attend`, `flex_attention`,
`torch.nn.functional.scaled_dot_product_attention` or `multi_head_attention_forward`, and attention that the model's own
code writes out: a softmax whose result is multiplied with values (`foci.recording.written_out`). The tape holds handles
(`foci.weights.Weights`): of fused calls queries, keys and masks are kept, and weights are computed on request; of the
others the weights that the model computed. They are the weights before dropout.

What looks like attention and was not recorded is in `Recording.missed`, with the reason: recurrent states, TorchScript,
kernels of other packages.

Within `torch.func.vmap` the weights on the tape are those of one entry; after it has returned, those of all entries,
with the mapped axis first.

The model's results are unchanged bit for bit, torch's fused inference paths included. Only modules compiled by
`torch.compile` run eagerly in the block: their results are equal to rounding.

How: while a module of the model runs, a `TorchFunctionMode` intercepts each function of torch that is called, under
whichever name it was imported, and global module hooks identify the calling module. The model itself is not modified,
so it can be copied or saved in the block. A mode disables torch's fused paths; therefore it is switched off in the
modules that have one, and their weights are computed from their inputs.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ParamSpec, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from foci import torch_private
from foci.errors import ConfigError, ShapeError
from foci.outputs import AttentionOutput, weights_of
from foci.recording import torch_calls as record_torch
from foci.recording.bands import has_bands, of_bands
from foci.recording.blocks import has_blocks, of_blocks
from foci.recording.differential import factor_of
from foci.recording.edits import Edit, Edits
from foci.recording.joined import Joined, Pieces
from foci.recording.missed import Calls
from foci.recording.projections import Projections
from foci.recording.registered import of_registered, wrap_registered
from foci.recording.rereading import Reread, attended_by, attended_in, changed, read_edited
from foci.recording.tape import ROOT, Entry, Recording
from foci.recording.torch_calls import Flow
from foci.recording.torch_reads import read_registered, reader_with
from foci.recording.written_out import Delayed, Read, Softmax, WrittenOut
from foci.weights import Weights
from foci.weights.handle import independent
from foci.weights.sources import Dense

Arguments = ParamSpec("Arguments")


@contextmanager
def record(
    model: nn.Module, *, detach: bool = False, gradients: bool = False, values: bool = False
) -> Iterator[Recording]:
    """Record every attention that runs inside ``model`` during the with-block; the `Recording` stays usable after it.

    Args:
        model: any module, in training or evaluation, on any device. A compiled model runs eagerly in the block, and
            has the paths of the model it was made from.
        detach: detach the weights from the graph. Otherwise weights recorded with gradients on are part of it: a
            penalty on their entropy can be added to the loss, but the graph is kept as long as the tape.
        gradients: keep what `Recording.gradient` needs of calls that are part of a graph: those that compute their
            weights, and those of `scaled_dot_product_attention` and `torch.nn.MultiheadAttention`.
        values: keep what `Recording.projected` needs: what linear layers were given and returned; those of the whole
            model until the block ends.

    With gradients or values the fused inference paths of torch's layers, which have neither, are not taken.

    Recorded is this thread; a block of the main thread records every other thread that has no block of its own too: let
    these end before the block does.
    Blocks may be nested or overlap, on one model or several; each has its own tape. What activation checkpointing
    computes a second time, in the backward pass, is not recorded a second time. A block that recorded nothing warns
    when it ends.

    Example:
        >>> import torch
        >>> from foci.recording import record
        >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
        >>> with record(model, detach=True) as tape:
        ...     output = model(torch.zeros(1, 3, 8))
        >>> tape
        Recording of 1 attention
          self_attn  (1, 2, 3, 3)
        >>> tape["self_attn"].heads(0).rows(2)
        tensor([[0.3333, 0.3333, 0.3333]])
    """
    tape = Recording()
    session = Session(paths_of("record", model), tape._watched, tape, detach=detach, gradients=gradients)
    if values:
        tape._projections = Projections(session.paths)
    try:
        with watching(session):
            yield tape
    finally:
        if tape._projections is not None:
            tape._projections.forget_others(tape.paths)
    if not tape:
        warnings.warn(f"record: {tape.why_empty}", stacklevel=3)


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


@contextmanager
def watching(session: Session) -> Iterator[None]:
    """Watch the model of this session during the with-block."""
    for module, path in session.paths.items():
        session.watched.watch(module, path)
    watcher = _thread.watcher
    watcher.own.append(session)
    try:
        _process.start(session)
        yield
    finally:
        watcher.own.remove(session)
        if not watcher.own:
            watcher.unwind(0)
        _process.stop(session)


@dataclass(eq=False)
class _Frame:
    """A module that runs: its `forward` or, when ``reading``, its `read`."""

    module: nn.Module
    reading: bool
    fusible: bool  # it may take a fused path of torch, which is enabled only while no mode is on
    was_watching: bool  # whether the mode was on when the module was called
    is_mechanism: bool  # of foci: it returns its weights, so its own functions need not be followed
    length: int = 0  # of the source of an nn.TransformerEncoder, padding included
    called: list[nn.Module] = field(default_factory=list)
    seen: list[tuple[Recording, Entry]] = field(default_factory=list)  # functions that attend, called by itself
    answered: bool = False  # its `read` was recorded, so its `forward` need not be
    number: int = field(default_factory=itertools.count().__next__)
    edited: bool = False  # a function of torch that it called, so that the weights it returns are those before
    pieces: Pieces | None = None  # of an attention that is known when it returns


@dataclass(eq=False)
class _Within:
    """A function of foci that attends, called by the innermost module, and what torch's functions in it give."""

    frame: _Frame
    flows: list[Flow | None] = field(default_factory=list)


class _Watcher(TorchFunctionMode):
    """One thread's recordings, the modules that run in it, and the mode that sees the functions they call."""

    def __init__(self) -> None:
        super().__init__()
        self.own: list[Session] = []
        self.frames: list[_Frame] = []
        self.rereading: list[_Frame] = []  # in a function of foci that is edited as a whole
        self.hidden: list[_Frame] = []  # where what is called is foci's own, to read with edited weights
        self.watching = False
        self.masks = record_torch.Copies()
        self.within: list[_Within] = []
        self.attended = 0  # functions
        self.written_out = WrittenOut()

    @property
    def sessions(self) -> list[Session]:
        """The blocks of this thread; where it has none, those of the main thread."""
        return self.own or _process.of_main_thread

    @property
    def edits(self) -> list[Edits]:
        """The edits of the blocks."""
        if not _process.edits:  # this is asked at every function
            return []
        return [session.edits for session in self.sessions if session.edits is not None]

    @property
    def _records(self) -> bool:
        """Whether any of the blocks records."""
        return any(session.tape is not None for session in self.sessions)

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function and, when it attends, edit and record it."""
        kwargs = kwargs or {}
        # The weights of a fusible module are computed when it returns. Operators are compiled where they are called.
        if not self.frames or self.frames[-1].fusible or torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if self.hidden and self.hidden[-1] is self.frames[-1]:
            return func(*args, **kwargs)
        reader = record_torch.reader_of(func)
        if reader is None:
            output = func(*args, **kwargs)
            if self.within or self.frames[-1].is_mechanism:
                return output
            pieces = self.frames[-1].pieces
            if pieces is not None and func is torch.gather:
                pieces.gathered.append(args[2] if len(args) > 2 else kwargs["index"])
            self.written_out.keeps_results = _process.edits
            found = self.written_out.see(func, args, kwargs, output, self._numbers)
            return self._follow(found, output)
        if self.edits and not self._is_rereading():
            name, edits = self._begin(self.frames)
            call = attended_by(name, reader(self.masks, *args, **kwargs)) if edits else None
            if call is not None and changed(call, edits):
                self._saw(lambda: Weights.from_tensor(call.weights), None, edited=True)
                return reader_with(func)(call.weights, call.kept, *args, **kwargs)
        output = func(*args, **kwargs)
        flow = self._flow(func, output, args, kwargs)
        if self.within and self.within[-1].frame is self.frames[-1]:
            self.within[-1].flows.append(flow)
        else:
            self._saw(lambda: reader(self.masks, *args, **kwargs), flow)
        return output

    def attend(
        self, function: Callable[..., AttentionOutput], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AttentionOutput:
        """Call a function of foci that attends, and record its handle instead of the functions of torch it calls."""
        within = _Within(self.frames[-1])
        self.within.append(within)
        try:
            attended = function(*args, **kwargs)
        finally:
            self.within.remove(within)
        # Without a graph an input may be a cache, written to at the next step; a graph's own tensors are not.
        written = [given for given in (*args, *kwargs.values()) if isinstance(given, Tensor) and given.grad_fn is None]
        flow = within.flows[0] if len(within.flows) == 1 else None
        self._saw(lambda: independent(attended.weights, written), flow)
        return attended

    def observe(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call an attention function of transformers; where nothing of torch is seen in it, read its arguments."""
        before = self.attended
        output = function(*args, **kwargs)
        if self.attended != before:
            return output
        name, edits = self._begin(self.frames) if self.edits else ("", [])
        if edits:
            with self._hide():
                call = attended_by(name, of_registered(self.masks, *args, **kwargs))
                if changed(call, edits):
                    self._saw(lambda: Weights.from_tensor(call.weights), None, edited=True)
                    return read_registered(call.weights, call.kept, *args, **kwargs), *output[1:]
        self._saw(lambda: of_registered(self.masks, *args, **kwargs), None)
        return output

    def enter(self, module: nn.Module, args: tuple[Any, ...] = (), *, reading: bool = False) -> None:
        """Push a frame for a module that is called."""
        # A fused layer never calls its attention, so a recording of the attention alone needs the layer's call.
        if not self.knows(module) and not (_is_encoder_layer(module) and self.knows(module.self_attn)):
            return
        if self.frames:
            self.frames[-1].called.append(module)
        for session in self.sessions:
            if module in session.paths:
                session.watched.called.add(session.paths[module])
        fusible = not reading and _is_fusible(module) and not self._looks_inside(module)
        frame = _Frame(module, reading, fusible, self.watching, _is_mechanism(module))
        if not reading and _join_of(module) is not None:
            frame.pieces = Pieces()
        if type(module) is nn.TransformerEncoder and args and not args[0].is_nested:
            frame.length = args[0].shape[1]
        self.frames.append(frame)
        self._watch(not frame.fusible)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        """Pop the frame of a module that returned, or that raised where there is no output.

        Returns what it is to return, with edits that are of the module as a whole.
        """
        depths = [depth for depth, frame in enumerate(self.frames) if frame.module is module]
        if not depths:
            return output
        frame = self.frames[depths[-1]]
        length = next((outer.length for outer in reversed(self.frames) if outer.length), 0)
        self.unwind(depths[-1])
        if output is None:
            return output
        for projections in self._projections():
            projections.saw(module, args, kwargs, output)
        answers = weights_of(output)
        if answers:
            passed = _handles((args, kwargs))  # a stage after reading returns the weights that it was given
            answers = {suffix: one for suffix, one in answers.items() if all(one is not other for other in passed)}
        if answers and not frame.edited:
            # The weights that a module returns replace those of the functions that it called.
            flows = [entry.flow for _, entry in frame.seen if entry.flow is not None and entry.flow.values is not None]
            for tape, entry in frame.seen:
                tape._drop(entry)
            if not frame.answered:
                flow = flows[0] if len(flows) == len(answers) == 1 else None
                given = (args, kwargs)
                self._add(module, lambda: {name: independent(one, given) for name, one in answers.items()}, flow)
            if frame.reading and len(depths) > 1:
                self.frames[depths[-2]].answered = True
        elif frame.fusible and isinstance(module, nn.MultiheadAttention):
            attention = module
            self._add(
                module,
                lambda: {"": record_torch.of_multi_head_module(self.masks, attention, length, *args, **kwargs)},
            )
        elif frame.fusible and _is_encoder_layer(module) and module.self_attn not in frame.called:
            layer = module
            self._add(
                module.self_attn,
                lambda: {"": record_torch.of_encoder_layer(self.masks, layer, length, *args, **kwargs)},
            )
        else:
            output = self._join(frame, args, kwargs, output)
        return output

    def _join(self, frame: _Frame, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        """Take together what a module read in pieces: bands, or the calls of a differential attention."""
        join = _join_of(frame.module)
        if join is not None and frame.pieces is not None and frame.pieces.softmaxes:
            frame.pieces.call = record_torch.bind(type(frame.module).forward, frame.module, *args, **kwargs)
            with self._hide():
                joined = join(frame.module, frame.pieces)
            if joined is not None:
                for tape, entry in frame.seen:
                    tape._drop(entry)
                output = self._reread_joined(frame, joined, output)
        factor = factor_of(frame.module) if frame.seen else None
        if factor is not None:
            for tape in {id(tape): tape for tape, _ in frame.seen}.values():
                tape._subtracts([entry for other, entry in frame.seen if other is tape], factor)
        return output

    def _reread_joined(self, frame: _Frame, joined: Joined, output: Any) -> Any:
        """Record the attention of a module, and return its output, or what its edited weights read."""
        name, edits = self._begin([*self.frames, frame]) if self.edits else ("", [])
        call, weights = joined.attended(name), joined.weights
        with self._hide():
            if edits and changed(call, edits):
                weights = Weights.from_tensor(call.weights)
                output = joined.read_with(call.weights, call.kept), *output[1:]
        self._add(frame.module, lambda: {"": weights})
        return output

    def unwind(self, depth: int) -> None:
        """Drop the frames from ``depth`` on: several after a KeyboardInterrupt, when torch did not call the hook."""
        while len(self.frames) > depth:
            self._watch(self.frames.pop().was_watching)
        if not self.frames:
            self.masks.forget()
            self.written_out.forget()

    def knows(self, module: nn.Module) -> bool:
        """Return whether the module belongs to a model that is recorded or edited."""
        return any(module in session.paths for session in self.sessions)

    def _watch(self, on: bool) -> None:
        """Turn the mode on or off. Below a mode of the user it stays on: that one disables the fused paths anyway."""
        if on and not self.watching:
            self.__enter__()  # type: ignore[no-untyped-call]
            self.watching = True
        elif not on and self.watching and torch_private.current_function_mode() is self:
            self.__exit__(None, None, None)
            self.watching = False

    def _numbers(self) -> frozenset[int]:
        """Return the numbers of the modules that run: a softmax keeps these, as a tape would keep frames alive."""
        return frozenset(frame.number for frame in self.frames)

    def _flow(self, func: Callable[..., Any], output: Any, args: Any, kwargs: Any) -> Flow | None:
        """What the gradient of the weights is computed from, if it was requested and is available."""
        if not any(recording.gradients for recording in self.sessions):
            return None
        flow = record_torch.flow_of(func, output, args, kwargs)
        if flow is not None:
            flow.tensor.retain_grad()
        return flow

    def _follow(self, found: Softmax | Read | Delayed | None, output: Any) -> Any:
        """Record a softmax that was taken, or its product with values: for the innermost module that has both.

        Returns the output, or that of the edited weights.
        """
        if isinstance(found, Softmax):
            if self.frames[-1].pieces is not None:
                self.frames[-1].pieces.softmaxes.append((found, output))
            for session in self._active():
                inner = [frame for frame in self.frames if frame.module in session.paths]
                if inner:
                    session.watched.softmaxes.append((found, session.paths[inner[-1].module]))
        elif isinstance(found, Delayed):
            return found.result()
        elif found is not None:
            frames = [frame for frame in self.frames if frame.number in found.softmax.place]
            is_whole = self.frames[-1].pieces is None  # else its weights are edited when it returns
            if self.edits and is_whole and found.softmax.edits is None:
                found.softmax.edits = self._begin(frames)
            if self.edits and is_whole and found.softmax.edits[1]:
                output = self._reread(found, output, frames)
            elif found.is_first:
                self._saw_written_out(found, frames)
            if found.later is None:
                found.product = None  # the tape keeps what was found, and need not keep values
        return output

    def _saw_written_out(self, found: Read, frames: Sequence[_Frame]) -> None:
        """Record weights that were multiplied with values."""
        flow = None
        if found.computed.requires_grad and any(session.gradients for session in self.sessions):
            flow = Flow(found.computed, None, found.arranged)
            found.computed.retain_grad()
        arranged = None if found.is_settled else found  # else that is still to be done
        self._saw(lambda: Weights.from_tensor(found.arranged(found.computed)), flow, frames, arranged)

    def _reread(self, found: Read, output: Any, frames: Sequence[_Frame]) -> Any:
        """Record the edited weights and return what they read; or wait until it is known which are those of a head."""
        name, edits = found.softmax.edits
        call = attended_in(name, found)
        try:
            is_changed = changed(call, edits)
        except ShapeError as error:
            if not self.written_out.waits(output):
                raise
            for edit in edits:
                edit.waits = error
            found.later = lambda: self._reread(found, output, frames)
            return output
        if not is_changed:
            if found.is_first:
                self._saw_written_out(found, frames)
            return output
        if found.is_first:
            arranged = None if found.is_settled else found
            self._saw(lambda: Weights.from_tensor(call.weights), None, frames, arranged, edited=True)
        return self.written_out.replaced(output, found.read_with(call.weights, call.kept))

    def _begin(self, frames: Sequence[_Frame], part: str = "") -> tuple[str, list[Edit]]:
        """Count a call of an attention, and return its path and its edits."""
        # Activation checkpointing computes calls again, which were counted.
        again, name, found = torch_private.is_backward_running(), "", list[Edit]()
        for edits in self.edits:
            path, of_block = edits._begin([frame.module for frame in frames], again, part)
            name, found = path or name, found + of_block
        return name, found

    def _is_rereading(self) -> bool:
        """Return whether the innermost module is in a function of foci that is edited as a whole."""
        return self.frames[-1].is_mechanism or (bool(self.rereading) and self.rereading[-1] is self.frames[-1])

    def reread(
        self,
        function: Callable[..., AttentionOutput],
        how: Callable[..., Reread],
        part: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> AttentionOutput:
        """Call a function of foci that attends; if its weights are edited, return what they read."""
        if not self.edits or (self.rereading and self.rereading[-1] is self.frames[-1]):
            return function(*args, **kwargs)
        name, edits = self._begin(self.frames, part)
        self.rereading.append(self.frames[-1])
        try:
            if not edits:
                return function(*args, **kwargs)
            with self._hide():
                found = read_edited(name, edits, function, how, args, kwargs)
            if not self.within and not self.frames[-1].is_mechanism:
                self._saw(lambda: found.weights, None, edited=True)
            return found
        finally:
            self.rereading.pop()

    @contextmanager
    def _hide(self) -> Iterator[None]:
        """Neither record nor edit what the innermost module calls in the block."""
        before, self.hidden = self.hidden, [*self.hidden, *self.frames[-1:]]
        try:
            yield
        finally:
            self.hidden = before

    def _saw(
        self,
        read: Callable[[], Weights],
        flow: Flow | None,
        frames: Sequence[_Frame] | None = None,
        written_out: Read | None = None,
        *,
        edited: bool = False,
    ) -> None:
        """Record a function that attends for the innermost module of each model."""
        self.attended += 1
        weights = read() if self._records else None
        for session in self._active():
            inner = [frame for frame in frames or self.frames if frame.module in session.paths]
            if inner:
                inner[-1].edited |= edited
                if session.tape is not None and weights is not None:
                    entry = session.tape._add(session.entry(inner[-1].module, "", weights, flow, written_out))
                    inner[-1].seen.append((session.tape, entry))

    def _add(self, module: nn.Module, read: Callable[[], Mapping[str, Weights]], flow: Flow | None = None) -> None:
        """Record what a module attended to."""
        answers = read() if self._records else {}
        for session in self._active():
            if module in session.paths:
                if session.tape is not None:
                    for suffix, weights in answers.items():
                        session.tape._add(session.entry(module, suffix, weights, flow))
                elif session.edits is not None:
                    session.edits._returned[session.paths[module]] = None

    def _looks_inside(self, module: nn.Module) -> bool:
        """Return whether more than the weights in this module is asked for, which fused paths do not have."""
        return any(
            session.gradients
            or (session.tape is not None and session.tape._projections is not None)
            or (session.edits is not None and session.edits._touches(module))
            for session in self.sessions
        )

    def _projections(self) -> list[Projections]:
        """Return where values are kept."""
        found = (session.tape._projections for session in self._active() if session.tape is not None)
        return [projections for projections in found if projections is not None]

    def _active(self) -> list[Session]:
        # In the backward pass activation checkpointing runs modules again, which are on the tape already. Their
        # weights are still computed, since checkpointing requires the second run to do what the first did.
        return [] if torch_private.is_backward_running() else self.sessions


class _Thread(threading.local):
    """The recordings of each thread, as torch keeps one stack of modes per thread."""

    def __init__(self) -> None:
        self.watcher = _Watcher()


class _Process:
    """What all threads share (hooks, wrapped reads, the compiler's stance), from the first block to the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: list[Session] = []
        self.of_main_thread: list[Session] = []
        self.edits = False
        self.undo: list[Callable[[], object]] = []

    def start(self, recording: Session) -> None:
        with self.lock:
            self.sessions = [*self.sessions, recording]
            self.edits = self.edits or recording.edits is not None
            if threading.current_thread() is threading.main_thread():
                self.of_main_thread = [*self.of_main_thread, recording]
            if len(self.sessions) == 1:
                self._install_hooks()
                self._run_eagerly()
                self.undo += wrap_registered(_observed)
            for module in recording.paths:
                self._wrap(module, "forward")
                if callable(getattr(module, "prepare", None)):
                    self._wrap(module, "read")

    def stop(self, recording: Session) -> None:
        with self.lock:
            self.sessions = [other for other in self.sessions if other is not recording]
            self.edits = any(session.edits is not None for session in self.sessions)
            self.of_main_thread = [other for other in self.of_main_thread if other is not recording]
            if not self.sessions:
                while self.undo:
                    self.undo.pop()()

    def _install_hooks(self) -> None:
        before = all_modules.register_module_forward_pre_hook(_on_call)
        after = all_modules.register_module_forward_hook(_on_return, with_kwargs=True, always_call=True)
        self.undo += [before.remove, after.remove]
        self.undo.append(lambda: torch_private.forget_hook_with_kwargs(after.id))

    def _run_eagerly(self) -> None:
        if not {"torch._dynamo", "torch.nn.attention.flex_attention"} & sys.modules.keys():
            return  # nothing is compiled, and importing the compiler takes seconds
        stance = torch.compiler.set_stance("force_eager")
        self.undo.append(lambda: stance.__exit__(None, None, None))
        # Compiled modules warn that hooks run twice. These do not: the wrapper of a compiled module has no path.
        warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
        self.undo.append(functools.partial(_unfilter, warnings.filters[0]))

    def _wrap(self, module: nn.Module, name: str) -> None:
        """Wrap a method: in the class, so that copies of the module are unmodified.

        Hooks do not see ``module.forward(x)``, nor `read`, which decoders call at each step.
        """
        owner = next((cls for cls in type(module).__mro__ if name in vars(cls)), None)
        if owner is None or owner.__module__.partition(".")[0] == "torch":
            return
        method = vars(owner)[name]
        if isinstance(method, FunctionType) and not hasattr(method, "_is_watched"):
            setattr(owner, name, _watched(method, reading=name == "read"))
            self.undo.append(functools.partial(setattr, owner, name, method))


_thread = _Thread()
_process = _Process()


def _unfilter(entry: tuple[Any, ...]) -> None:
    """Take this entry out of the filters of `warnings`, unless someone has reset them."""
    if entry in warnings.filters:
        cast(list[Any], warnings.filters).remove(entry)


def _on_call(module: nn.Module, args: tuple[Any, ...]) -> None:
    if torch.compiler.is_compiling():
        return
    watcher = _thread.watcher
    if watcher.sessions:
        watcher.enter(module, args)


def _on_return(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
    if torch.compiler.is_compiling():
        return None
    watcher = _thread.watcher
    if watcher.sessions:
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # after an exception torch passes no kwargs
        return watcher.leave(module, args, kwargs, output)
    return None


def _watched(method: Callable[..., Any], *, reading: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # first: the compiler reads what follows, and knows no threads
            return method(module, *args, **kwargs)
        watcher = _thread.watcher
        frame = watcher.frames[-1] if watcher.frames else None
        # Inside of it already: called by its hook, or super().read(…)
        inside = frame is not None and frame.module is module and (frame.reading or not reading)
        if inside or not watcher.sessions or not isinstance(module, nn.Module):
            return method(module, *args, **kwargs)
        watcher.enter(module, args, reading=reading)
        output = None
        try:
            output = method(module, *args, **kwargs)
        finally:
            output = watcher.leave(module, args, kwargs, output)
        return output

    watched._is_watched = True  # type: ignore[attr-defined]
    return watched


def _observed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a registered attention function that is recorded by its arguments, if nothing in it is seen."""

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        watcher = _thread.watcher
        if not watcher.sessions or not watcher.frames:
            return function(*args, **kwargs)
        return watcher.observe(function, args, kwargs)

    return observed


def editable(
    how: Callable[..., Reread], part: str = ""
) -> Callable[[Callable[Arguments, AttentionOutput]], Callable[Arguments, AttentionOutput]]:
    """Let `foci.edit` change the weights of a function that attends; ``how`` says of a call how they read.

    Where a module has several, ``part`` is what its path on the tape ends with: ``":read"``.
    """

    def decorate(function: Callable[Arguments, AttentionOutput]) -> Callable[Arguments, AttentionOutput]:
        @functools.wraps(function)
        def edited(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AttentionOutput:
            if torch.compiler.is_compiling() or not _process.sessions or not _thread.watcher.frames:
                return function(*args, **kwargs)
            return _thread.watcher.reread(function, how, part, args, kwargs)

        return edited

    return decorate


def recordable(function: Callable[Arguments, AttentionOutput]) -> Callable[Arguments, AttentionOutput]:
    """Let `record` see the calls of a function that attends."""

    @functools.wraps(function)
    def recorded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AttentionOutput:
        if torch.compiler.is_compiling() or not _process.sessions or not _thread.watcher.frames:
            return function(*args, **kwargs)
        return _thread.watcher.attend(function, args, kwargs)

    return recorded


def _handles(arguments: object) -> list[Weights]:
    """Return the handles among the arguments of a call."""
    leaves = tree_leaves(arguments, is_leaf=lambda one: isinstance(one, Weights))
    return [leaf for leaf in leaves if isinstance(leaf, Weights)]


def paths_of(owner: str, model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module; a module wrapped by `torch.compile` has the path of its wrapper."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{owner}: model is a {type(model).__name__}, expected a torch.nn.Module.")
    paths = {}
    for name, module in model.named_modules():
        if "_orig_mod" not in module._modules:
            paths[module] = ".".join(part for part in name.split(".") if part != "_orig_mod") or ROOT
    return paths


_JOINS = ((has_bands, of_bands), (has_blocks, of_blocks))


def _join_of(module: nn.Module) -> Callable[[nn.Module, Pieces], Joined | None] | None:
    """Return how the pieces of the module's attention are put together, None for one that has no pieces."""
    return next((join for fits, join in _JOINS if fits(module)), None)


def _is_mechanism(module: nn.Module) -> bool:
    return type(module).__module__.startswith("foci.mechanisms.")


def _is_encoder_layer(module: nn.Module) -> TypeGuard[nn.TransformerEncoderLayer]:
    return type(module) is nn.TransformerEncoderLayer


def _is_fusible(module: nn.Module) -> bool:
    """Return whether the module has a fused inference path, which calls none of the recorded functions."""
    if module.training:
        return False
    if isinstance(module, nn.MultiheadAttention):
        return getattr(module.forward, "__func__", None) is nn.MultiheadAttention.forward
    return _is_encoder_layer(module) or type(module) is nn.TransformerEncoder
