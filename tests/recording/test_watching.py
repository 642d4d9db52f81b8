"""What is installed to watch a model: errors, hooks and modes of the user, threads, and the compiler."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded import D, Decoder, L, Layers, Reader, S, close, randn
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foci.recording import Recording, record


class Fails(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.inner = Layers()
        self.error: BaseException | None = error

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.error is not None:
            raise self.error
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_an_exception_leaves_nothing_behind(error):
    model, x = nn.Sequential(nn.Identity(), Fails(error)), torch.randn(2, S, 5)
    with pytest.raises(type(error)), record(model) as tape:
        model(x)
    assert len(tape) == 3
    assert torch.overrides._get_current_function_mode_stack() == []
    model[1].error = error
    with record(model) as tape:
        with pytest.raises(type(error)):
            model(x)
        model[1].error = None
        model(x)
    assert tape.paths == [f"1.inner.calls.{n}" for n in range(3)] + ["1"]
    assert len(tape.calls("1.inner.calls.0")) == 2
    assert len(tape.calls("1")) == 1


def test_a_failing_read_leaves_nothing_behind():
    model = Decoder(Reader())
    with record(model) as tape:
        with pytest.raises(RuntimeError):
            model.attention.read(randn(2, L, D), randn(2, S, D + 1))
        model.attention.read(randn(2, L, D), randn(2, S, D))
    assert list(tape) == ["attention"]


def test_hooks_of_the_user_run_once_and_are_seen():
    model = nn.ModuleDict({"mha": nn.MultiheadAttention(6, 2, batch_first=True).eval()})
    calls = []
    x = torch.randn(2, S, 6)

    def double_the_query(module: nn.Module, args: Any, kwargs: Any) -> Any:
        calls.append(module)
        return (2 * args[0], *args[1:]), kwargs

    model["mha"].register_forward_pre_hook(double_the_query, with_kwargs=True)
    with record(model) as tape:
        _, want = model["mha"](x, x, x, average_attn_weights=False)
    assert len(calls) == 1
    assert close(tape["mha"].dense(), want)


def test_threads_have_tapes_of_their_own():
    model, x = Layers(), torch.randn(2, S, 5)
    tapes: dict[int, Recording] = {}
    together = threading.Barrier(3)

    def work(number: int) -> None:
        together.wait()
        if number == 0:
            model(x)
        else:
            with record(model) as tapes[number]:
                for _ in range(number):
                    model(x)
        together.wait()

    with record(model) as tape:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [len(each) for each in (tape, tapes[1], tapes[2])] == [3, 3, 6]  # the first has no block of its own


def test_a_mode_of_the_user():
    class Count(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func is F.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Layers(6)
            self.mha = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers(x)
            with Count() as self.count:
                return self.layers(self.mha(x, x, x)[0])

    model, x = Model().eval(), torch.randn(2, S, 6)
    with torch.no_grad(), Count() as outer:
        want = model(x)
        with record(model) as tape:
            got = model(x)
    assert torch.equal(got, want)
    assert model.count.seen == 3
    assert outer.seen == 12
    assert tape.paths == [f"layers.calls.{n}" for n in range(3)] + ["mha"]
    assert len(tape.calls("mha")) == 1
    assert len(tape.calls("layers.calls.1")) == 2


# ---------------------------------------------------------------- torch.compile


@pytest.mark.slow
def test_compiled_models_run_eagerly_and_keep_their_paths():
    x = torch.randn(2, S, 5)
    plain = Layers()
    compiled = torch.compile(plain, backend="eager", fullgraph=True)
    want = compiled(x)
    inside = nn.Sequential(torch.compile(plain, backend="eager"), nn.Identity())
    in_place = copy.deepcopy(plain)
    in_place.compile(backend="eager")
    with (
        warnings.catch_warnings(action="error"),
        record(compiled) as tape,
        record(inside) as nested,
        record(in_place) as third,
    ):
        assert torch.allclose(compiled(x), want)
        assert torch.allclose(inside(x), want)
        assert torch.allclose(in_place(x), want)
    assert list(tape)[:3] == list(third) == ["calls.0", "calls.1", "calls.2"]
    assert nested.paths == ["0.calls.0", "0.calls.1", "0.calls.2"]
    assert torch._dynamo.eval_frame._stance.stance == "default"
    mechanism = torch.compile(Reader(), backend="eager")
    with record(mechanism) as tape:
        mechanism(x, x)
    assert list(tape) == ["."]
    assert torch.allclose(compiled(x), want)


@pytest.mark.slow
def test_a_model_compiled_inside_the_block_still_runs(tmp_path):
    import subprocess
    import sys

    program = tmp_path / "late.py"
    program.write_text(
        "import sys, torch\n"
        "from foci.recording import record\n"
        "model = torch.nn.TransformerEncoderLayer(6, 2, 11, batch_first=True, dropout=0.0)\n"
        "x = torch.randn(2, 7, 6)\n"
        "with record(model) as tape:\n"
        "    assert 'torch._dynamo' not in sys.modules\n"
        "    compiled = torch.compile(model, backend='eager', fullgraph=True)\n"
        "    assert torch.allclose(compiled(x), model(x))\n"
        "assert list(tape) == ['self_attn'], tape\n"
    )
    subprocess.run([sys.executable, str(program)], check=True)
