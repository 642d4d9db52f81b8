"""One handle of each way to hold weights."""

from __future__ import annotations

import pytest
import torch

import foci
from foci.layers.incremental.hypotheses import as_rows, stack_steps
from foci.weights import Weights
from foci.weights.sources import Dense, DotSoftmax, Windowed

B, H, L, S, K = 2, 3, 5, 7, 4


def all_handles() -> dict[str, Weights]:
    """One of each way to hold weights."""
    torch.manual_seed(1)
    query, key = torch.randn(B, H, L, K, requires_grad=True), torch.randn(1, H, S, K)
    mask = foci.masks.keys(foci.masks.lengths([3, S], S)).unsqueeze(1)
    dots = Weights(DotSoftmax(query, key, 0.5, mask=mask))
    grouped = DotSoftmax(torch.randn(B, 2 * H, L, K), key.expand(B, -1, -1, -1), 0.5, window=(2, 0))
    rows = Weights(Dense(torch.rand(B, L, S).softmax(-1)))
    step = [Weights.from_tensor(torch.rand(B, 1, S), torch.rand(B, 1), torch.rand(B, 1, S)) for _ in range(L)]
    return {
        "dots": dots,
        "recorded": foci.attend(query, key, key, mask).weights,
        "grouped": Weights(grouped),
        "one head": dots.heads(slice(1, 2)),
        "mean": dots.mean_heads(),
        "rows": rows,
        "windowed": Weights(Windowed(torch.rand(B, L, 3), torch.randint(-1, S - 1, (B, L)), S)),
        "hypotheses": as_rows(rows),
        "steps": stack_steps(step),
        "maps": foci.build("cbam", channels=6)(torch.randn(B, 6, L, S)).weights,
        "pool": foci.build("pool", value_dim=K)(torch.randn(B, S, K)).weights,
        "queries alone": foci.attend(torch.randn(L, K), torch.randn(S, K), torch.randn(S, K)).weights,
    }


@pytest.fixture
def handles():
    return all_handles()


@pytest.fixture(params=list(all_handles()))
def held(request):
    return all_handles()[request.param]
