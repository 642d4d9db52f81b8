"""The contract is tried on the fused kernel though its inputs are short; test_short_sequences has the plain path."""

import pytest

from foci.functional import attend


@pytest.fixture(autouse=True)
def fused_kernel_for_short_sequences(monkeypatch):
    monkeypatch.setattr(attend, "_SHORT", 0)
    monkeypatch.setattr(attend, "_SHORT_ALONE", 0)
