"""`foci.attend` in a model of one's own: recorded once per call, by every path."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded import D, Decoder, Reader, S, close, randn
from torch import Tensor, nn

import foci
from foci.errors import ConfigError, ShapeError
from foci.functional import scores
from foci.outputs import AttentionOutput
from foci.recording import record

OPTIONS: dict[str, dict[str, Any]] = {
    "fused": {},
    "masked": {"mask": torch.arange(S).ge(2).view(1, 1, S)},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "bias": {"bias": torch.randn(1, S, S).double()},
    "dot": {"score": "dot"},
    "cosine": {"score": "cosine"},
    "own score": {"score": functools.partial(scores.additive, vector=torch.randn(D).double())},
    "sparsemax": {"normalize": "sparsemax"},
    "sigmoid": {"normalize": "sigmoid"},
    "hard": {"normalize": "hard"},
    "sample": {"normalize": "sample"},
    "dropout": {"dropout": 0.5},
}


class Own(nn.Module):
    """Self-attention as a user writes it."""

    def __init__(self, calls: int = 1, **options: Any) -> None:
        super().__init__()
        self.layer, self.calls, self.options = nn.Linear(D, D).double(), calls, options
        self.handles: list[foci.Weights] = []

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.calls):
            output, weights, _ = foci.attend(self.layer(x), x, x, **self.options)
            self.handles.append(weights)
            x = x + output
        return x


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_path_is_recorded_once(name, gradients):
    model, x = nn.Sequential(Own(**OPTIONS[name])), randn(2, S, D)
    with torch.set_grad_enabled(gradients), record(model) as tape:
        model(x)
    assert list(tape) == ["0"]
    assert close(tape["0"].dense(), model[0].handles[0].dense())
    assert tape["0"].dense().requires_grad == (gradients and name not in ("hard", "sample"))


@pytest.mark.parametrize("length", [4, 100, 600])
@pytest.mark.parametrize("gradients", [True, False])
def test_every_length(length, gradients):
    """Plain products, torch's kernel and the band."""
    model, x = Own(calls=2, window=(5, 7)), randn(1, length, D)
    with torch.set_grad_enabled(gradients), record(model) as tape:
        output = model(x)
    assert list(tape) == [".", ".#1"]
    model.handles.clear()
    with torch.set_grad_enabled(gradients):
        assert torch.equal(model(x), output)
    for recorded, own in zip(tape.values(), model.handles):
        assert close(recorded.dense(), own.dense())


def test_results_and_gradients_stay_the_same():
    model, x = Own(calls=2), randn(2, S, D)
    model(x).square().sum().backward()
    want, model.layer.weight.grad = model.layer.weight.grad, None
    with record(model):
        model(x).square().sum().backward()
    assert torch.equal(model.layer.weight.grad, want)


@pytest.mark.parametrize("length", [4, 100])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_gradients_of_the_weights(length, normalize):
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return foci.attend(x, x, x, normalize=normalize).output

    x = torch.randn(1, 2, length, D, dtype=torch.float64, requires_grad=True)
    with record(model := Plain(), gradients=True) as tape:
        (model(x) * torch.arange(D)).sum().backward()
    want = torch.arange(D).double().expand(1, 2, length, D) @ x.detach().mT
    assert close(tape.gradient("."), want)


def test_mechanisms_that_call_it_are_recorded_once_by_their_own_handle():
    class Halved(nn.Module):
        def forward(self, x: Tensor) -> AttentionOutput:
            output, weights, _ = foci.attend(x, x, x, normalize="sparsemax")
            return AttentionOutput(output / 2, foci.Weights.from_tensor(weights.dense() / 2))

    model, x = nn.ModuleList([Halved()]), randn(2, S, D)
    with record(model) as tape:
        model[0](x)
    assert list(tape) == ["0"]
    assert close(tape["0"].dense().sum(-1), torch.full((2, S), 0.5))
    steps = Decoder(Reader())
    with record(steps) as tape:
        steps(x, x)
    assert [tuple(weights.shape) for weights in tape.values()] == [(2, 1, S)] * S


def test_what_it_calls_is_not_recorded_beside_it():
    class Bilinear(nn.Module):
        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, key) @ key.mT

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = Bilinear()

        def forward(self, x: Tensor) -> Tensor:
            return foci.attend(x, x, x, score=self.score).output

    model, x = Model(), randn(2, S, D)
    with record(model) as tape:
        model(x)
    assert list(tape) == ["score", "."]  # a module of the model, called by attend, has its own entry


def test_the_tape_is_independent_of_later_changes_in_place():
    class Normed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            cache = x * 2
            output = foci.attend(cache, cache, cache).output
            cache.zero_()
            return output

    x = randn(2, S, D)
    with torch.no_grad(), record(model := Normed()) as tape:
        model(x)
    assert close(tape["."].dense(), torch.softmax((2 * x) @ (2 * x).mT / D**0.5, -1))


def test_an_error_within_leaves_nothing_behind():
    model, x = Own(score=lambda query, key: query @ query.mT @ key), randn(2, S, D)
    with record(model) as tape:
        with pytest.raises(ShapeError):
            model(x)
        model.options = {}
        model(x)
    assert len(tape) == 1


def test_only_within_the_model_and_in_threads_of_the_block():
    model, x = Own(), randn(2, S, D)
    with record(model) as tape:
        foci.attend(x, x, x)
        assert len(tape) == 0
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()
    assert list(tape) == ["."]


@pytest.mark.slow
def test_it_compiles_to_one_graph_and_exports_within_a_block_and_without():
    model, x = Own(normalize="sparsemax"), randn(2, S, D)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert close(compiled(x), model(x))
    with record(compiled) as tape:
        compiled(x)
    assert list(tape) == ["."]
    assert close(compiled(x), model(x))
    model.handles.clear()

    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return foci.attend(x, x, x).output

    exported = torch.export.export(Bare(), (x,))
    assert close(exported.module()(x), Bare()(x))


@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
def test_an_empty_recording_is_no_trace():
    with record(Own()) as tape:
        pass
    with pytest.raises(ConfigError, match=r"Trace.from_tape: the recording is empty\. No attention was recorded"):
        foci.Trace.from_tape(tape, {"text": list("abcd")})
