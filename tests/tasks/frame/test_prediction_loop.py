"""The loop of every prediction: the order of the inputs, progress, and inputs that cannot be used."""

import pytest

from foci.tasks.frame.prediction_loop import by_length, predict_in_batches
from foci.tasks.frame.task import Prediction


@pytest.mark.parametrize("batch_tokens", [1, 7, 12, 1000])
def test_inputs_of_about_equal_length_are_together(batch_tokens):
    lengths = [3, 0, 5, 1, 5, 2]
    batches = list(by_length(lengths, batch_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(6))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= batch_tokens
    assert list(by_length([], batch_tokens)) == []


def test_answers_have_the_order_of_the_inputs():
    records = [{"text": "a" * number} for number in (3, 1, 4, 1, 5)]
    done = []

    def answer(numbers):
        return [Prediction(records[number], str(number), 0.0) for number in numbers]

    batches = by_length([3, 1, 4, 1], 4)
    found = predict_in_batches(records, batches, answer, done.append, unusable={4: "it is broken"})
    assert [one.inputs for one in found] == records
    assert [one.output for one in found] == ["0", "1", "2", "3", ""]
    assert (found[4].score, found[4].details) == (None, {"notes": ["it is broken"]})
    assert sum(done) == 5
