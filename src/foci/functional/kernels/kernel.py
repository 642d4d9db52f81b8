"""One C++ kernel: loaded and checked on first use, and inactive where that fails."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from foci import torch_private
from foci.functional.kernels import build

ADDRESS: Any = ctypes.c_void_p
SIZE: Any = ctypes.c_int64
COUNT: Any = ctypes.c_int
REAL: Any = ctypes.c_float

_NUMBERS = {int, float, bool, type(None)}

Signature = tuple[Any, Sequence[Any]]
"""The type of a function's result, None for none, and those of its arguments."""


class KernelStatus(NamedTuple):
    """Whether a kernel is used, and why (not)."""

    name: str
    active: bool
    reason: str


class Kernel:
    """A kernel of the compiled library.

    Args:
        name: its source is ``cpp/name.cpp``.
        functions: the signatures of its functions, ``foci_name_function`` in the library.
        check: returns whether the library computes a small example correctly; see `self_check`.
        dtypes: in which it computes.
    """

    def __init__(
        self,
        name: str,
        functions: Mapping[str, Signature],
        check: Callable[[ctypes.CDLL], bool],
        dtypes: Sequence[torch.dtype] = (torch.float32,),
    ) -> None:
        self.name = name
        self._functions = functions
        self._check = check
        self._dtypes = dtypes
        self._asked = False
        self._library: ctypes.CDLL | None = None
        self._reason = ""

    @property
    def library(self) -> ctypes.CDLL | None:
        """The library that holds the kernel, or None where the kernel is inactive."""
        if not self._asked:
            with build.LOCK:
                if not self._asked:
                    self._library, self._reason = self._load()
                    self._asked = True
        return self._library

    @property
    def status(self) -> KernelStatus:
        """Load the kernel if it was not loaded yet."""
        active = self.library is not None
        return KernelStatus(self.name, active, self._reason)

    def suits(self, *tensors: Tensor) -> bool:
        """Return whether the tensors are on a CPU, in dtypes that the kernel computes in."""
        return all(tensor.is_cpu and tensor.dtype in self._dtypes for tensor in tensors)

    def library_for(self, *tensors: Tensor) -> ctypes.CDLL | None:
        """Return the library if the kernel suits these tensors and is active."""
        return self.library if self.suits(*tensors) else None

    @contextmanager
    def off(self) -> Iterator[None]:
        """Use the plain form, as where there is no compiler; for tests and benchmarks."""
        library, self._library = self.library, None
        try:
            yield
        finally:
            self._library = library

    def _load(self) -> tuple[ctypes.CDLL | None, str]:
        library, reason = build.load_library()
        if library is None:
            return None, reason
        try:
            for name, (result, arguments) in self._functions.items():
                function = getattr(library, f"foci_{self.name}_{name}")
                function.restype, function.argtypes = result, arguments
        except AttributeError as error:  # a function that the library does not have
            return None, f"the library does not fit this version of foci: {error}"
        # The first use may be anywhere, and the check differentiates: what it saves is not for the caller's hooks, such
        # as those of activation checkpointing, which counts the saved tensors, nor its numbers for the caller's vmap.
        own_hooks = saved_tensors_hooks(_as_it_is, _as_it_is)
        with torch.inference_mode(False), torch.enable_grad(), own_hooks, torch_private.outside_transforms():
            passed = self._check(library)
        if passed:
            return library, reason
        return None, "the compiled kernel gave wrong numbers in its self-check; compile it with another CXX"


def _as_it_is(saved: Tensor) -> Tensor:
    return saved


def in_both_precisions(functions: Mapping[str, Signature]) -> dict[str, Signature]:
    """Return the signatures of functions that exist as ``name_float32`` and ``name_float64``."""
    return {f"{name}_{suffix}": one for name, one in functions.items() for suffix in ("float32", "float64")}


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the library with tensors, which are passed by their addresses, numbers and None."""
    return function(*[one if type(one) in _NUMBERS else one.data_ptr() for one in arguments])


def threads(work: int, per_thread: int, rows: int | None = None) -> int:
    """Return the number of threads: one per ``per_thread`` of the work, no more than there are rows to share out."""
    count = min(torch.get_num_threads(), 1 + work // per_thread)
    return count if rows is None else max(1, min(count, rows))


def wants_gradients(*tensors: Tensor) -> bool:
    """Return whether autograd records what is computed from these tensors."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
