"""Set-up for every test: one thread that sleeps when idle, and fixed seeds."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported: its waiting threads otherwise spin

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(20260)
