"""The tape: its order, names and errors, and what it keeps of the graph."""

from __future__ import annotations

import pytest
import torch
from recorded import Caller, D, Layers, S, randn
from torch import nn
from torch.utils.checkpoint import checkpoint

from foci.errors import ConfigError, FociError
from foci.recording import record

# ---------------------------------------------------------------- the tape


def test_tape_is_a_mapping_in_order_of_execution():
    model, x = Layers(), torch.randn(2, S, 5)
    with record(model) as tape:
        assert tape.paths == []
        for length in range(1, 4):
            model(x[:, :length])
            assert len(tape.calls("calls.2")) == length
    assert list(tape)[:5] == ["calls.0", "calls.1", "calls.2", "calls.0#1", "calls.1#1"]
    assert len(tape) == len(tape.items()) == 9
    assert tape.paths == ["calls.0", "calls.1", "calls.2"]
    assert tape["calls.1#2"] is tape["calls.1", 2] is tape["calls.1", -1] is tape.calls("calls.1")[2]
    assert tape["calls.1", 0] is tape["calls.1"]
    assert [tuple(weights.shape) for weights in tape.calls("calls.0")] == [(2, n, n) for n in (1, 2, 3)]
    assert "calls.1#2" in tape
    assert "calls.1#3" not in tape
    assert "calls.1#0" not in tape
    assert "elsewhere" not in tape
    assert tape.get("elsewhere") is None
    assert repr(tape) == (
        "Recording of 9 attentions\n"
        "  calls.0  (2, 1, 1) … (2, 3, 3), 3 calls\n"
        "  calls.1  (2, 1, 1) … (2, 3, 3), 3 calls\n"
        "  calls.2  (2, 1, 1) … (2, 3, 3), 3 calls"
    )


@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
def test_errors_of_the_tape():
    model = Layers()
    with record(model) as tape:
        pass
    with pytest.raises(KeyError, match=r"unknown path 'calls.0'\. No attention was recorded"):
        tape["calls.0"]
    assert "No attention was recorded" in repr(tape)
    with record(model) as tape:
        model(torch.randn(2, S, 5))
    with pytest.raises(FociError, match=r"^unknown path 'call.1'. Did you mean 'calls.\d'"):
        tape["call.1"]
    with pytest.raises(KeyError, match=r"unknown path 'call.1'"):
        tape.calls("call.1")
    with pytest.raises(KeyError, match=r"unknown call 4 of 'calls.1'. Its calls are 0 to 0"):
        tape["calls.1", 4]


def test_what_is_no_module_is_refused():
    with pytest.raises(ConfigError, match=r"model is a list, expected a torch\.nn\.Module"), record([Caller()]):
        pass


def test_the_model_itself_and_a_module_in_two_places():
    shared = Caller()
    model = nn.ModuleDict({"first": shared, "second": shared})
    x = randn(2, S, D)
    with record(model) as tape:
        model["second"](x, x, x)
    assert list(tape) == ["first"]
    with record(shared) as tape:
        shared(x, x, x)
    assert tape[""] is tape["."] is tape.calls("")[0]


# ---------------------------------------------------------------- gradients


def test_weights_belong_to_the_graph_unless_detached():
    model, x = Layers(), torch.randn(2, S, 5)
    with record(model) as tape, record(model, detach=True) as detached:
        loss = model(x).square().mean()
    (loss + sum(weights.entropy().mean() for weights in tape.values())).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.layers.parameters())
    assert tape["calls.2"].dense().requires_grad
    assert not detached["calls.2"].dense().requires_grad
    assert torch.equal(tape["calls.2"].dense(), detached["calls.2"].dense())


@pytest.mark.parametrize("build", [Layers, lambda: nn.TransformerEncoderLayer(5, 1, 7, 0.0, batch_first=True)])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_records_once_and_gives_the_same_gradients(build, reentrant):
    model, x = build(), torch.randn(2, S, 5, requires_grad=True)
    for mode in (True, False):
        model.train(mode)
        model(x).sum().backward()
        want = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        with record(model) as tape:
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), want))
        assert all(len(tape.calls(path)) == 1 for path in tape.paths)
        assert len(tape) == (3 if isinstance(model, Layers) else 1)
        model.zero_grad()
