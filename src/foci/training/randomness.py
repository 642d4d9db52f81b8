"""The random generators of Python, numpy and torch: seeding them, and saving their state as tensors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> dict[str, Tensor]:
    """Return the states of all random generators as tensors, for `restore_random_state`."""
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python.gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.from_numpy(np.array([*keys, position, has_gauss], dtype=np.int64)),
        "numpy.gauss": torch.tensor([cached], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor]) -> None:
    """Restore a state from `random_state`; a CUDA state is ignored without CUDA."""
    torch.set_rng_state(state["torch"])
    version, *words = state["python"].tolist()
    random.setstate((version, tuple(words), *(state["python.gauss"].tolist() or [None])))
    *keys, position, has_gauss = state["numpy"].tolist()
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, state["numpy.gauss"].item()))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the state of all random generators at the end of the block."""
    before = random_state()
    try:
        yield
    finally:
        restore_random_state(before)
