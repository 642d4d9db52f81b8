"""Tests of a C++ kernel run where it is active, and fail where it should be."""

import ctypes

import pytest

from foci.functional.kernels import build


def skip_unless_active(kernel):
    """Skip where the kernels are switched off or cannot be built; fail where this kernel was built and fails its check.

    Args:
        kernel: a module of `foci.functional.kernels` with a ``_KERNEL``.
    """
    found = kernel._KERNEL.status
    if found.active:
        return
    try:
        build.cache_folder()
        build._find_compiler()
    except build.BuildError as error:
        if build.load_library()[0] is None:
            pytest.skip(str(error))
    pytest.fail(f"the kernel {found.name} is not active: {found.reason}")


class WrongLibrary(ctypes.CDLL):
    """A library with two arguments of one of its functions exchanged; it loads nothing.

    Args:
        library: the library that is called.
        function: the name of the function.
        first: the position of the first of the two arguments, which are adjacent.
    """

    def __init__(self, library, function, first):
        self._library, self._function, self._first = library, function, first

    def __getattr__(self, name):
        function, first = getattr(self._library, name), self._first
        if name != self._function:
            return function
        return lambda *args: function(*args[:first], args[first + 1], args[first], *args[first + 2 :])
