"""The five problems: their codings worked by hand and by brute force, their measures, and the stream."""

import math
from itertools import islice

import numpy as np
import pytest
import torch

from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.tasks.memorize.problems import (
    PROBLEMS,
    Copy,
    EpisodeBatches,
    NGrams,
    Recall,
    RepeatCopy,
    Sort,
    cost_bits,
    wrong_bits,
)


def rows_of(episodes):
    """Each sequence as plain lists."""
    return zip(*(part.tolist() for part in episodes), strict=True)


def test_copy():
    for inputs, targets, scored in rows_of(Copy().held_out(5, length=3)):
        vectors = [step[:8] for step in inputs[:3]]
        assert inputs == [[*vector, 0] for vector in vectors] + [[0] * 8 + [1]] + [[0] * 9] * 3
        assert targets == [[0] * 8] * 4 + vectors
        assert scored == [False] * 4 + [True] * 3
        assert {bit for vector in vectors for bit in vector} == {0, 1}


@pytest.mark.parametrize("repeats", [1, 4, 13])
def test_repeat_copy(repeats):
    problem = RepeatCopy(min_repeats=repeats, max_repeats=repeats, width=3)
    for inputs, targets, scored in rows_of(problem.held_out(5, length=2)):
        vectors = [step[:3] for step in inputs[:2]]
        assert [step[3] for step in inputs[:2]] == [0, 0]
        assert inputs[2][:3] == [0, 0, 0]
        assert inputs[2][3] == pytest.approx(
            (repeats - 5.5) / math.sqrt(sum((n - 5.5) ** 2 for n in range(1, 11)) / 10)
        )
        assert inputs[3:] == [[0] * 4] * (2 * repeats + 1)
        copies = [[*vector, 0] for _ in range(repeats) for vector in vectors]
        assert targets == [[0] * 4] * 3 + copies + [[0, 0, 0, 1]]
        assert scored == [False] * 3 + [True] * (2 * repeats + 1)


def test_repeats_are_drawn_from_their_whole_range():
    problem = RepeatCopy(min_length=2, max_length=2, min_repeats=1, max_repeats=3)
    steps = {batch.inputs.shape[1] for batch in islice(EpisodeBatches(problem, batch_size=1), 40)}
    assert steps == {3 + 2 * repeats + 1 for repeats in (1, 2, 3)}


def test_recall():
    asked_places = set()
    for inputs, targets, scored in rows_of(Recall().held_out(30, length=3)):
        assert len(inputs) == 3 * 4 + 5 + 3
        items = []
        for item in range(3):
            delimiter, *vectors = inputs[4 * item : 4 * item + 4]
            assert delimiter == [0] * 6 + [1, 0]
            assert all(vector[6:] == [0, 0] for vector in vectors)
            items.append([vector[:6] for vector in vectors])
        assert inputs[12] == inputs[16] == [0] * 6 + [0, 1]
        question = [vector[:6] for vector in inputs[13:16]]
        assert all(vector[6:] == [0, 0] for vector in inputs[13:16])
        assert inputs[17:] == [[0] * 8] * 3
        places = [place for place, item in enumerate(items) if item == question]
        assert len(places) == 1
        asked_places.add(places[0])
        assert targets == [[0] * 6] * 17 + items[places[0] + 1]
        assert scored == [False] * 17 + [True] * 3
    assert asked_places == {0, 1}


def test_recall_never_repeats_an_item():
    problem = Recall(item_length=1, width=2, min_length=4, max_length=4)
    inputs = problem.held_out(50).inputs
    items = inputs[:, 1:8:2, :2] @ torch.tensor([1.0, 2.0])
    assert all(sorted(row) == [0, 1, 2, 3] for row in items.tolist())


def test_sort():
    for inputs, targets, scored in rows_of(Sort().held_out(10)):
        given = [(step[8], step[:8]) for step in inputs[:20]]
        assert all(-1 <= priority <= 1 for priority, _ in given)
        assert inputs[20:] == [[0] * 9] * 16
        best_first = []
        while len(best_first) < 16:
            best_first.append(max(given))
            given.remove(max(given))
        assert targets == [[0] * 8] * 20 + [vector for _, vector in best_first]
        assert scored == [False] * 20 + [True] * 16


def test_ngrams():
    episodes = NGrams().held_out(3)
    assert episodes.inputs.shape == episodes.targets.shape == (3, 199, 1)
    assert torch.equal(episodes.inputs[:, 1:], episodes.targets[:, :-1])
    assert episodes.scored.tolist() == [[False] * 4 + [True] * 195] * 3


def test_ngrams_follow_one_table_each():
    """After one context the bits of a sequence lean to one side, and over tables as Beta(½, ½) does."""
    bits = NGrams(context=1, min_length=2000, max_length=2000).held_out(200).inputs[:, :, 0].numpy()
    shares = []
    for row in bits:
        for context in (0, 1):
            after = row[1:][row[:-1] == context]
            if len(after) > 300:
                half = len(after) // 2
                assert abs(after[:half].mean() - after[half:].mean()) < 0.2
                shares.append(after.mean())
    assert np.mean(shares) == pytest.approx(0.5, abs=0.08)
    assert np.var(shares) == pytest.approx(0.125, abs=0.04)  # the variance of Beta(½, ½); a uniform one has 0.083


def test_the_best_estimator_by_loops():
    problem = NGrams(min_length=60, max_length=60, context=2)
    episodes = problem.held_out(4)
    for row, found in enumerate(problem.optimal_bits(episodes).tolist()):
        bits = [int(episodes.inputs[row, 0, 0]), *episodes.targets[row, :, 0].int().tolist()]
        cost = 0.0
        for t in range(2, 60):
            seen = [bits[s] for s in range(2, t) if bits[s - 2 : s] == bits[t - 2 : t]]
            chance_of_one = (sum(seen) + 0.5) / (len(seen) + 1)
            cost -= math.log2(chance_of_one if bits[t] else 1 - chance_of_one)
        assert found == pytest.approx(cost, rel=1e-5)


def test_the_best_estimator_is_better_than_a_coin_and_worse_than_the_table():
    problem = NGrams()
    best = float(problem.optimal_bits(problem.held_out(200)).mean())
    entropy = 195 * 0.5573  # of a bit whose chance is drawn from Beta(½, ½)
    assert entropy < best < 195
    assert all(problem().optimal_bits(problem().held_out(1)) is None for problem in (Copy, RepeatCopy, Recall, Sort))


def test_measures_by_loops():
    episodes = RepeatCopy(width=2, min_repeats=2, max_repeats=2).held_out(3, length=2)
    logits = torch.randn(episodes.targets.shape)
    for row, (_, targets, scored) in enumerate(rows_of(episodes)):
        cost, wrong = 0.0, 0
        for step in range(len(targets)):
            for channel in range(3):
                chance = 1 / (1 + math.exp(-float(logits[row, step, channel])))
                if scored[step]:
                    cost -= math.log2(chance if targets[step][channel] else 1 - chance)
                    wrong += (chance > 0.5) != bool(targets[step][channel])
        assert float(cost_bits(logits, episodes)[row]) == pytest.approx(cost, rel=1e-5)
        assert float(wrong_bits(logits, episodes)[row]) == wrong
    coin = cost_bits(torch.zeros_like(logits), episodes)
    assert coin.tolist() == pytest.approx([5 * 3] * 3)
    with pytest.raises(ShapeError, match=r"cost_bits: logits has shape \(3, 1, 3\), expected \(3, 8, 3\)"):
        cost_bits(logits[:, :1], episodes)
    with pytest.raises(ShapeError, match="wrong_bits"):
        wrong_bits(logits[:, :1], episodes)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_says_its_sizes_and_takes_no_rows(name):
    problem = PROBLEMS[name]()
    for rows in (0, 3):
        inputs, targets, scored = problem.held_out(rows)
        assert inputs.shape == (rows, inputs.shape[1], problem.channels[0])
        assert targets.shape == (rows, inputs.shape[1], problem.channels[1])
        assert scored.shape == (rows, inputs.shape[1])
        assert inputs.dtype == targets.dtype == torch.float32


def test_lengths_come_from_the_whole_range():
    problem = Copy(min_length=2, max_length=5)
    lengths = [(batch.inputs.shape[1] - 1) // 2 for batch in islice(EpisodeBatches(problem, batch_size=1), 60)]
    assert set(lengths) == {2, 3, 4, 5}


def test_a_curriculum_grows_one_range_after_the_other():
    problem = RepeatCopy(min_length=2, max_length=5, min_repeats=2, max_repeats=4)
    ranges = [
        (eased.min_length, eased.max_length, eased.min_repeats, eased.max_repeats)
        for eased in (problem.eased(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    ]
    assert ranges == [(1, 1, 1, 1), (2, 3, 1, 1), (2, 5, 1, 1), (2, 5, 2, 2), (2, 5, 2, 4)]
    assert problem.eased(1.0) == problem
    assert (Recall().eased(0.0).max_length, NGrams().eased(0.0).max_length) == (2, 6)


def test_a_stream_with_a_curriculum_ends_as_one_without():
    def lengths(**options):
        stream = EpisodeBatches(Copy(max_length=9), batch_size=1, **options)
        return [(batch.inputs.shape[1] - 1) // 2 for batch in islice(stream, 120)]

    grown, plain = lengths(curriculum=90), lengths()
    for number, length in enumerate(grown[:90]):
        assert 1 <= length <= 1 + 8 * number // 90
    assert max(grown[:90]) == 8
    assert grown[90:] == plain[90:]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_stream_goes_on_where_it_was_saved(name):
    def fresh(**options):
        return EpisodeBatches(PROBLEMS[name](), batch_size=5, seed=3, **options)

    whole = list(islice(fresh(), 4))
    first = fresh()
    list(islice(first, 2))
    resumed = fresh()
    resumed.load_state_dict(first.state_dict())
    for have, want in zip(islice(resumed, 2), whole[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))
    shares = [next(iter(fresh(rank=rank, world_size=2))) for rank in range(2)]
    assert torch.equal(shares[0].inputs, whole[0].inputs[0::2])
    assert torch.equal(shares[1].targets, whole[0].targets[1::2])
    assert len({batch.targets.numpy().tobytes() for batch in whole}) == 4


def test_what_is_held_out_is_drawn_apart():
    problem = Copy(min_length=20, max_length=20)
    trained = {batch.inputs.numpy().tobytes() for batch in islice(EpisodeBatches(problem, batch_size=1), 30)}
    splits = [problem.held_out(1, length=20, split=split, part=part) for split in ("valid", "test") for part in (0, 1)]
    drawn = {episodes.inputs.numpy().tobytes() for episodes in splits}
    assert len(drawn) == 4
    assert not drawn & trained
    again = problem.held_out(1, length=20, split="test", part=1)
    assert torch.equal(again.inputs, splits[3].inputs)


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="Copy: max_length is 3, but min_length 5"):
        Copy(min_length=5, max_length=3)
    with pytest.raises(ConfigError, match="RepeatCopy: max_repeats is 2, but min_repeats 4"):
        RepeatCopy(min_repeats=4, max_repeats=2)
    with pytest.raises(ConfigError, match="Copy: width is 0"):
        Copy(width=0)
    with pytest.raises(ConfigError, match="Recall: length is 1, expected at least 2"):
        Recall().held_out(1, length=1)
    with pytest.raises(ConfigError, match="Recall: max_length is 5, but only 4 different items"):
        Recall(item_length=1, width=2, max_length=5)
    with pytest.raises(ConfigError, match="an item has 63 bits, expected at most 62"):
        Recall(item_length=9, width=7)
    with pytest.raises(ConfigError, match="NGrams: min_length is 5, expected at least 6"):
        NGrams(min_length=5)
    with pytest.raises(UnknownNameError, match="test"):
        Copy().held_out(1, split="tets")
    with pytest.raises(ConfigError, match="rank is 2, expected 0 to 1"):
        EpisodeBatches(Copy(), batch_size=2, rank=2, world_size=2)
    with pytest.raises(ConfigError, match="seed is -1"):
        EpisodeBatches(Copy(), batch_size=2, seed=-1)
    with pytest.raises(ConfigError, match="curriculum is -1, expected 0 or more"):
        EpisodeBatches(Copy(), batch_size=2, curriculum=-1)
    state = EpisodeBatches(Copy(), batch_size=2).state_dict()
    with pytest.raises(ConfigError, match="another stream: its problem is Copy"):
        EpisodeBatches(Sort(), batch_size=2).load_state_dict(state)
    with pytest.raises(ConfigError, match="saved position is -3"):
        EpisodeBatches(Copy(), batch_size=2).load_state_dict({**state, "position": -3})
