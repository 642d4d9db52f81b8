"""Cloze questions: files of every form, candidates in their documents, built-in stories that frequency cannot solve."""

import gzip
import json
import random
import re

import pytest
from real_data import real

from foci.data.vocabulary import Vocabulary
from foci.data.word_splitter import WordSplitter
from foci.errors import DataError, UnknownNameError
from foci.tasks.cloze.batches import ClozeExamples, places_of, split_text, tokenize
from foci.tasks.cloze.builtin import LANGUAGES, stories
from foci.tasks.cloze.reader import ClozeQuestion, candidates_of, from_record, read_cloze

BOOK = "1 A king had a ball .\n2 He lost it .\n3 The XXXXX was sad .\tking\t\tking|ball\n\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# ---- files


def test_the_form_of_the_childrens_book_test(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress((BOOK + BOOK.strip()).encode()))
    one, two = read_cloze(path)
    assert one == two
    assert one == ClozeQuestion("A king had a ball .\nHe lost it .", "The XXXXX was sad .", "king|ball", "king")


def test_the_form_of_peoples_daily(tmp_path):
    text = "1 ||| 小虫儿 住 在 草丛 里 。\n2 ||| 他 很 神气 。\n3 ||| 谁 住 在 XXXXX 里 ？ ||| 草丛\n"
    text += "1 ||| 云\n2 ||| XXXXX 白 ||| 云\n"
    first, second = read_cloze(write(tmp_path / "a", text))
    assert first == ClozeQuestion("小虫儿 住 在 草丛 里 。\n他 很 神气 。", "谁 住 在 XXXXX 里 ？", "", "草丛")
    assert second.document == "云"


def test_the_form_of_cmrc_has_its_answers_in_another_file(tmp_path):
    path = write(tmp_path / "a.doc_query", "1 ||| 猫 来 了\n<qid_0> ||| XXXXX 来 了\n1 ||| 狗\n<qid_1> ||| XXXXX\n")
    with pytest.raises(
        DataError, match=r"a.doc_query, line 1: the questions have no answers, expected a.answer beside"
    ):
        read_cloze(path)
    write(tmp_path / "a.answer", "<qid_0> ||| 猫\n")
    with pytest.raises(DataError, match=r"line 4: the file of answers has none for '<qid_1>'"):
        read_cloze(path)
    write(tmp_path / "a.answer", "<qid_0> ||| 猫\n<qid_1> ||| 狗\n")
    assert [one.answer for one in read_cloze(path)] == ["猫", "狗"]


def test_jsonl_has_candidates_as_a_list_or_a_text(tmp_path):
    record = {"document": "A b c", "question": "XXXXX ?", "answer": "b"}
    lines = [record, {**record, "candidates": ["b", "c"], "kind": "x"}, {**record, "candidates": "b|c"}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert [(one.candidates, one.kind) for one in read_cloze(path)] == [("", ""), ("b|c", "x"), ("b|c", "")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "1 A .\n2 B XXXXX .\tking\t\tball|queen\n",
            "line 2: the answer 'king' is not among the candidates: ball, queen",
        ),
        ("1 A .\n2 B .\tA\t\tA|B\n", "line 2: the question has no blank 'XXXXX'"),
        ("1 A .\n2 XXXXX .\tA\tA|B\n", "line 2: the question has 3 columns"),
        ("1 A .\n2 B .\n\n1 A .\n2 XXXXX\tA\t\tA\n", "line 1: the sentences from here on have no question"),
        ("2 XXXXX .\tA\t\tA|B\n", "line 1: the document is empty"),
        ("A .\n2 XXXXX .\tA\t\tA|B\n", "line 1: expected a number and a sentence"),
        ("1 ||| A\n2 ||| XXXXX ||| \n", "line 2: the answer is empty"),
        ("1 ||| A\n2 ||| B\n", "line 2: the file ends without a question"),
        ("1 ||| A\n2 ||| XXXXX ||| b ||| c\n", "line 2: has 4 parts"),
    ],
)
def test_mistakes_have_their_line(text, said, tmp_path):
    path = write(tmp_path / "a.txt", text)
    with pytest.raises(DataError) as caught:
        read_cloze(path)
    assert f"{path}, {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([], "a JSON list, expected an object"),
        ({"document": "a", "question": "XXXXX"}, "no field 'answer'"),
        ({"document": 5, "question": "XXXXX", "answer": "a"}, "field 'document' is a int, expected a text"),
        ({"document": "a", "question": "XXXXX", "answer": "a", "candidates": ["a|b"]}, "a candidate is 'a|b'"),
        ({"document": "a", "question": "XXXXX", "answer": "a", "candidates": [5]}, "a candidate is 5"),
    ],
)
def test_objects_that_are_no_questions(record, said):
    with pytest.raises(DataError) as caught:
        from_record(record)
    assert said in str(caught.value)


def test_a_blank_of_ones_own_and_none(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"document": "a b", "question": "___ b", "answer": "a"}))
    assert read_cloze(path, blank="___")[0].question == "___ b"
    assert read_cloze(path, needs_blank=False)[0].answer == "a"
    with pytest.raises(DataError, match="has no blank"):
        read_cloze(path)


# ---- words and candidates


def test_candidates_of_several_words_count_where_they_begin():
    question = ClozeQuestion(
        "The Old man met the old dog. Old, said the old man.", "XXXXX left.", "old man|old|dog", "Old man"
    )
    found = tokenize(question, splitter=WordSplitter("unicode"), max_words=100)
    begins = [(word, number) for word, number in zip(found.words, found.places) if number >= 0]
    assert begins == [("Old", 0), ("old", 1), ("dog", 2), ("Old", 1), ("old", 0)]
    assert (found.counts, found.answer, found.most_frequent, found.is_answerable) == ([2, 2, 1], 0, 0, True)
    exact = tokenize(question, splitter=WordSplitter("unicode"), max_words=100, lowercase=False)
    assert exact.counts == [1, 1, 1]
    assert (exact.answer, exact.is_answerable) == (-1, False)


def test_a_possessive_is_an_occurrence_of_its_owner():
    document = "Saul's spear hit David's harp. David’s men saw it's SAUL'S. Saul's! It wasn't David, said Saul."
    question = ClozeQuestion(document, "It was XXXXX's spear.", "David|Saul|spear", "Saul")
    found = tokenize(question, splitter=WordSplitter("unicode"), max_words=100)
    assert found.counts == [document.lower().count(name) for name in ("david", "saul", "spear")]
    assert found.most_frequent == found.answer == 1
    assert found.question == ["It", "was", "XXXXX", "'s", "spear", "."]
    assert "wasn't" in found.words
    assert tokenize(question, splitter=WordSplitter("spaces"), max_words=100).counts[0] == 0


def test_places_by_brute_force():
    chance = random.Random(0)
    for _ in range(300):
        words = [chance.choice("ab") for _ in range(chance.randint(0, 9))]
        names = {tuple(chance.choice("ab") for _ in range(chance.randint(1, 3))) for _ in range(3)}
        known = {name: number for number, name in enumerate(sorted(names))}
        expected, place = [], 0
        while place < len(words):
            fitting = [name for name in known if tuple(words[place : place + len(name)]) == name]
            longest = max(fitting, key=len, default=None)
            expected += [-1] if longest is None else [known[longest], *[-1] * (len(longest) - 1)]
            place = len(expected)
        assert places_of(words, known) == expected


def test_without_candidates_every_word_is_one():
    found = tokenize(
        ClozeQuestion("小虫儿 住 在 XXXXX 里 ， 住 。", "谁 XXXXX", "", "里"),
        splitter=WordSplitter("spaces"),
        max_words=100,
    )
    assert found.candidates == ["小虫儿", "住", "在", "里"]
    assert found.places == [0, 1, 2, -1, 3, -1, 1, -1]
    assert found.is_answerable


def test_chinese_without_spaces_is_read_by_characters():
    found = tokenize(
        ClozeQuestion("小明去了厨房。小红去了花园。", "小红在XXXXX。", "厨房|花园", "花园"),
        splitter=WordSplitter("unicode"),
        max_words=100,
    )
    assert [found.words[place] for place, number in enumerate(found.places) if number >= 0] == ["厨", "花"]
    assert found.question == ["小", "红", "在", "XXXXX", "。"]


def test_of_a_long_document_the_last_words_are_read():
    found = tokenize(ClozeQuestion("a b c\nd e\nf g", "XXXXX", "", "a"), splitter=WordSplitter("spaces"), max_words=3)
    assert (found.sentences, found.left_out, found.is_answerable) == ([["e"], ["f", "g"]], 4, False)
    assert split_text("a\n\n b ", WordSplitter("spaces")) == [["a"], ["b"]]
    assert candidates_of(" a || b|a") == ["a", "b"]


def test_batches_hold_what_was_tokenized():
    questions = [
        tokenize(ClozeQuestion("a b c b", "b XXXXX", "b|c", "c"), splitter=WordSplitter("spaces"), max_words=9),
        tokenize(ClozeQuestion("c d", "e", "d|x|c", "d"), splitter=WordSplitter("spaces"), max_words=9),
    ]
    vocabulary = Vocabulary(("a", "b", "c", "d", "XXXXX"), 1, False)
    examples = ClozeExamples(questions, vocabulary)
    assert examples.lengths.tolist() == [[4, 2], [2, 1]]
    batch = examples.batch(examples.lengths[:, 0].argsort(), [4, 2])
    assert batch.document.tolist() == [[3, 4, 0, 0], [1, 2, 3, 2]]
    assert batch.places.tolist() == [[2, 0, -1, -1], [-1, 0, 1, 0]]
    assert batch.question.tolist() == [[6, 0], [2, 5]]
    assert batch.question_places.tolist() == [[-1, -1], [0, -1]]
    assert (batch.blank.tolist(), batch.num_candidates.tolist(), batch.answer.tolist()) == ([-1, 1], [3, 2], [0, 1])


# ---- built-in stories


@pytest.mark.parametrize("language", LANGUAGES)
def test_frequency_does_not_decide_the_built_in_stories(language):
    questions = stories(language, size=600)
    found = [tokenize(one, splitter=WordSplitter("unicode"), max_words=1000) for one in questions]
    assert all(one.is_answerable and len(one.candidates) >= 4 for one in found)
    assert sum(one.most_frequent == one.answer for one in found) / len(found) < 0.4
    latest = [max(range(len(one.places)), key=lambda place: (one.places[place] >= 0, place)) for one in found]
    assert sum(one.places[place] == one.answer for one, place in zip(found, latest)) / len(found) < 0.5
    assert {one.kind for one in questions} == {*LANGUAGES[language].questions}


def test_the_answer_is_that_of_the_latest_event():
    """Each English story is read once more, from its last sentence on."""
    for story in stories(size=400, seed=1):
        words = split_text(story.question, WordSplitter("unicode"))[0]
        lines = split_text(story.document, WordSplitter("unicode"))[::-1]
        names = [word for word in words if word in LANGUAGES["en"].people + LANGUAGES["en"].things]
        moved = ("went", "walked", "took", "carried")
        if story.kind == "where is someone":
            line = next(line for line in lines if line[0] == names[0] and line[1] in moved)
            assert line[-2] == story.answer
        elif story.kind == "where is something":
            line = next(line for line in lines if names[0] in line)
            assert line[1] in ("took", "carried")
            assert line[-2] == story.answer
        elif story.kind == "who has something":
            line = next(line for line in lines if names[0] in line)
            assert (line[0] if line[1] in moved else line[-2]) == story.answer
        else:
            giver, taker = names if words[1] == "gave" else names[::-1]
            line = next(line for line in lines if line[0] == giver and line[-2] == taker)
            assert line[3] == story.answer


def test_splits_share_no_story_and_a_larger_size_begins_alike():
    found = {split: {one.document for one in stories(split=split, size=60)} for split in ("train", "valid", "test")}
    assert not found["train"] & found["valid"]
    assert not found["train"] & found["test"]
    assert stories(size=50) == stories(size=60)[:50]
    assert stories(size=5, seed=1) != stories(size=5)
    with pytest.raises(UnknownNameError, match="'zh'"):
        stories("zn")


# ---- real data


@pytest.mark.parametrize(("kind", "count", "share"), [("CN", 903, 31.2), ("NE", 252, 35.7)])
def test_fairytale_cloze_has_the_counts_and_baseline_of_its_description(kind, count, share):
    path = real(f"fairytale-cloze/fairytale_{kind}_test.txt.xz")
    found = [tokenize(one, splitter=WordSplitter("spaces"), max_words=5000) for one in read_cloze(path)]
    assert len(found) == count
    assert all(one.is_answerable for one in found)
    assert 100 * sum(one.most_frequent == one.answer for one in found) / count == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("kind", ["CN", "NE"])
def test_occurrences_are_those_of_a_search_in_the_text(kind):
    """Where no candidate is a part of another one, such as "King" of "King's"."""
    path = real(f"fairytale-cloze/fairytale_{kind}_test.txt.xz")
    for one in read_cloze(path)[:300]:
        found = tokenize(one, splitter=WordSplitter("unicode"), max_words=5000)
        for name, count in zip(found.candidates, found.counts):
            if not any(name.lower() in other.lower() for other in found.candidates if other != name):
                assert count == len(re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", one.document, re.IGNORECASE))
