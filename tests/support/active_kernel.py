"""Tests of a C++ kernel run where it is active, and fail where it should be."""

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
        if build._load_library()[0] is None:
            pytest.skip(str(error))
    pytest.fail(f"the kernel {found.name} is not active: {found.reason}")
