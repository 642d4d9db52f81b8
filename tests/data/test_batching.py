"""Batches: each example once per epoch, none over the limit, resumed and distributed exactly."""

import json
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foci.data.batching import (
    Batch,
    DummyBatch,
    PaddedExamples,
    PairExamples,
    Sequences,
    StreamBatches,
    TokenBatches,
    plan_batches,
)
from foci.data.pairs import Pair
from foci.data.tokenizer import BOS, EOS, Tokenizer
from foci.errors import ConfigError, DataError

LIMIT = 29
lengths = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=40)


def examples_of(sizes):
    """Pairs of these lengths; the first source token is the number of the pair."""
    source = [[4 + number] + [7] * (s - 1) for number, (s, _) in enumerate(sizes)]
    return PairExamples(Sequences(source, 70_000), Sequences([[5] * t for _, t in sizes], 9))


def stream_of(sizes, **options):
    return StreamBatches(list(enumerate(sizes)), encode_sizes, **options)


def encode_sizes(records):
    source = [[4 + number] + [7] * (s - 1) for number, (s, _) in records]
    return PairExamples(Sequences(source, 70_000), Sequences([[5] * t for _, (_, t) in records], 9))


def make(kind, sizes, **options):
    if kind == "tokens":
        return TokenBatches(examples_of(sizes), max_tokens=LIMIT, **options)
    return stream_of(sizes, max_tokens=LIMIT, buffer=7, **options)


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def rows_of(*batches):
    """The batches, and the rows of a dummy."""
    return [batch.row if isinstance(batch, DummyBatch) else batch for batch in batches]


def seen(batches):
    return [number - 4 for batch in batches for number in batch.source[:, 0].tolist()]


KINDS = pytest.mark.parametrize("kind", ["tokens", "stream"])


def test_a_batch_in_full():
    examples = PairExamples(Sequences([[5, 6, 7], [8]], 9), Sequences([[4], [6, 8]], 9))
    (batch,) = TokenBatches(examples, max_tokens=99).epoch(0)
    order = np.argsort(batch.source[:, 0].numpy())
    assert batch.source[order].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.source_valid[order].tolist() == [[True] * 3, [True, False, False]]
    assert batch.target[order].tolist() == [[BOS, 4, EOS, 0], [BOS, 6, 8, EOS]]
    assert batch.target_valid[order].tolist() == [[True] * 3 + [False], [True] * 4]
    assert batch.source.dtype == batch.target.dtype == torch.long


def test_ids_are_kept_small():
    assert Sequences([[65_535]], 65_536).ids.dtype == np.uint16
    assert Sequences([[65_536]], 65_537).ids.tolist() == [65_536]
    assert Sequences([], 10).lengths.tolist() == []


@KINDS
@settings(max_examples=20)
@given(sizes=lengths, seed=st.integers(0, 9), epoch=st.integers(0, 3), most=st.sampled_from([None, 1, 3]))
def test_every_example_once_an_epoch_and_no_batch_over_the_limit(kind, sizes, seed, epoch, most):
    batches = list(make(kind, sizes, seed=seed, max_examples=most).epoch(epoch))
    assert sorted(seen(batches)) == list(range(len(sizes)))
    for batch in batches:
        assert max(batch.source.numel(), batch.target.numel()) <= LIMIT
        assert most is None or len(batch.source) <= most
        assert batch.source_valid.any(dim=0).all()  # no wider than its longest row
        assert batch.target_valid.any(dim=0).all()
        for number, source, target in zip(batch.source[:, 0] - 4, batch.source_valid.sum(1), batch.target_valid.sum(1)):
            assert (int(source), int(target) - 2) == sizes[int(number)]


@KINDS
@settings(max_examples=12)
@given(sizes=lengths, stop=st.integers(0, 30), world=st.integers(1, 3))
def test_resuming_anywhere_goes_on_identically(kind, sizes, stop, world):
    whole = list(islice(make(kind, sizes, seed=5, rank=world - 1, world_size=world), stop + 12))
    first = make(kind, sizes, seed=5)
    list(islice(first, stop))
    state = json.loads(json.dumps(first.state_dict()))
    second = make(kind, sizes, seed=5, rank=world - 1, world_size=world)
    second.load_state_dict(state)
    for expected, batch in zip(whole[stop:], islice(second, 12), strict=True):
        assert same(*rows_of(expected, batch))
    again = islice(second, 1)  # a new loop goes on as well
    (after,) = islice(make(kind, sizes, seed=5, rank=world - 1, world_size=world), stop + 12, stop + 13)
    assert same(*rows_of(next(again), after))


@KINDS
@settings(max_examples=12)
@given(sizes=lengths, world=st.integers(2, 3))
def test_the_ranks_together_hold_the_batch_of_one_process(kind, sizes, world):
    alone = make(kind, sizes, seed=2)
    ranks = [make(kind, sizes, seed=2, rank=rank, world_size=world) for rank in range(world)]
    for whole, *parts in islice(zip(alone, *ranks), 20):
        shared = parts[: len(whole.source)]
        for part in parts[len(whole.source) :]:  # it has no row of its own
            assert isinstance(part, DummyBatch)
            assert same([tensor[:1] for tensor in whole], part.row)
        for tensor, *shares in zip(whole, *shared, strict=True):
            together = torch.empty_like(tensor)
            for rank, share in enumerate(shares):
                together[rank::world] = share
            assert torch.equal(together, tensor)


@KINDS
def test_epochs_and_seeds_differ_and_repeat(kind):
    sizes = [(1 + n % 9, n % 7) for n in range(40)]
    order = seen(make(kind, sizes, seed=1).epoch(0))
    assert order == seen(make(kind, sizes, seed=1).epoch(0))
    assert order != seen(make(kind, sizes, seed=1).epoch(1))
    assert order != seen(make(kind, sizes, seed=2).epoch(0))
    endless = make(kind, sizes, seed=1)
    two = [*endless.epoch(0), *endless.epoch(1)]
    assert all(same(a, b) for a, b in zip(two, endless))
    assert order != list(range(40))


def test_an_epoch_is_counted_and_padded_little():
    sizes = [(1 + n * 7 % 19, n * 5 % 17) for n in range(300)]
    batches = TokenBatches(examples_of(sizes), max_tokens=200, seed=0)
    assert batches.batches_per_epoch == len(list(batches.epoch(0))) == len(list(batches.epoch(3)))
    made = list(batches.epoch(0))
    filled = sum(int(batch.source_valid.sum() + batch.target_valid.sum()) for batch in made)
    assert filled / sum(batch.source.numel() + batch.target.numel() for batch in made) > 0.7


def test_batches_are_made_of_other_examples_each_epoch():
    batches = TokenBatches(examples_of([(3, 1)] * 40), max_tokens=15, seed=0)
    sets = [{frozenset(seen([batch])) for batch in batches.epoch(epoch)} for epoch in (0, 1)]
    assert sets[0] != sets[1]


@pytest.mark.slow
@KINDS
def test_workers_do_not_change_the_order(kind):
    sizes = [(1 + n % 9, n % 7) for n in range(40)]
    alone, helped = make(kind, sizes, seed=3), make(kind, sizes, seed=3, workers=2)
    for expected, batch in islice(zip(alone, helped), 25):  # into the second epoch
        assert isinstance(batch, Batch)
        assert same(expected, batch)
    assert helped.state_dict() == alone.state_dict()  # not what was made ahead


def test_pairs_through_their_tokenizers():
    pairs = [Pair("a b", "x"), Pair("b", "x y x")]
    source = Tokenizer.train([pair.source for pair in pairs], "words", 20)
    target = Tokenizer.train([pair.target for pair in pairs], "words", 20)
    examples = PairExamples.encode(iter(pairs), source, target)
    assert examples.lengths.tolist() == [[2, 3], [1, 5]]
    (batch,) = TokenBatches(examples, max_tokens=20).epoch(0)
    texts = {source.decode(s): target.decode(t) for s, t in zip(batch.source.tolist(), batch.target.tolist())}
    assert texts == dict(pairs)


def test_wrong_options_and_examples():
    examples = examples_of([(3, 1), (30, 1), (2, 40)])
    with pytest.raises(
        DataError, match=r"example 1 \(from 0\) fills 30 tokens, more than max_tokens = 29; 2 of 3 do, the longest 42"
    ):
        TokenBatches(examples, max_tokens=29)
    with pytest.raises(DataError, match=r"StreamBatches: example 8 \(from 0\) fills 30 tokens"):
        list(make("stream", [(1, 1)] * 8 + [(30, 1)]).epoch(0))
    with pytest.raises(DataError, match="there are no examples"):
        TokenBatches(examples_of([]), max_tokens=29)
    with pytest.raises(DataError, match="there are no records"):
        next(iter(make("stream", [])))
    with pytest.raises(DataError, match="of all records no example is left"):
        next(iter(StreamBatches([1, 2], lambda records: encode_sizes([]), max_tokens=9)))
    with pytest.raises(DataError, match="1 sources and 2 targets"):
        PairExamples(Sequences([[4]], 9), Sequences([[4], [5]], 9))
    with pytest.raises(ConfigError, match=r"rank is 2, expected 0 to 1 \(world_size is 2\)"):
        TokenBatches(examples, max_tokens=99, rank=2, world_size=2)
    with pytest.raises(ConfigError, match="seed is -1, expected 0 or more"):
        TokenBatches(examples, max_tokens=99, seed=-1)
    with pytest.raises(ConfigError, match="max_tokens is 0, expected a number above 0"):
        TokenBatches(examples, max_tokens=0)
    with pytest.raises(ConfigError, match="records can be iterated once only"):
        StreamBatches(iter([(1, (1, 1))]), encode_sizes, max_tokens=9)


@KINDS
def test_a_position_of_another_stream_is_refused(kind):
    sizes = [(2, 3)] * 5
    batches = make(kind, sizes, seed=1)
    with pytest.raises(ConfigError, match="belongs to another stream: its seed is 2, here it is 1"):
        batches.load_state_dict(make(kind, sizes, seed=2).state_dict())
    with pytest.raises(ConfigError, match="the saved position is None, expected a whole number"):
        batches.load_state_dict({**batches.state_dict(), "position": None})
    if kind == "tokens":
        with pytest.raises(ConfigError, match="its examples is 6, here it is 5"):
            batches.load_state_dict(make(kind, [(2, 3)] * 6, seed=1).state_dict())


@KINDS
@pytest.mark.parametrize("sizes", [[(2, 3)] * 23, [(5, 3)] * 13])
def test_an_epoch_is_over_once_its_last_batch_is_handed_out(kind, sizes):
    batches = make(kind, sizes, seed=1)
    count = len(list(batches.epoch(0)))
    stream = iter(batches)
    epochs = []
    for _ in range(count + 1):
        next(stream)
        epochs.append(batches.state_dict()["epoch"])
    assert epochs == [0] * (count - 1) + [1, 1]


def test_workers_leave_the_global_random_numbers_alone():
    examples = PairExamples(*(Sequences([[4 + n % 5] * (1 + n % 3) for n in range(30)], 10) for _ in range(2)))
    before = torch.get_rng_state()
    stream = iter(TokenBatches(examples, max_tokens=12, workers=1))
    next(stream)
    assert torch.equal(torch.get_rng_state(), before)


def test_examples_of_several_sequences_and_values():
    first = Sequences([[1, 2, 3], [4], [5, 6]], vocabulary=9)
    second = Sequences([[1], [2, 3], []], vocabulary=9)
    examples = PaddedExamples({"first": first, "second": second}, labels=[7, 8, 9])
    assert examples.lengths.tolist() == [[3, 1], [1, 2], [2, 0]]
    batch = examples.batch(np.array([2, 0]), [4, 2])
    assert [part.tolist() for part in batch] == [[[5, 6, 0, 0], [1, 2, 3, 0]], [[0, 0], [1, 0]], [9, 7]]
    seen = [batch[2].tolist() for batch in TokenBatches(examples, max_tokens=4).epoch(0)]
    assert seen == [examples.values["labels"][indices].tolist() for indices in plan_batches(examples.lengths, 4)]
    with pytest.raises(DataError, match="3 first, 3 second, 2 labels, expected as many of each"):
        PaddedExamples({"first": first, "second": second}, labels=[7, 8])
