"""Every test starts from one seed, and must leave no hook, mode or wrapped method behind."""

from __future__ import annotations

import pytest
import torch
from torch.nn.modules import module as all_modules

from foci.mechanisms.heads.multi_head import MultiHeadAttention


@pytest.fixture(autouse=True)
def _seed_and_check_that_nothing_is_left():
    torch.manual_seed(0)
    read = MultiHeadAttention.read
    yield
    assert not all_modules._global_forward_hooks
    assert not all_modules._global_forward_pre_hooks
    assert not all_modules._global_forward_hooks_with_kwargs
    assert not all_modules._global_forward_hooks_always_called
    assert torch.overrides._get_current_function_mode_stack() == []
    assert MultiHeadAttention.read is read
