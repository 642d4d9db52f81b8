"""A handle as a value: copied, pickled, saved, sent to another process, indexed, shown; for every catalog row."""

import base64
import copy
import io
import pickle

import numpy as np
import pytest
import torch
from cases import EVERY_CASE, any_inputs, make
from torch import multiprocessing

import foci
from foci.errors import ConfigError, ShapeError, StaleWeightsError
from foci.layers.incremental.hypotheses import as_rows, stack_steps
from foci.outputs import PairOutput
from foci.weights import Weights
from foci.weights.sources import Dense, DotSoftmax, Windowed

B, H, L, S, K = 2, 3, 5, 7, 4


def handles() -> dict[str, Weights]:
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


@pytest.fixture(params=list(handles()))
def weights(request):
    return handles()[request.param]


def saved(handle: object) -> object:
    buffer = io.BytesIO()
    torch.save(handle, buffer)
    buffer.seek(0)
    return torch.load(buffer)  # the default: weights_only


def sent(handle: object) -> object:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    queue.put(handle)
    return queue.get()


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda handle: pickle.loads(pickle.dumps(handle)),
    "torch.save": saved,
    "queue": sent,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_keep_the_exact_weights(weights, way):
    have = COPIES[way](weights)
    assert type(have) is type(weights)
    assert torch.equal(have.dense(), weights.dense())
    assert not have.dense().requires_grad
    for name in ("log_prob", "drawn_from"):
        assert (getattr(have, name) is None) == (getattr(weights, name) is None)
    assert torch.equal(have.entropy(), weights.entropy())
    assert copy.copy(weights).source is weights.source


@pytest.mark.parametrize("case", EVERY_CASE)
def test_every_row_of_the_catalog_can_be_copied(case):
    """What the mechanism returns as a whole: outputs, handles within handles, states."""
    with torch.no_grad():
        result = make(case)(*any_inputs(case))
    for make_copy in (copy.deepcopy, COPIES["pickle"], saved):
        have = make_copy(result)
        for ours, theirs in zip(have, result):
            if isinstance(theirs, Weights):
                assert torch.equal(ours.dense(), theirs.dense())
    if isinstance(result.weights if hasattr(result, "weights") else None, foci.HierarchicalWeights):
        assert torch.equal(have.weights.words.dense(), result.weights.words.dense())


def test_a_copy_is_independent_and_a_changed_handle_has_none():
    query = torch.randn(1, 4, 3)
    with torch.no_grad():
        weights = foci.attend(query, query, query).weights
        want = weights.dense()
        copies = [way(weights) for way in COPIES.values()]
        query += 1.0
    assert all(torch.equal(have.dense(), want) for have in copies)
    for way in (*COPIES.values(), Weights.detach, Weights.cpu):
        with pytest.raises(StaleWeightsError, match="was changed in place"):
            way(weights)
    kept = copies[0]
    kept.source.query.add_(1.0)
    with pytest.raises(StaleWeightsError):
        kept.dense()


def indices(shape: torch.Size) -> list[object]:
    last = tuple(size - 1 for size in shape)
    lead = (slice(None),) * (len(shape) - 2)
    every = [
        0,
        -1,
        slice(1, None),
        slice(0, 0),
        slice(None, None, 2),
        ...,
        last,
        (..., 2),
        (*lead, -1),
        (*lead, slice(0, 3), slice(2, 5)),
        (slice(None), 0),
        (0, ..., slice(None, 3)),
        (slice(0, 1), ..., 0, slice(1, -1)),
        (np.int64(0), torch.tensor(0)),
    ]
    return [index for index in every if not isinstance(index, tuple) or len(index) - (... in index) <= len(shape)]


def test_it_is_indexed_as_its_dense_weights_are(weights):
    dense = weights.dense()
    assert len(weights) == len(dense)
    for index in indices(dense.shape):
        torch.testing.assert_close(weights[index], dense[index], msg=lambda text, index=index: f"{index}: {text}")
    assert len(list(weights)) == len(dense)
    for ours, theirs in zip(weights, dense):
        torch.testing.assert_close(ours, theirs)
    corner = (0,) * dense.dim()
    assert float(weights[corner]) == pytest.approx(float(dense[corner]), abs=1e-6)
    assert weights[corner].requires_grad == dense.requires_grad


def test_an_entry_is_computed_alone(monkeypatch):
    """Of 4 entries, 3 heads and 5 queries, the rows of one each."""
    sizes = []
    scores = DotSoftmax.scores
    monkeypatch.setattr(
        DotSoftmax, "scores", lambda self, rows: sizes.append(scores(self, rows)[0].numel()) or scores(self, rows)
    )
    weights = Weights(DotSoftmax(torch.randn(4, H, L, K), torch.randn(4, H, S, K), 1.0))
    assert weights[2, 1, 3].shape == (S,)
    assert weights[1].shape == (H, L, S)
    assert sizes == [S, H * L * S]


def test_what_a_handle_is_not_says_dense():
    weights = handles()["dots"]
    for index in ([0, 1], torch.tensor([0, 1]), None, True, (0, [1]), weights.dense() > 0.5, 1.0):
        with pytest.raises(ShapeError, match=r"Use weights\.dense\(\)"):
            weights[index]
    for index in (B, -B - 1, (0, H), (0, 0, L), (0, 0, 0, S), (0, 0, 0, 0, 0)):
        with pytest.raises(IndexError):
            weights[index]
    for name in ("mean", "numpy", "T", "view", "item"):
        with pytest.raises(AttributeError, match=rf"weights\.dense\(\)\.{name}"):
            getattr(weights, name)
    with pytest.raises(AttributeError, match=r"no attribute 'entropi'$"):
        weights.entropi  # noqa: B018
    with pytest.raises(ShapeError, match="expected 1"):
        float(weights)
    with pytest.raises(ConfigError, match=r"dense\(\)"):
        weights.to(torch.float64)
    with pytest.raises(ValueError, match="always a copy"):
        np.array(weights, copy=False)


def test_devices_graphs_and_arrays(weights):
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


def test_it_says_what_it_is():
    every = handles()
    assert repr(every["dots"]) == "Weights(shape=(2, 3, 5, 7), dtype=float32, device=cpu, held='query and key')"
    assert "held='query and key'" in repr(every["mean"])
    assert "held='all weights, sampled'" in repr(every["steps"])
    assert "held='channel and spatial'" in repr(every["maps"])
    pair = foci.build("attention_over_attention")(torch.randn(1, 3, 5), torch.randn(1, 2, 5))
    assert isinstance(pair, PairOutput)
    assert "dtype=float32" in repr(pair)


@pytest.mark.parametrize("name", ["dots", "pool", "maps"])
def test_a_notebook_shows_its_heat_map(name):
    weights = handles()[name]
    bundle = weights._repr_mimebundle_()
    assert bundle["text/plain"] == repr(weights)
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert list(weights._repr_mimebundle_(include=["text/plain"])) == ["text/plain"]


def test_a_handle_that_is_too_large_for_a_picture_is_text():
    weights = Weights(DotSoftmax(torch.randn(1, 8, 1000, K), torch.randn(1, 8, 1000, K), 1.0))
    assert list(weights._repr_mimebundle_()) == ["text/plain"]
