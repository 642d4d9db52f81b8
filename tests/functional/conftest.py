"""Fixtures for the tests of a C++ kernel, which call their module's ``kernel``."""

import pytest
from active_kernel import skip_unless_active


@pytest.fixture
def active(request):
    """Skips where the kernel cannot run."""
    skip_unless_active(request.module.kernel)


@pytest.fixture
def missing(request):
    """As on a machine without a compiler."""
    with request.module.kernel._KERNEL.off():
        yield
