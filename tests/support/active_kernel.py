"""Tests of a C++ kernel run where it does."""

import pytest


def skip_unless_active(kernel):
    """A machine without a compiler is a reason to skip; a kernel that computes wrongly is not."""
    found = kernel._KERNEL.status
    assert "wrong numbers" not in found.reason
    if not found.active:
        pytest.skip(found.reason)
