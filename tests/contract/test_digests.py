"""The digests that a change of no number is judged by (`python tests/support/digests.py`) see what they are to see."""

import digests
import pytest

TASK = "memorize"


@pytest.fixture(scope="module")
def found():
    return digests.of_case(TASK, {})


def test_the_same_run_has_the_same_digests(found):
    assert digests.of_case(TASK, {}) == found
    assert {*found} == {"weights", "metrics", "predictions"}


def test_another_seed_changes_every_digest(found):
    other = digests.of_case(TASK, {"training": {**digests.find(TASK).Config.smallest["training"], "seed": 1}})
    assert not {*other.values()} & {*found.values()}


def test_digests_do_not_depend_on_names_and_order():
    assert sorted(digests.numbers({"a": 1.5, "b": [2, (True, "x")]})) == ["1.5", "2"]
    assert (
        digests.numbers({"b": 0.1 + 0.2}) == digests.numbers({"other": [0.30000000000000004]}) != digests.numbers(0.3)
    )
