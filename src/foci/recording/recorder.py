"""Record what any PyTorch model attends to, without changing what it computes.

    with foci.record(model) as tape:
        model(inputs)
    tape["encoder.layers.0.self_attn"].dense()      # (B, H, L, S)

Recorded are the mechanisms of foci, `torch.nn.MultiheadAttention`, and every call of `foci.attend`,
`torch.nn.functional.scaled_dot_product_attention` or `multi_head_attention_forward`, hence also the models of Hugging
Face with their default attention. The tape holds handles (`foci.weights.Weights`): queries, keys and masks are
kept, weights are computed on request. They are the weights before dropout.

Not recorded is attention of other kinds: a softmax over products in the model's own code, flex_attention, the kernels
of packages such as flash-attn, and anything inside TorchScript or an exported program.

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
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ParamSpec, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.overrides import TorchFunctionMode

from foci import torch_private
from foci.errors import ConfigError, UnknownNameError, unknown_name
from foci.outputs import AttentionOutput, weights_of
from foci.recording import torch_calls as record_torch
from foci.recording.transforms import after_transforms
from foci.weights import Weights
from foci.weights.handle import independent
from foci.weights.sources import Dense

Arguments = ParamSpec("Arguments")

ROOT = "."
"""The path of the model itself: no module inside it can have this name."""

_NOTHING = (
    "No attention was recorded: either the model was not called in the with-block, or it attends in a way that cannot "
    "be recorded, such as a softmax in its own code (Hugging Face: choose attn_implementation='sdpa')."
)


@contextmanager
def record(model: nn.Module, *, detach: bool = False, gradients: bool = False) -> Iterator[Recording]:
    """Record every attention that runs inside ``model`` during the with-block; the `Recording` stays usable after it.

    Args:
        model: any module, in training or evaluation, on any device. Call modules as modules: ``model.forward(x)``
            bypasses the hooks. A compiled model runs eagerly in the block, and has the paths of the model it was
            made from.
        detach: detach the weights from the graph. Otherwise weights recorded with gradients on are part of it: a
            penalty on their entropy can be added to the loss, but the graph is kept as long as the tape.
        gradients: keep what `Recording.gradient` needs of calls that are part of a graph: those of mechanisms of foci
            that compute their weights, and of `scaled_dot_product_attention`.

    Only this thread is recorded. Blocks may be nested or overlap, on one model or several; each has its own tape.
    What activation checkpointing computes a second time, in the backward pass, is not recorded a second time.

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
    watcher = _thread.watcher
    watcher.recordings.append(recording)
    try:
        _process.start(recording.paths)
        yield recording.tape
    finally:
        watcher.recordings.remove(recording)
        if not watcher.recordings:
            watcher.unwind(0)
        _process.stop()


class Recording(Mapping[str, Weights]):
    """What was attended to, in order of execution: module path -> `Weights`.

    The first call of the module ``encoder.attention`` has the key ``"encoder.attention"``, the next
    ``"encoder.attention#1"``, and so on; ``tape["encoder.attention", 1]`` is the same, and
    ``tape.calls("encoder.attention")`` lists them all. The model itself is ``"."``. A module registered
    under several names has the first. Further weights of a mechanism have a suffix after a colon: ``"path:read"`` and
    ``"path:write"`` of a memory, ``"path:left"`` and ``"path:right"`` of a pair.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._calls: dict[str, list[_Entry]] | None = None

    @property
    def paths(self) -> list[str]:
        """Each path once, in order of its first call."""
        return list(self._by_path())

    def calls(self, path: str) -> list[Weights]:
        """Return the weights of every call of this path."""
        return [entry.read() for entry in self._entries_of(path)]

    def gradient(self, path: str, call: int = 0) -> Tensor | None:
        """Return the gradient of what was called backward on, with respect to the weights of a call: ``(B, H, L, S)``.

        A fused call has no weights of its own: its output is ``weights · values``, so the gradient is that of the
        output times the values. None if the block was opened without ``gradients``, if `backward` has not reached the
        call, or if a fused call has dropped weights out.
        """
        flow = self._entries_of(path)[call].flow
        if flow is None or flow[0].grad is None:
            return None
        (output, value), reached = flow, flow[0].grad
        if value is None:
            return reached
        if value.shape[-3] != output.shape[-3]:  # some heads share their values
            value = value.repeat_interleave(output.shape[-3] // value.shape[-3], dim=-3)
        gradient: Tensor = reached @ value.transpose(-2, -1)
        return gradient

    def __getitem__(self, key: str | tuple[str, int]) -> Weights:
        path, number = key if isinstance(key, tuple) else _split(key)
        calls = self._entries_of(path)
        if not -len(calls) <= number < len(calls):
            raise UnknownNameError(f"unknown call {number} of {path!r}. Its calls are 0 to {len(calls) - 1}.")
        return calls[number].read()

    def __iter__(self) -> Iterator[str]:
        counts: dict[str, int] = {}
        for entry in self._entries:
            number = counts[entry.path] = counts.get(entry.path, -1) + 1
            yield f"{entry.path}#{number}" if number else entry.path

    def __len__(self) -> int:
        return len(self._entries)

    def check_not_empty(self, owner: str) -> None:
        """Raise an error that says why there may be nothing on the tape, if there is nothing."""
        if not self._entries:
            raise ConfigError(f"{owner}: the recording is empty. {_NOTHING}")

    def __repr__(self) -> str:
        if not self._entries:
            return f"Recording of 0 attentions\n  {_NOTHING}"
        lines = [f"Recording of {len(self)} attention{'s' if len(self) > 1 else ''}"]
        width = max(len(path) for path in self.paths)
        for path, calls in self._by_path().items():
            shape = str(tuple(calls[0].read().shape))
            if len(calls) > 1:
                shape += f" … {tuple(calls[-1].read().shape)}, {len(calls)} calls"
            lines.append(f"  {path:<{width}}  {shape}")
        return "\n".join(lines)

    def _by_path(self) -> dict[str, list[_Entry]]:
        if self._calls is None:
            self._calls = {}
            for entry in self._entries:
                self._calls.setdefault(entry.path, []).append(entry)
        return self._calls

    def _entries_of(self, path: str) -> list[_Entry]:
        entries = self._by_path().get(_spelled(path))
        if entries is None:
            raise self._unknown(path)
        return entries

    def _unknown(self, path: str) -> UnknownNameError:
        if not self._entries:
            return UnknownNameError(f"unknown path {path!r}. {_NOTHING}")
        return unknown_name("path", path, self.paths)

    def _add(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._calls = None

    def _drop(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._calls = None


_Flow = tuple[Tensor, Tensor | None]
"""The output of a fused call and its values; or the weights themselves. The first keeps its gradient."""


@dataclass(eq=False)
class _Entry:
    path: str
    weights: Weights
    flow: _Flow | None = None  # for `Recording.gradient`

    def read(self) -> Weights:
        """Return the weights, of all entries once the `vmap` they were recorded in is over."""
        self.weights = after_transforms(self.weights)
        return self.weights


@dataclass(eq=False)
class _Session:
    """One with-block: its tape, and the path of every module of its model."""

    tape: Recording
    paths: dict[nn.Module, str]
    detach: bool
    gradients: bool = False

    def add(self, module: nn.Module, suffix: str, weights: Weights, flow: _Flow | None = None) -> _Entry:
        if not self.gradients:
            flow = None
        elif flow is None and isinstance(weights.source, Dense) and weights.source.weights.requires_grad:
            flow = weights.source.weights, None
            flow[0].retain_grad()
        if self.detach:
            weights = weights.detach()
        entry = _Entry(self.paths[module] + suffix, weights, flow)
        self.tape._add(entry)
        return entry


@dataclass(eq=False)
class _Frame:
    """A module that runs: its `forward` or, when ``reading``, its `read`."""

    module: nn.Module
    reading: bool
    fusible: bool  # it may take a fused path of torch, which is enabled only while no mode is on
    was_watching: bool  # whether the mode was on when the module was called
    length: int = 0  # of the source of an nn.TransformerEncoder, padding included
    called: list[nn.Module] = field(default_factory=list)
    seen: list[tuple[Recording, _Entry]] = field(default_factory=list)  # functions that attend, called by itself
    answered: bool = False  # its `read` was recorded, so its `forward` need not be


@dataclass(eq=False)
class _Within:
    """A function of foci that attends, called by the innermost module, and what torch's functions in it give."""

    frame: _Frame
    flows: list[_Flow | None] = field(default_factory=list)


class _Watcher(TorchFunctionMode):
    """One thread's recordings, the modules that run in it, and the mode that sees the functions they call."""

    def __init__(self) -> None:
        super().__init__()
        self.recordings: list[_Session] = []
        self.frames: list[_Frame] = []
        self.watching = False
        self.masks = record_torch.Copies()
        self.within: list[_Within] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function and, when it attends, record it."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        # The weights of a fusible module are computed when it returns.
        if func in record_torch.FUNCTIONS and self.frames and not self.frames[-1].fusible:
            flow = self._flow(func, output, args, kwargs)
            if self.within and self.within[-1].frame is self.frames[-1]:
                self.within[-1].flows.append(flow)
            else:
                self._saw(record_torch.FUNCTIONS[func](self.masks, *args, **kwargs), flow)
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
        frame = _Frame(module, reading, not reading and _is_fusible(module), self.watching)
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
        answers = {suffix: independent(weights, (args, kwargs)) for suffix, weights in weights_of(output).items()}
        if answers:
            # The weights that a module returns replace those of the functions that it called.
            flows = [entry.flow for _, entry in frame.seen if entry.flow is not None and entry.flow[1] is not None]
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

    def knows(self, module: nn.Module) -> bool:
        """Return whether the module belongs to a model that is recorded."""
        return any(module in recording.paths for recording in self.recordings)

    def _watch(self, on: bool) -> None:
        """Turn the mode on or off. Below a mode of the user it stays on: that one disables the fused paths anyway."""
        if on and not self.watching:
            self.__enter__()  # type: ignore[no-untyped-call]
            self.watching = True
        elif not on and self.watching and torch_private.current_function_mode() is self:
            self.__exit__(None, None, None)
            self.watching = False

    def _flow(self, func: Callable[..., Any], output: Any, args: Any, kwargs: Any) -> _Flow | None:
        """What the gradient of the weights is computed from, if it was requested and is available."""
        if not any(recording.gradients for recording in self.recordings):
            return None
        flow = record_torch.flow_of_dot_products(func, output, args, kwargs)
        if flow is not None:
            flow[0].retain_grad()
        return flow

    def _saw(self, weights: Weights, flow: _Flow | None) -> None:
        """Record a function that attends for the innermost module of each model."""
        for recording in self._active():
            frames = [frame for frame in self.frames if frame.module in recording.paths]
            if frames:
                frames[-1].seen.append((recording.tape, recording.add(frames[-1].module, "", weights, flow)))

    def _add(self, module: nn.Module, answers: Mapping[str, Weights], flow: _Flow | None = None) -> None:
        """Record what a module attended to."""
        for recording in self._active():
            if module in recording.paths:
                for suffix, weights in answers.items():
                    recording.add(module, suffix, weights, flow)

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
        self.blocks = 0
        self.undo: list[Callable[[], object]] = []

    def start(self, modules: Iterable[nn.Module]) -> None:
        with self.lock:
            self.blocks += 1
            if self.blocks == 1:
                self._install_hooks()
                self._run_eagerly()
            for module in modules:
                self._wrap_read(module)

    def stop(self) -> None:
        with self.lock:
            self.blocks -= 1
            if not self.blocks:
                while self.undo:
                    self.undo.pop()()

    def _install_hooks(self) -> None:
        before = all_modules.register_module_forward_pre_hook(_on_call)
        after = all_modules.register_module_forward_hook(_on_return, with_kwargs=True, always_call=True)
        self.undo += [before.remove, after.remove]
        self.undo.append(lambda: torch_private.forget_hook_with_kwargs(after.id))

    def _run_eagerly(self) -> None:
        if "torch._dynamo" not in sys.modules:
            return  # nothing has been compiled yet, and importing the compiler takes seconds
        stance = torch.compiler.set_stance("force_eager")
        self.undo.append(lambda: stance.__exit__(None, None, None))
        # Compiled modules warn that hooks run twice. These do not: the wrapper of a compiled module has no path.
        warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
        self.undo.append(functools.partial(_unfilter, warnings.filters[0]))

    def _wrap_read(self, module: nn.Module) -> None:
        """Wrap `read`, which decoders call at each step: in the class, so that copies of the module are unmodified."""
        owner = next((cls for cls in type(module).__mro__ if "read" in vars(cls)), None)
        if owner is None or not callable(getattr(module, "prepare", None)):
            return
        read = vars(owner)["read"]
        if isinstance(read, FunctionType) and not hasattr(read, "_is_watched"):
            owner.read = _watched(read)  # type: ignore[attr-defined]
            self.undo.append(functools.partial(setattr, owner, "read", read))


_thread = _Thread()
_process = _Process()


def _unfilter(entry: tuple[Any, ...]) -> None:
    """Take this entry out of the filters of `warnings`, unless someone has reset them."""
    if entry in warnings.filters:
        cast(list[Any], warnings.filters).remove(entry)


def _on_call(module: nn.Module, args: tuple[Any, ...]) -> None:
    watcher = _thread.watcher
    if watcher.recordings and not torch.compiler.is_compiling():
        watcher.enter(module, args)


def _on_return(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
    watcher = _thread.watcher
    if watcher.recordings and not torch.compiler.is_compiling():
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # after an exception torch passes no kwargs
        watcher.leave(module, args, kwargs, output)


def _watched(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        watcher = _thread.watcher
        if watcher.frames and watcher.frames[-1].reading and watcher.frames[-1].module is module:
            return read(module, *args, **kwargs)  # super().read(…)
        watcher.enter(module, reading=True)
        output = None
        try:
            output = read(module, *args, **kwargs)
        finally:
            watcher.leave(module, args, kwargs, output)
        return output

    watched._is_watched = True  # type: ignore[attr-defined]
    return watched


def recordable(function: Callable[Arguments, AttentionOutput]) -> Callable[Arguments, AttentionOutput]:
    """Let `record` see the calls of a function that attends."""

    @functools.wraps(function)
    def recorded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AttentionOutput:
        if torch.compiler.is_compiling() or not _process.blocks or not _thread.watcher.frames:
            return function(*args, **kwargs)
        return _thread.watcher.attend(function, args, kwargs)

    return recorded


def _paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module; a module wrapped by `torch.compile` has the path of its wrapper."""
    paths = {}
    for name, module in model.named_modules():
        if "_orig_mod" not in module._modules:
            paths[module] = ".".join(part for part in name.split(".") if part != "_orig_mod") or ROOT
    return paths


def _is_encoder_layer(module: nn.Module) -> TypeGuard[nn.TransformerEncoderLayer]:
    return type(module) is nn.TransformerEncoderLayer


def _is_fusible(module: nn.Module) -> bool:
    """Return whether the module has a fused inference path, which calls none of the recorded functions."""
    if module.training:
        return False
    if isinstance(module, nn.MultiheadAttention):
        return getattr(module.forward, "__func__", None) is nn.MultiheadAttention.forward
    return _is_encoder_layer(module) or type(module) is nn.TransformerEncoder


def _spelled(path: str) -> str:
    """Return the path as the tape writes it: the model itself may be "" too, as in `named_modules`."""
    return ROOT + path if path[:1] in ("", ":") else path


def _split(key: str) -> tuple[str, int]:
    """``"path#2"`` -> ``("path", 2)``."""
    path, mark, number = key.rpartition("#")
    return (path, int(number)) if mark and number.isdecimal() and number[0] != "0" else (key, 0)
