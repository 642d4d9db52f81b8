"""Passages: what is held out of a text stays so when text is added, and nothing of it is trained on elsewhere."""

import random

import pytest

from foci.errors import DataError
from foci.tasks.frame import config as configs
from foci.tasks.generate.passages import Overlap, hold_out, passages, segments
from foci.tasks.generate.reader import TextDocument, python_reference
from foci.tasks.generate.task import Generate

SHARES = {"valid_share": 0.1, "test_share": 0.1, "seed": 0}


def text_of(lines, seed=0, end="\n"):
    chance = random.Random(seed)
    return "".join(" ".join(str(chance.randrange(10**6)) for _ in range(8)) + end for _ in range(lines))


def held(text):
    return hold_out([TextDocument(text)], SHARES, 10**9, "a.txt")


@pytest.mark.parametrize("end", ["\n", ". ", "。", " ", "\n\n"])
def test_passages_are_the_text_and_have_about_their_size(end):
    text = text_of(3000, end=end)
    found = list(passages(segments(text)))
    assert "".join(found) == text
    assert 1000 < len(text) / len(found) < 4000
    assert "".join(passages(segments("x" * 50_000))) == "x" * 50_000


@pytest.mark.parametrize(
    "sentence", ["यह एक वाक्य है।", "这是一句话。", "هل هذه جملة؟ ", "Dr. Müller kam z. B. am 3. Mai. "]
)
def test_long_lines_are_cut_at_the_ends_of_sentences_of_any_script(sentence):
    assert {*map(str.strip, segments(sentence * 400))} - {""} == {sentence.strip()}


@pytest.mark.parametrize("end", ["\n", ". "])
def test_text_that_is_added_or_moved_leaves_what_was_held_out(end):
    one, two, more = (text_of(2000, seed, end) for seed in range(3))
    before = held(one + two)
    kept = {passage for part in (before.valid, before.test) for one in part for passage in passages(segments(one.text))}
    for changed in (one + two + more, more + one + two, two + one):
        after = held(changed)
        for part in ("valid", "test"):
            now = "".join(document.text for document in getattr(after, part))
            there = [document.text in now for document in getattr(before, part)]
            assert sum(there) >= len(there) - 2, "all but those at the seams"
        trained = after.train[0].text
        assert sum(passage in trained for passage in kept) <= 2


def test_documents_are_held_out_whole_and_by_their_text():
    documents = [TextDocument(text_of(20, seed)) for seed in range(60)]
    train, valid, test, shared, unused = hold_out(documents, SHARES, 10**9, "x")
    assert sorted([*train, *valid, *test]) == sorted(documents)
    assert valid
    assert test
    assert shared == unused == 0
    again = hold_out(documents[::-1][:50], SHARES, 10**9, "x")
    assert {*again.test} <= {*test}
    assert {*again.train} <= {*train}
    limited = hold_out(documents, SHARES, 2500, "x")
    assert 0 < sum(len(one.text) for one in limited.test) <= 2500
    assert limited.unused > 0
    assert limited.train == train


def test_a_chapter_inside_another_is_on_one_side():
    documents = [TextDocument(text_of(20, seed)) for seed in range(60)]
    inside = hold_out(documents, SHARES, 10**9, "x").test[0]
    whole = TextDocument(text_of(30, 100) + inside.text.upper() + text_of(30, 101))
    for seed in range(5):  # whichever side the whole falls on
        found = hold_out([*documents, whole], {**SHARES, "seed": seed}, 10**9, "x")
        trained = "".join(one.text for one in found.train).casefold()
        for one in (*found.valid, *found.test):
            assert not any(line in trained for line in one.text.casefold().splitlines() if len(line) > 40)


def test_the_built_in_text_holds_out_nothing_that_is_trained_on():
    found = hold_out(python_reference(), SHARES, 10**9, "x")
    assert found.shared > 0
    trained = Overlap(one.text for one in found.train)
    assert all(trained.without(one.text) == one.text for one in (*found.valid, *found.test))


def test_text_of_which_nothing_can_be_held_out_is_an_error():
    with pytest.raises(DataError, match="a.txt, line 1: 1 characters"):
        held("a")
    with pytest.raises(DataError, match="stand in held-out text and are left out"):
        held("the cat sat on a mat, and no dog bit its toe\n" * 400)


@pytest.mark.parametrize("stream", [False, True])
def test_text_that_is_held_out_but_not_used_is_counted(tmp_path, stream):
    (tmp_path / "a.txt").write_text(text_of(3000))
    data = {"path": str(tmp_path / "a.txt"), "stream": stream, "max_valid_characters": 3000}
    said: list[str] = []
    splits = Generate(configs.configure(Generate.Config, {"data": data}, "test")).read(said.append)
    (line,) = [line for line in said if "held out but not used (data.max_valid_characters)" in line]
    trained = sum(len(one.text) for one in splits.train)
    held = sum(len(one.text) for part in splits[1:] for one in part)
    assert int(line.split()[0].replace(",", "")) == len((tmp_path / "a.txt").read_text()) - trained - held
