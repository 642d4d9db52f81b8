"""Differential attention: its softmaxes are on the tape, and beside them the difference that the model reads with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.recording import record

B, H, L, K = 2, 4, 7, 5


class Differential(nn.Module):
    """As in DiffLlama: two calls with the same queries and keys, whose halves of the heads are subtracted."""

    def __init__(self, *, written_out: bool = False, two_softmaxes: bool = False) -> None:
        super().__init__()
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            self.register_parameter(name, nn.Parameter(torch.randn(K)))
        self.lambda_init, self.written_out, self.two_softmaxes = 0.3, written_out, two_softmaxes

    def read(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.written_out:
            return (q @ k.mT / K**0.5).softmax(-1) @ v
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.two_softmaxes:  # as with kernels that know no halves
            first, second = self.read(q[:, : H // 2], k[:, : H // 2], v), self.read(q[:, H // 2 :], k[:, H // 2 :], v)
        else:
            halves = [self.read(q, k, half.repeat(1, 2, 1, 1)) for half in v.chunk(2, dim=-1)]
            first, second = torch.cat(halves, dim=-1).chunk(2, dim=1)
        one = (self.lambda_q1 * self.lambda_k1).sum().exp()
        return first - (one - (self.lambda_q2 * self.lambda_k2).sum().exp() + self.lambda_init) * second


@pytest.mark.parametrize("options", [{}, {"written_out": True}, {"two_softmaxes": True}], ids=str)
def test_the_difference_is_what_the_model_read_with(options: dict[str, Any]):
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("attention", Differential(**options))
    given = torch.randn(B, H, L, K), torch.randn(B, H, L, K), torch.randn(B, H // 2, L, 2 * K)
    with torch.no_grad(), record(model) as tape:
        for _ in range(2):
            want = model.attention(*given)
    calls = 2 if options.get("two_softmaxes") else 1
    assert len(tape) == 2 * calls
    for call in range(2):
        signed = tape.difference("attention", call)
        assert signed.shape == (B, H // 2, L, L)
        assert torch.allclose(signed.dense() @ given[2], want, atol=1e-5)
    assert torch.allclose(signed.heads(1).rows(2), signed.dense()[:, 1, 2])
    assert torch.allclose(signed.column_sums(), signed.dense().sum(-2), atol=1e-6)
    assert torch.equal(signed[1], signed.dense()[1])
    assert signed.entropy().isnan().all()
    assert tape["attention"].dense().min() >= 0
    reason = "recorded are its softmaxes; it reads with a difference of two, which tape.difference(path) returns"
    assert tape.missed == {"attention": reason}


def test_what_subtracts_nothing_is_refused():
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    model = Plain()
    with record(model) as tape:
        model(torch.randn(B, L, K))
    with pytest.raises(ConfigError, match=r"'\.' read with its softmax, expected a differential attention"):
        tape.difference(".")
