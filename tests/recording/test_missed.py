"""What looks like attention and was not recorded is named, with the reason, and an empty block warns."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foci.recording import record

B, S, K = 2, 7, 11


class ByHand(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x @ x.mT, dim=-1) @ x


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = ByHand()

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x)


class MambaMixer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class SelfAttention(nn.Module):
    """With a kernel that nothing can see into."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)


class UnreadAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x @ x.mT, dim=-1).topk(2).values


def test_missed_names_what_looks_like_attention_and_why_it_has_no_weights():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.state, self.kernel = Nested(), MambaMixer(), SelfAttention()
            self.unread, self.idle = UnreadAttention(), SelfAttention()

        def forward(self, x: Tensor) -> None:
            for module in (self.seen, self.state, self.kernel, self.unread):
                module(x)

    model = Two()
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert tape.missed == {
        "state": "no attention weights: recurrent state",
        "kernel": "neither a softmax nor a call of a known attention was seen in it",
        "unread": "its softmax was not multiplied with values in a way that is recognized",
        "idle": "it was not called in the block",
    }
    assert repr(tape).splitlines() == [
        "Recording of 1 attention",
        "  seen.attention  (2, 7, 7)",
        "Not recorded",
        *(f"  {path:<14}  {reason}" for path, reason in tape.missed.items()),
    ]
    with pytest.raises(KeyError, match="'state' was not recorded: no attention weights: recurrent state"):
        tape["state"]


def test_a_block_that_recorded_nothing_warns():
    model = nn.Sequential(nn.Linear(K, K))
    with pytest.warns(UserWarning, match="No attention was recorded: the model was not called") as seen, record(model):
        pass
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="neither torch's attention, nor foci's, nor a softmax"), record(model):
        model(torch.randn(B, K))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no"), record(model):
            raise ValueError("no")  # one message is enough


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchscript_is_named():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(K, K)))
    with record(scripted) as tape:
        pass
    assert "the model is of TorchScript" in repr(tape)
