"""What is watched of a thread: its modules and the functions of torch that they call, which are recorded and edited.

While a module of a model runs, a `TorchFunctionMode` intercepts each function of torch that is called, under whichever
name it was imported. A mode disables torch's fused paths; therefore it is switched off in the modules that have one,
and their weights are computed from their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from foci import torch_private
from foci.errors import ShapeError
from foci.outputs import AttentionOutput, weights_of
from foci.recording import torch_calls as record_torch
from foci.recording.differential import factor_of
from foci.recording.joined import Joined
from foci.recording.registered import of_registered
from foci.recording.rereading import Reread, attended_by, attended_in, changed, read_edited
from foci.recording.torch_calls import Flow
from foci.recording.torch_reads import read_registered, reader_with
from foci.recording.watching.frames import Frame, Within, is_encoder_layer, is_fusible, is_mechanism, pieces_of
from foci.recording.watching.session import PROCESS, Sessions
from foci.recording.written_out import Delayed, Read, Softmax, WrittenOut
from foci.weights import Weights
from foci.weights.handle import independent


class Watcher(TorchFunctionMode):
    """One thread's recordings, the modules that run in it, and the mode that sees the functions they call."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Sessions()
        self.frames: list[Frame] = []
        self.rereading: list[Frame] = []  # in a function of foci that is edited as a whole
        self.hidden: list[Frame] = []  # where what is called is foci's own, to read with edited weights
        self.watching = False
        self.masks = record_torch.Copies()
        self.within: list[Within] = []
        self.written_out = WrittenOut()

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
            self.written_out.keeps_results = PROCESS.edits
            found = self.written_out.see(func, args, kwargs, output, self._numbers)
            return self._follow(found, output)
        if self.blocks.edits and not self._is_rereading():
            name, edits = self.blocks.begin(self.frames)
            call = attended_by(name, reader(self.masks, *args, **kwargs)) if edits else None
            if call is not None and changed(call, edits):
                self.blocks.saw(lambda: Weights.from_tensor(call.weights), None, self.frames, edited=True)
                return reader_with(func)(call.weights, call.kept, *args, **kwargs)
        output = func(*args, **kwargs)
        flow = self._flow(func, output, args, kwargs)
        if self.within and self.within[-1].frame is self.frames[-1]:
            self.within[-1].flows.append(flow)
        else:
            self.blocks.saw(lambda: reader(self.masks, *args, **kwargs), flow, self.frames)
        return output

    def attend(
        self, function: Callable[..., AttentionOutput], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AttentionOutput:
        """Call a function of foci that attends, and record its handle instead of the functions of torch it calls."""
        within = Within(self.frames[-1])
        self.within.append(within)
        try:
            attended = function(*args, **kwargs)
        finally:
            self.within.remove(within)
        # Without a graph an input may be a cache, written to at the next step; a graph's own tensors are not.
        written = [given for given in (*args, *kwargs.values()) if isinstance(given, Tensor) and given.grad_fn is None]
        flow = within.flows[0] if len(within.flows) == 1 else None
        self.blocks.saw(lambda: independent(attended.weights, written), flow, self.frames)
        return attended

    def observe(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call an attention function of transformers; where nothing of torch is seen in it, read its arguments."""
        before = self.blocks.attended
        output = function(*args, **kwargs)
        if self.blocks.attended != before:
            return output
        name, edits = self.blocks.begin(self.frames) if self.blocks.edits else ("", [])
        if edits:
            with self._hide():
                call = attended_by(name, of_registered(self.masks, *args, **kwargs))
                if changed(call, edits):
                    self.blocks.saw(lambda: Weights.from_tensor(call.weights), None, self.frames, edited=True)
                    return read_registered(call.weights, call.kept, *args, **kwargs), *output[1:]
        self.blocks.saw(lambda: of_registered(self.masks, *args, **kwargs), None, self.frames)
        return output

    def enter(self, module: nn.Module, args: tuple[Any, ...] = (), *, reading: bool = False) -> None:
        """Push a frame for a module that is called."""
        # A fused layer never calls its attention, so a recording of the attention alone needs the layer's call.
        if not self.blocks.knows(module) and not (is_encoder_layer(module) and self.blocks.knows(module.self_attn)):
            return
        if self.frames:
            self.frames[-1].called.append(module)
        self.blocks.saw_called(module)
        fusible = not reading and is_fusible(module) and not self.blocks.looks_inside(module)
        frame = Frame(module, reading, fusible, self.watching, is_mechanism(module))
        if not reading:
            frame.pieces = pieces_of(module)
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
        for projections in self.blocks.projections:
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
                self.blocks.add(module, lambda: {name: independent(one, given) for name, one in answers.items()}, flow)
            if frame.reading and len(depths) > 1:
                self.frames[depths[-2]].answered = True
        elif frame.fusible and isinstance(module, nn.MultiheadAttention):
            attention = module
            self.blocks.add(
                module,
                lambda: {"": record_torch.of_multi_head_module(self.masks, attention, length, *args, **kwargs)},
            )
        elif frame.fusible and is_encoder_layer(module) and module.self_attn not in frame.called:
            layer = module
            self.blocks.add(
                module.self_attn,
                lambda: {"": record_torch.of_encoder_layer(self.masks, layer, length, *args, **kwargs)},
            )
        else:
            output = self._join(frame, args, kwargs, output)
        return output

    def _join(self, frame: Frame, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        """Take together what a module read in pieces: bands, or the calls of a differential attention."""
        if frame.pieces is not None and frame.pieces.softmaxes:
            frame.pieces.call = record_torch.bind(type(frame.module).forward, frame.module, *args, **kwargs)
            with self._hide():
                joined = frame.pieces.join(frame.module, frame.pieces)
            if joined is not None:
                for tape, entry in frame.seen:
                    tape._drop(entry)
                output = self._reread_joined(frame, joined, output)
        factor = factor_of(frame.module) if frame.seen else None
        if factor is not None:
            for tape in {id(tape): tape for tape, _ in frame.seen}.values():
                tape._subtracts([entry for other, entry in frame.seen if other is tape], factor)
        return output

    def _reread_joined(self, frame: Frame, joined: Joined, output: Any) -> Any:
        """Record the attention of a module, and return its output, or what its edited weights read."""
        name, edits = self.blocks.begin([*self.frames, frame]) if self.blocks.edits else ("", [])
        call, weights = joined.attended(name), joined.weights
        with self._hide():
            if edits and changed(call, edits):
                weights = Weights.from_tensor(call.weights)
                output = joined.finish(joined.read_with(call.weights, call.kept), output)
        self.blocks.add(frame.module, lambda: {"": weights})
        return output

    def unwind(self, depth: int) -> None:
        """Drop the frames from ``depth`` on: several after a KeyboardInterrupt, when torch did not call the hook."""
        while len(self.frames) > depth:
            self._watch(self.frames.pop().was_watching)
        if not self.frames:
            self.masks.forget()
            self.written_out.forget()

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
        if not self.blocks.wants_gradients:
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
            for session in self.blocks.active:
                inner = [frame for frame in self.frames if frame.module in session.paths]
                if inner:
                    session.watched.softmaxes.append((found, session.paths[inner[-1].module]))
        elif isinstance(found, Delayed):
            return found.result()
        elif found is not None:
            frames = [frame for frame in self.frames if frame.number in found.softmax.place]
            is_whole = self.frames[-1].pieces is None  # else its weights are edited when it returns
            if self.blocks.edits and is_whole and found.softmax.edits is None:
                found.softmax.edits = self.blocks.begin(frames)
            if self.blocks.edits and is_whole and found.softmax.edits[1]:
                output = self._reread(found, output, frames)
            elif found.is_first:
                self._saw_written_out(found, frames)
            if found.later is None:
                found.product = None  # the tape keeps what was found, and need not keep values
        return output

    def _saw_written_out(self, found: Read, frames: Sequence[Frame]) -> None:
        """Record weights that were multiplied with values."""
        flow = None
        if found.computed.requires_grad and self.blocks.wants_gradients:
            flow = Flow(found.computed, None, found.arranged)
            found.computed.retain_grad()
        arranged = None if found.is_settled else found  # else that is still to be done
        self.blocks.saw(
            lambda: Weights.from_tensor(found.arranged(found.computed)), flow, frames or self.frames, arranged
        )

    def _reread(self, found: Read, output: Any, frames: Sequence[Frame]) -> Any:
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
            self.blocks.saw(
                lambda: Weights.from_tensor(call.weights), None, frames or self.frames, arranged, edited=True
            )
        return self.written_out.replaced(output, found.read_with(call.weights, call.kept))

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
        if not self.blocks.edits or (self.rereading and self.rereading[-1] is self.frames[-1]):
            return function(*args, **kwargs)
        name, edits = self.blocks.begin(self.frames, part)
        self.rereading.append(self.frames[-1])
        try:
            if not edits:
                return function(*args, **kwargs)
            with self._hide():
                found = read_edited(name, edits, function, how, args, kwargs)
            if not self.within and not self.frames[-1].is_mechanism:
                self.blocks.saw(lambda: found.weights, None, self.frames, edited=True)
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


def _handles(arguments: object) -> list[Weights]:
    """Return the handles among the arguments of a call."""
    leaves = tree_leaves(arguments, is_leaf=lambda one: isinstance(one, Weights))
    return [leaf for leaf in leaves if isinstance(leaf, Weights)]
