"""How the calls of a model are noticed: hooks of torch, wrapped methods, and functions of foci that say so themselves.

Global module hooks identify the calling module. The model itself is not modified, so it can be copied or saved in a
block; what is installed is taken out at the end of the last one.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ParamSpec, cast

import torch
from torch import nn
from torch.nn.modules import module as all_modules

from foci import torch_private
from foci.outputs import AttentionOutput
from foci.recording.registered import wrap_registered
from foci.recording.rereading import Reread
from foci.recording.watching.session import PROCESS, Session
from foci.recording.watching.watcher import Watcher

Arguments = ParamSpec("Arguments")


@contextmanager
def watching(session: Session) -> Iterator[None]:
    """Watch the model of this session during the with-block."""
    for module, path in session.paths.items():
        session.watched.watch(module, path)
    watcher = _thread.watcher
    watcher.blocks.own.append(session)
    try:
        _shared.start(session)
        yield
    finally:
        watcher.blocks.own.remove(session)
        if not watcher.blocks.own:
            watcher.unwind(0)
        _shared.stop(session)


class _Thread(threading.local):
    """The recordings of each thread, as torch keeps one stack of modes per thread."""

    def __init__(self) -> None:
        self.watcher = Watcher()


class _Shared:
    """What all threads share (hooks, wrapped reads, the compiler's stance), from the first block to the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.undo: list[Callable[[], object]] = []

    def start(self, recording: Session) -> None:
        with self.lock:
            PROCESS.open(recording)
            if len(PROCESS.sessions) == 1:
                self._install_hooks()
                self._run_eagerly()
                self.undo += wrap_registered(_observed)
            for module in recording.paths:
                self._wrap(module, "forward")
                if callable(getattr(module, "prepare", None)):
                    self._wrap(module, "read")

    def stop(self, recording: Session) -> None:
        with self.lock:
            PROCESS.close(recording)
            if not PROCESS.sessions:
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
_shared = _Shared()


def _unfilter(entry: tuple[Any, ...]) -> None:
    """Take this entry out of the filters of `warnings`, unless someone has reset them."""
    if entry in warnings.filters:
        cast(list[Any], warnings.filters).remove(entry)


def _on_call(module: nn.Module, args: tuple[Any, ...]) -> None:
    if torch.compiler.is_compiling():
        return
    watcher = _thread.watcher
    if watcher.blocks.all:
        watcher.enter(module, args)


def _on_return(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
    if torch.compiler.is_compiling():
        return None
    watcher = _thread.watcher
    if watcher.blocks.all:
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
        if inside or not watcher.blocks.all or not isinstance(module, nn.Module):
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
        if not watcher.blocks.all or not watcher.frames:
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
            if torch.compiler.is_compiling() or not PROCESS.sessions or not _thread.watcher.frames:
                return function(*args, **kwargs)
            return _thread.watcher.reread(function, how, part, args, kwargs)

        return edited

    return decorate


def recordable(function: Callable[Arguments, AttentionOutput]) -> Callable[Arguments, AttentionOutput]:
    """Let `record` see the calls of a function that attends."""

    @functools.wraps(function)
    def recorded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> AttentionOutput:
        if torch.compiler.is_compiling() or not PROCESS.sessions or not _thread.watcher.frames:
            return function(*args, **kwargs)
        return _thread.watcher.attend(function, args, kwargs)

    return recorded
