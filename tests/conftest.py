"""Set-up for every test: one thread that sleeps when idle, and fixed seeds."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: its threads spin and starve each other

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(20260)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that say in their name that they misuse the API are marked so: the jaxtyping pass leaves them out."""
    for item in items:
        if any(word in item.name for word in ("wrong", "bad_", "refuse", "reject")):
            item.add_marker(pytest.mark.misuse)
