"""Handles that are copied, pickled, saved, or sent to another process."""

import copy
import io
import pickle

import pytest
import torch
from cases import EVERY_CASE, any_inputs, make
from torch import multiprocessing

import foci
from foci.errors import StaleWeightsError
from foci.weights import Weights


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
def test_copies_keep_the_exact_weights(held, way):
    weights = held
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
