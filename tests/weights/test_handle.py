"""The handle: every method equals the dense weights, for every kind of source, and in chunks."""

import base64
import subprocess
import sys

import numpy as np
import pytest
import torch

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.functional.kernels.softmax_rows import FusedSoftmax
from foci.outputs import PairOutput
from foci.weights import Weights
from foci.weights import handle as results
from foci.weights.sources import Dense, DotSoftmax, Windowed

B, H, L, S, K = 2, 3, 5, 7, 4


def sources():
    torch.manual_seed(1)
    query, key = torch.randn(B, H, L, K), torch.randn(B, H, S, K)
    mask = masks.keys(masks.lengths([0, 4], S)).unsqueeze(1)
    return {
        "dots": DotSoftmax(query, key, 0.5),
        "masked": DotSoftmax(query, key, 0.5, mask=mask, bias=torch.randn(1, H, L, S)),
        "causal": DotSoftmax(query, key, 0.5, window=(None, 0)),
        "upper left": DotSoftmax(query, key, 0.5, window=(2, 0), offset=0),
        "grouped": DotSoftmax(torch.randn(B, 6, L, K), key, 0.5, mask=mask, window=(1, 2)),
        "kernel": FusedSoftmax(query, key, 0.5, mask=mask, bias=torch.randn(1, H, L, S), window=(3, 2)),
        "one batch of keys": DotSoftmax(query, key[:1], 0.5),
        "dense": Dense(torch.softmax(torch.randn(B, H, L, S), dim=-1)),
        "windowed": Windowed(torch.rand(B, H, L, 3), torch.randint(-1, S - 1, (B, H, L)), S),
    }


@pytest.fixture(params=list(sources()))
def weights(request, monkeypatch):
    monkeypatch.setattr(results, "_CHUNK", 2 * B * H * S)  # two rows at a time
    return Weights(sources()[request.param])


def test_shape_and_rows(weights):
    dense = weights.dense()
    assert weights.shape == dense.shape
    torch.testing.assert_close(dense, weights.source.rows(slice(None)))
    for index in (0, -1, 3, slice(1, 4), [0, 2], torch.tensor([4, 1])):
        torch.testing.assert_close(weights.rows(index), dense[..., index, :])


def test_reductions(weights):
    dense = weights.dense()
    values, cells = weights.topk(3)
    torch.testing.assert_close(values, dense.topk(3).values)
    torch.testing.assert_close(dense.gather(-1, cells), values)
    assert torch.equal(dense.gather(-1, weights.argmax().unsqueeze(-1)), dense.amax(-1, keepdim=True))
    torch.testing.assert_close(weights.entropy(), torch.special.entr(dense).sum(-1))
    chosen = torch.rand(B, 1, S) > 0.5
    torch.testing.assert_close(weights.mass(chosen), (dense * chosen.unsqueeze(1)).sum(-1))
    per_row = torch.rand(B, L, S) > 0.5
    torch.testing.assert_close(weights.mass(per_row), (dense * per_row.unsqueeze(1)).sum(-1))


def test_the_largest_of_long_rows():
    """Longer than four times the groups, with a rest that belongs to none."""
    torch.manual_seed(3)
    weights = torch.softmax(3 * torch.randn(2, 5, 2503), dim=-1)
    values, cells = Weights.from_tensor(weights).topk(17)
    assert torch.equal(values, weights.topk(17).values)
    assert torch.equal(cells, weights.topk(17).indices)


def test_heads(weights):
    dense = weights.dense()
    torch.testing.assert_close(weights.heads(1).dense(), dense[:, 1])
    torch.testing.assert_close(weights.heads(slice(1, 3)).dense(), dense[:, 1:3])
    torch.testing.assert_close(weights.heads(torch.tensor([2, 0])).dense(), dense[:, [2, 0]])
    torch.testing.assert_close(weights.heads(1).entropy(), torch.special.entr(dense[:, 1]).sum(-1))
    mean = weights.mean_heads()
    assert mean.shape == (B, L, S)
    torch.testing.assert_close(mean.dense(), dense.mean(1))
    torch.testing.assert_close(mean.topk(2)[0], dense.mean(1).topk(2).values)
    with pytest.raises(ShapeError, match="before the mean|head axis"):
        mean.heads(0)


def test_reductions_are_differentiable(monkeypatch):
    monkeypatch.setattr(results, "_CHUNK", 10)
    query = torch.randn(2, L, K, dtype=torch.float64, requires_grad=True)
    key = torch.randn(2, S, K, dtype=torch.float64, requires_grad=True)
    mask = masks.keys(masks.lengths([0, 4], S))

    def run(query, key):
        weights = foci.attend(query, key, key, mask).weights
        return weights.entropy(), weights.topk(2)[0], weights.mass(masks.causal(L, S))

    assert torch.autograd.gradcheck(run, (query, key))


def test_a_head_may_be_named_by_a_tensor(weights):
    """As `weights.entropy().mean((0, 2)).argmax()` names it."""
    torch.testing.assert_close(weights.heads(torch.tensor(1)).dense(), weights.dense()[:, 1])


def test_no_rows_are_an_empty_answer(weights):
    for index in ([], (), torch.empty(0, dtype=torch.long), slice(0, 0)):
        assert weights.rows(index).shape == weights.dense()[..., :0, :].shape


@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_argmax_without_cells_is_cell_0(normalize):
    query, none = torch.randn(1, 2, K), torch.randn(1, 0, K)
    assert foci.attend(query, none, none, normalize=normalize).weights.argmax().tolist() == [[0, 0]]


def test_causal_keeps_a_window_that_ends_before_its_own_key():
    query = torch.randn(1, 3, K)
    dense = foci.attend(query, query, query, foci.masks.window(3, 3, 3, -1), causal=True).weights.dense()
    assert (dense[0] > 0).tolist() == [[False, False, False], [True, False, False], [True, True, False]]


def test_wrong_calls():
    weights = Weights.from_tensor(torch.ones(B, L, S))
    with pytest.raises(ConfigError, match="expected 0 to 7"):
        weights.topk(8)
    with pytest.raises(ShapeError, match="head axis"):
        weights.heads(0)
    with pytest.raises(ShapeError, match="torch.bool"):
        weights.mass(torch.ones(B, L, S))


def test_nothing_of_size_L_by_S_is_kept_or_built_at_4096():
    """Run in this process with a counting allocator: the largest tensor any operation makes stays a chunk."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        cells = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    Largest.cells = max(Largest.cells, tensor.untyped_storage().nbytes())
            return out

    query = torch.randn(1, 8, 4096, 16, requires_grad=True)
    weights = foci.attend(query, query, query).weights
    with Largest():
        values, _ = weights.topk(8)
        entropy = weights.entropy()
    assert values.shape == (1, 8, 4096, 8)
    assert entropy.requires_grad
    assert Largest.cells < 17e6  # the dense matrix takes 537 MB


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
def test_memory_at_4096_stays_well_under_the_dense_matrix(grad):
    """Peak memory of a separate process: chunks must be freed, not only be small."""
    program = f"""
import resource, torch, foci
torch.set_num_threads(1)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
query = torch.randn(1, 8, 4096, 16, requires_grad={grad})
weights = foci.attend(query, query, query).weights
weights.rows(slice(0, 32)).topk(8)
before = peak()
values, entropy = weights.topk(8)[0], weights.entropy()
if {grad}:
    (values.sum() + entropy.sum()).backward()
print(peak() - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 100


def test_devices_graphs_and_arrays(held):
    weights = held
    dense = weights.dense()
    assert (weights.dtype, weights.device) == (dense.dtype, dense.device)
    array = np.asarray(weights)
    np.testing.assert_array_equal(array, dense.detach().numpy())
    array += 1.0  # a copy
    torch.testing.assert_close(weights.dense(), dense)
    assert np.asarray(weights, dtype=np.float64).dtype == np.float64
    detached = weights.detach()
    assert not detached.dense().requires_grad
    assert torch.equal(detached.dense(), dense)
    assert torch.equal(weights.cpu().dense(), dense)
    assert weights.to(torch.device("cpu")).dense().requires_grad == dense.requires_grad
    moved = weights.to("meta")
    assert (moved.device.type, moved.shape, moved.dense().shape) == ("meta", dense.shape, dense.shape)
    half = Weights.from_tensor(torch.rand(1, 2, 3, dtype=torch.bfloat16))
    assert np.asarray(half).dtype == np.float32
    assert float(Weights.from_tensor(torch.full((1, 1, 1), 0.5))) == 0.5


def test_it_says_what_it_is(handles):
    every = handles
    assert repr(every["dots"]) == "Weights(shape=(2, 3, 5, 7), dtype=float32, device=cpu, held='query and key')"
    assert "held='query and key'" in repr(every["mean"])
    assert "held='all weights, sampled'" in repr(every["steps"])
    assert "held='channel and spatial'" in repr(every["maps"])
    pair = foci.build("attention_over_attention")(torch.randn(1, 3, 5), torch.randn(1, 2, 5))
    assert isinstance(pair, PairOutput)
    assert "dtype=float32" in repr(pair)


@pytest.mark.parametrize("name", ["dots", "pool", "maps"])
def test_a_notebook_shows_its_heat_map(name, handles):
    weights = handles[name]
    bundle = weights._repr_mimebundle_()
    assert bundle["text/plain"] == repr(weights)
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert list(weights._repr_mimebundle_(include=["text/plain"])) == ["text/plain"]


def test_a_handle_that_is_too_large_for_a_picture_is_text():
    weights = Weights(DotSoftmax(torch.randn(1, 8, 1000, K), torch.randn(1, 8, 1000, K), 1.0))
    assert list(weights._repr_mimebundle_()) == ["text/plain"]


def test_column_sums(weights):
    torch.testing.assert_close(weights.column_sums(), weights.dense().sum(dim=-2))


def test_gradients_of_column_sums_without_the_matrix(monkeypatch):
    monkeypatch.setattr(results, "_CHUNK", 2 * S)
    query, key = (torch.randn(B, size, K, dtype=torch.float64, requires_grad=True) for size in (L, S))
    chosen = torch.randn(S, dtype=torch.float64)
    handle = Weights(DotSoftmax(query, key, 0.5))
    got = torch.autograd.grad((handle.column_sums() * chosen).sum(), (query, key))
    want = torch.autograd.grad((handle.dense().sum(-2) * chosen).sum(), (query, key))
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_a_kernel_that_gives_its_log_sum_exp(causal):
    query, key = torch.randn(B, 6, L, K), torch.randn(B, H, S, K)
    mask = masks.keys(masks.lengths([4, 6], S)).unsqueeze(1)
    scores = query @ key.repeat_interleave(2, dim=1).mT * 0.3
    allowed = mask & masks.causal(L, S) if causal else mask
    scores = scores.masked_fill(~allowed, -torch.inf)
    handle = Weights.from_lse(query, key, scores.logsumexp(-1), scale=0.3, mask=mask, causal=causal)
    want = scores.softmax(-1).nan_to_num()
    torch.testing.assert_close(handle.dense(), want)
    torch.testing.assert_close(handle.rows([0, 3]), want[..., [0, 3], :])
    torch.testing.assert_close(handle.heads(5).topk(2)[0], want[:, 5].topk(2).values)
    torch.testing.assert_close(handle.entropy(), torch.special.entr(want).sum(-1))
    torch.testing.assert_close(handle.column_sums(), want.sum(-2))
    with pytest.raises(
        ConfigError, match=r"from_lse: a row sums to \d.*expected at most 1\. The lse is that of another"
    ):
        Weights.from_lse(query, key, scores.logsumexp(-1) - 1, scale=0.3, mask=mask, causal=causal)
    with pytest.raises(ShapeError, match=r"lse has shape \(2, 5, 6\), expected \(2, 6, 5\).*query\.transpose\(1, 2\)"):
        Weights.from_lse(query, key, scores.logsumexp(-1).mT, scale=0.3)
