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


class Mixer(nn.Module):
    """A state space whose class is not called one, with the parameter that all of them have."""

    def __init__(self) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.zeros(K))

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1) * self.A_log


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
            self.unread, self.idle, self.mixer = UnreadAttention(), SelfAttention(), Mixer()
            self.gated = SelfAttention()
            self.gated.gate = Mixer()

        def forward(self, x: Tensor) -> None:
            for module in (self.seen, self.state, self.kernel, self.unread, self.mixer, self.gated):
                module(x)

    model = Two()
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert tape.missed == {
        "state": "no attention weights: recurrent state",
        "kernel": "neither a softmax nor a call of a known attention was seen in it",
        "unread": "its softmax was not multiplied with values in a way that is recognized",
        "idle": "it was not called in the block",
        "mixer": "no attention weights: recurrent state",
        "gated": "no attention weights: recurrent state",
    }
    assert repr(tape).splitlines() == [
        "Recording of 1 attention",
        "  seen.attention  (2, 7, 7)",
        "Not recorded, or not whole",
        *(f"  {path:<14}  {reason}" for path, reason in tape.missed.items()),
    ]
    with pytest.raises(KeyError, match="'state' was not recorded: no attention weights: recurrent state"):
        tape["state"]


def test_helpers_inside_of_a_recorded_attention_are_not_named():
    class QueryProjectionAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    class WithHelpersAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Sequential(QueryProjectionAttention())

        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(self.query(x) @ x.mT, dim=-1) @ x

    model = nn.Sequential(WithHelpersAttention())
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert list(tape) == ["0"]
    assert tape.missed == {}


def test_weights_of_which_only_some_columns_are_known_are_named():
    class GlobalAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = F.softmax(x @ x.mT, dim=-1)
            return weights[..., :3] @ x[:, :3] + weights[..., 3:].cumsum(-1).mean()

    model = GlobalAttention()
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert tape["."].shape == (B, S, 3)
    assert tape.missed == {
        ".": "recorded are only some columns of its weights; it reads the others in another way",
    }
    assert "not whole" in repr(tape)


def test_a_block_that_recorded_nothing_warns():
    model = nn.Sequential(nn.Linear(K, K))
    with pytest.warns(UserWarning, match="No attention was recorded: the model was not called") as seen, record(model):
        pass
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="neither torch's attention, nor foci's, nor a softmax"), record(model):
        model(torch.randn(B, K))
    states = nn.Sequential(MambaMixer(), Mixer())
    with pytest.warns(UserWarning, match="'0' and 1 more read by a recurrent state, which has no"), record(states):
        states(torch.randn(B, S, K))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no"), record(model):
            raise ValueError("no")  # one message is enough


class Reader(nn.Module):
    def forward(self, values):
        return (values @ values.mT).softmax(dim=-1) @ values


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchscript_is_named():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(K, K)))
    with record(scripted) as tape:
        pass
    assert "the model is of TorchScript" in repr(tape)
    reader = torch.jit.trace(Reader(), torch.randn(B, S, K))  # whatever its class is called
    for model, path in ((reader, "."), (nn.Sequential(nn.Linear(K, K), reader), "1")):
        with record(model) as tape:
            model(torch.randn(B, S, K))
        assert tape.missed == {path: "TorchScript: its code cannot be watched; record the model it was made from"}
        assert f"the attention of {path!r} is TorchScript" in repr(tape)
    with record(scripted) as tape:
        scripted(torch.randn(B, K))
    assert tape.missed == {}
