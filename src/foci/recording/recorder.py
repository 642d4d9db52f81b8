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
from foci.errors import ConfigError
from foci.outputs import AttentionOutput, weights_of
from foci.recording import torch_calls as record_torch
from foci.recording.projections import Projections
from foci.recording.registered import of_registered, wrap_registered
from foci.recording.tape import ROOT, Entry, Recording
from foci.recording.torch_calls import Flow
from foci.recording.written_out import Read, Softmax, WrittenOut
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
    if not isinstance(model, nn.Module):
        raise ConfigError(f"record: model is a {type(model).__name__}, expected a torch.nn.Module.")
    recording = _Session(Recording(), _paths(model), detach, gradients)
    if values:
        recording.tape._projections = Projections(recording.paths)
    for module, path in recording.paths.items():
        recording.tape._watched.watch(module, path)
    watcher = _thread.watcher
    watcher.own.append(recording)
    try:
        _process.start(recording)
        yield recording.tape
    finally:
        watcher.own.remove(recording)
        if not watcher.own:
            watcher.unwind(0)
        _process.stop(recording)
        if recording.tape._projections is not None:
            recording.tape._projections.forget_others(recording.tape.paths)
    if not recording.tape:
        warnings.warn(f"record: {recording.tape.why_empty}", stacklevel=3)


@dataclass(eq=False)
class _Session:
    """One with-block: its tape, and the path of every module of its model."""

    tape: Recording
    paths: dict[nn.Module, str]
    detach: bool
    gradients: bool = False

    def add(
        self,
        module: nn.Module,
        suffix: str,
        weights: Weights,
        flow: Flow | None = None,
        written_out: Read | None = None,
    ) -> Entry:
        if not self.gradients:
            flow = None
        elif flow is None and isinstance(weights.source, Dense) and weights.source.weights.requires_grad:
            flow = Flow(weights.source.weights)
            flow.tensor.retain_grad()
        if self.detach:
            weights = weights.detach()
        entry = Entry(self.paths[module] + suffix, weights, flow, written_out)
        self.tape._add(entry)
        return entry


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


@dataclass(eq=False)
class _Within:
    """A function of foci that attends, called by the innermost module, and what torch's functions in it give."""

    frame: _Frame
    flows: list[Flow | None] = field(default_factory=list)


class _Watcher(TorchFunctionMode):
    """One thread's recordings, the modules that run in it, and the mode that sees the functions they call."""

    def __init__(self) -> None:
        super().__init__()
        self.own: list[_Session] = []
        self.frames: list[_Frame] = []
        self.watching = False
        self.masks = record_torch.Copies()
        self.within: list[_Within] = []
        self.written_out = WrittenOut()

    @property
    def recordings(self) -> list[_Session]:
        """The blocks of this thread; where it has none, those of the main thread."""
        return self.own or _process.of_main_thread

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function and, when it attends, record it."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        # The weights of a fusible module are computed when it returns. Operators are compiled where they are called.
        if not self.frames or self.frames[-1].fusible or torch.compiler.is_compiling():
            return output
        reader = record_torch.reader_of(func)
        if reader is None:
            if not self.within and not self.frames[-1].is_mechanism:
                self._follow(self.written_out.see(func, args, kwargs, output, self._numbers))
            return output
        flow = self._flow(func, output, args, kwargs)
        if self.within and self.within[-1].frame is self.frames[-1]:
            self.within[-1].flows.append(flow)
        else:
            self._saw(reader(self.masks, *args, **kwargs), flow)
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
        self._saw(independent(attended.weights, written), within.flows[0] if len(within.flows) == 1 else None)
        return attended

    def enter(self, module: nn.Module, args: tuple[Any, ...] = (), *, reading: bool = False) -> None:
        """Push a frame for a module that is called."""
        # A fused layer never calls its attention, so a recording of the attention alone needs the layer's call.
        if not self.knows(module) and not (_is_encoder_layer(module) and self.knows(module.self_attn)):
            return
        if self.frames:
            self.frames[-1].called.append(module)
        for recording in self.recordings:
            if module in recording.paths:
                recording.tape._watched.called.add(recording.paths[module])
        fusible = not reading and _is_fusible(module) and not self._looks_inside
        frame = _Frame(module, reading, fusible, self.watching, _is_mechanism(module))
        if type(module) is nn.TransformerEncoder and args and not args[0].is_nested:
            frame.length = args[0].shape[1]
        self.frames.append(frame)
        self._watch(not frame.fusible)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Pop the frame of a module that returned, or that raised where there is no output."""
        depths = [depth for depth, frame in enumerate(self.frames) if frame.module is module]
        if not depths:
            return
        frame = self.frames[depths[-1]]
        length = next((outer.length for outer in reversed(self.frames) if outer.length), 0)
        self.unwind(depths[-1])
        if output is None:
            return
        for projections in self._projections():
            projections.saw(module, args, kwargs, output)
        answers = weights_of(output)
        if answers:
            passed = _handles((args, kwargs))  # a stage after reading returns the weights that it was given
            answers = {suffix: one for suffix, one in answers.items() if all(one is not other for other in passed)}
        if answers:
            answers = {suffix: independent(weights, (args, kwargs)) for suffix, weights in answers.items()}
            # The weights that a module returns replace those of the functions that it called.
            flows = [entry.flow for _, entry in frame.seen if entry.flow is not None and entry.flow.values is not None]
            for tape, entry in frame.seen:
                tape._drop(entry)
            if not frame.answered:
                self._add(module, answers, flows[0] if len(flows) == len(answers) == 1 else None)
            if frame.reading and len(depths) > 1:
                self.frames[depths[-2]].answered = True
        elif frame.fusible and isinstance(module, nn.MultiheadAttention):
            self._add(module, {"": record_torch.of_multi_head_module(self.masks, module, length, *args, **kwargs)})
        elif frame.fusible and _is_encoder_layer(module) and module.self_attn not in frame.called:
            weights = record_torch.of_encoder_layer(self.masks, module, length, *args, **kwargs)
            self._add(module.self_attn, {"": weights})

    def unwind(self, depth: int) -> None:
        """Drop the frames from ``depth`` on: several after a KeyboardInterrupt, when torch did not call the hook."""
        while len(self.frames) > depth:
            self._watch(self.frames.pop().was_watching)
        if not self.frames:
            self.masks.forget()
            self.written_out.forget()

    def knows(self, module: nn.Module) -> bool:
        """Return whether the module belongs to a model that is recorded."""
        return any(module in recording.paths for recording in self.recordings)

    def count(self) -> int:
        """Return how many attentions have been recorded."""
        return sum(len(recording.tape) for recording in self.recordings)

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
        if not any(recording.gradients for recording in self.recordings):
            return None
        flow = record_torch.flow_of(func, output, args, kwargs)
        if flow is not None:
            flow.tensor.retain_grad()
        return flow

    def _follow(self, found: Softmax | Read | None) -> None:
        """Record a softmax that was taken, or its product with values: for the innermost module that has both."""
        if isinstance(found, Softmax):
            for recording in self._active():
                inner = [frame for frame in self.frames if frame.module in recording.paths]
                if inner:
                    recording.tape._watched.softmaxes.append((found, recording.paths[inner[-1].module]))
        elif found is not None:
            flow = None
            if found.computed.requires_grad and any(recording.gradients for recording in self.recordings):
                flow = Flow(found.computed, None, found.arranged)
                found.computed.retain_grad()
            frames = [frame for frame in self.frames if frame.number in found.softmax.place]
            self._saw(Weights.from_tensor(found.arrange(found.computed)), flow, frames, found)

    def _saw(
        self,
        weights: Weights,
        flow: Flow | None,
        frames: Sequence[_Frame] | None = None,
        written_out: Read | None = None,
    ) -> None:
        """Record a function that attends for the innermost module of each model."""
        for recording in self._active():
            inner = [frame for frame in frames or self.frames if frame.module in recording.paths]
            if inner:
                entry = recording.add(inner[-1].module, "", weights, flow, written_out)
                inner[-1].seen.append((recording.tape, entry))

    def _add(self, module: nn.Module, answers: Mapping[str, Weights], flow: Flow | None = None) -> None:
        """Record what a module attended to."""
        for recording in self._active():
            if module in recording.paths:
                for suffix, weights in answers.items():
                    recording.add(module, suffix, weights, flow)

    @property
    def _looks_inside(self) -> bool:
        """Whether more than weights is asked for, which fused paths do not have."""
        return any(recording.gradients or recording.tape._projections for recording in self.recordings)

    def _projections(self) -> list[Projections]:
        """Return where values are kept."""
        found = (recording.tape._projections for recording in self._active())
        return [projections for projections in found if projections is not None]

    def _active(self) -> list[_Session]:
        # In the backward pass activation checkpointing runs modules again, which are on the tape already. Their
        # weights are still computed, since checkpointing requires the second run to do what the first did.
        return [] if torch_private.is_backward_running() else self.recordings


class _Thread(threading.local):
    """The recordings of each thread, as torch keeps one stack of modes per thread."""

    def __init__(self) -> None:
        self.watcher = _Watcher()


class _Process:
    """What all threads share (hooks, wrapped reads, the compiler's stance), from the first block to the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: list[_Session] = []
        self.of_main_thread: list[_Session] = []
        self.undo: list[Callable[[], object]] = []

    def start(self, recording: _Session) -> None:
        with self.lock:
            self.sessions = [*self.sessions, recording]
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

    def stop(self, recording: _Session) -> None:
        with self.lock:
            self.sessions = [other for other in self.sessions if other is not recording]
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
    if watcher.recordings:
        watcher.enter(module, args)


def _on_return(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
    if torch.compiler.is_compiling():
        return
    watcher = _thread.watcher
    if watcher.recordings:
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # after an exception torch passes no kwargs
        watcher.leave(module, args, kwargs, output)


def _watched(method: Callable[..., Any], *, reading: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # first: the compiler reads what follows, and knows no threads
            return method(module, *args, **kwargs)
        watcher = _thread.watcher
        frame = watcher.frames[-1] if watcher.frames else None
        # Inside of it already: called by its hook, or super().read(…)
        inside = frame is not None and frame.module is module and (frame.reading or not reading)
        if inside or not watcher.recordings or not isinstance(module, nn.Module):
            return method(module, *args, **kwargs)
        watcher.enter(module, args, reading=reading)
        output = None
        try:
            output = method(module, *args, **kwargs)
        finally:
            watcher.leave(module, args, kwargs, output)
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
        before = watcher.count()
        output = function(*args, **kwargs)
        if watcher.recordings and watcher.frames and watcher.count() == before:
            watcher._saw(of_registered(watcher.masks, *args, **kwargs), None)
        return output

    return observed


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


def _paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module; a module wrapped by `torch.compile` has the path of its wrapper."""
    paths = {}
    for name, module in model.named_modules():
        if "_orig_mod" not in module._modules:
            paths[module] = ".".join(part for part in name.split(".") if part != "_orig_mod") or ROOT
    return paths


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
