"""Tagged sentences from files of every form, what is recognized and repaired, and every mistake by file and line."""

import gzip
import json
import random

import pytest

from foci.data.vocabulary import Vocabulary, words_with_vectors
from foci.data.word_splitter import WordSplitter
from foci.errors import ConfigError, DataError, UnknownNameError
from foci.metrics.spans import Span
from foci.tasks.tag import json_records
from foci.tasks.tag.batches import Letters, TagExamples
from foci.tasks.tag.builtin import CARRIERS, carriers
from foci.tasks.tag.reader import read_tagged
from foci.tasks.tag.schemes import SCHEMES, recognize, tag_names, to_spans, to_tags
from foci.tasks.tag.sentences import LabeledSpan, to_words

COLUMNS = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
CONLLU = """# text = Don't!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tDo\tdo\tAUX\tVBP\t_\t0\troot\t_\tSpaceAfter=No
2\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\tSpaceAfter=No
2.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
3\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_

1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


def from_record(record):
    return json_records.from_record(record, WordSplitter("unicode"))


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def spans(sentence):
    return [(sentence.text[start:end], label) for start, end, label in sentence.spans]


def random_spans(chance, length):
    found, first = [], 0
    while first < length:
        last = first + chance.randint(0, 2)
        if chance.random() < 0.6 and last < length:
            found.append(Span(first, last, chance.choice(["x", "y", "a-b"])))
        first = last + 1
    return found


# ---- schemes


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IOB1"])
def test_spans_survive_every_scheme_and_the_scheme_is_recognized(scheme):
    chance = random.Random(4)
    drawn = [random_spans(chance, 9) for _ in range(100)]
    tagged = [to_tags(some, 9, scheme) for some in drawn]
    assert [to_spans(tags, scheme) for tags in tagged] == [(some, 0) for some in drawn]
    assert recognize(tagged) == (scheme, ())


@pytest.mark.parametrize(
    ("tags", "scheme", "found", "repairs"),
    [
        (["O", "I-x"], "BIO", [(1, 1, "x")], 1),
        (["B-x", "I-y", "I-y"], "BIO", [(0, 0, "x"), (1, 2, "y")], 1),
        (["E-x", "O"], "BIOES", [(0, 0, "x")], 1),
        (["B-x", "O"], "BIOES", [(0, 0, "x")], 1),
        (["U-x", "B-y", "L-y"], "BIOES", [(0, 0, "x"), (1, 2, "y")], 0),
        (["B", "I", "O"], "BIO", [(0, 1, "span")], 0),
        (["NOUN", "X"], "plain", [(0, 0, "NOUN"), (1, 1, "X")], 0),
    ],
)
def test_malformed_tags_are_read_as_conlleval_does_and_counted(tags, scheme, found, repairs):
    assert to_spans(tags, scheme) == ([Span(*one) for one in found], repairs)


def test_recognized_schemes():
    assert recognize([["B-x", "O", "I-x"], ["B-y"]]).scheme == "BIO"  # a B that IOB1 would not need
    assert recognize([["O", "O"]]) == ("BIO", ())
    assert recognize([["B-x", "LOC", "X-y"]]).foreign == ("LOC", "X-y")
    assert tag_names(["a"], "BIOES") == ["O", "B-a", "I-a", "E-a", "S-a"]
    with pytest.raises(UnknownNameError):
        tag_names(["a"], "IOB1")
    with pytest.raises(UnknownNameError):
        to_spans([], "BILOU")
    assert SCHEMES


# ---- files


def test_columns_by_number(tmp_path):
    path = write(tmp_path / "a.conll", COLUMNS)
    found = read_tagged(path)
    assert [(one.text, spans(one)) for one in found.sentences] == [
        ("EU rejects German", [("EU", "ORG"), ("German", "MISC")]),
        ("Peter Blackburn", [("Peter Blackburn", "PER")]),
    ]
    assert (found.scheme, found.sentences[1].intent) == ("BIO", "")
    parts_of_speech = read_tagged(path, columns=(0, 1))
    assert parts_of_speech.scheme == "plain"
    assert spans(parts_of_speech.sentences[1]) == [("Peter", "NNP"), ("Blackburn", "NNP")]


def test_conllu_keeps_spaces_and_passes_over_ranges_and_empty_words(tmp_path):
    path = tmp_path / "a.conllu.gz"
    path.write_bytes(gzip.compress(CONLLU.encode()))
    found = read_tagged(path)
    assert [one.text for one in found.sentences] == ["Don't!", "Go"]
    assert spans(found.sentences[0]) == [("Do", "AUX"), ("n't", "PART"), ("!", "PUNCT")]
    assert spans(read_tagged(path, columns=(0, "xpos")).sentences[0])[0] == ("Do", "VBP")
    with pytest.raises(ConfigError, match="data.columns has 'uposs' for the tags. Did you mean 'upos'"):
        read_tagged(path, columns=(0, "uposs"))


def test_aligned_files_and_folders(tmp_path):
    words = write(tmp_path / "seq.in", "play westbam \nadd it\n")
    tags = write(tmp_path / "seq.out", "O B-artist \nO O\n")
    labels = write(tmp_path / "label", "PlayMusic\nAddToPlaylist\n")
    for found in (read_tagged(words, tags=tags, intents=labels), read_tagged(tmp_path)):
        assert [one.intent for one in found.sentences] == ["PlayMusic", "AddToPlaylist"]
        assert spans(found.sentences[0]) == [("westbam", "artist")]
    assert read_tagged(words, tags=tags).sentences[0].intent == ""
    write(tmp_path / "seq.out", "O\nO O\n")
    with pytest.raises(DataError, match=r"seq.out, line 1: has 1 tags for 2 words"):
        read_tagged(tmp_path)
    write(tmp_path / "seq.out", "O O\n")
    with pytest.raises(DataError, match=r"seq.in, line 2: no such line in .*seq.out"):
        read_tagged(tmp_path)
    with pytest.raises(ConfigError, match="without data.tags"):
        read_tagged(words, intents=labels)


def test_spans_by_characters(tmp_path):
    lines = [
        {"text": "Ada 住在北京。", "spans": [{"start": 6, "end": 8, "label": "LOC"}, [0, 3, "PER"]], "intent": "x"},
        {"text": "New York's", "spans": [[0, 8, "LOC"]]},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert spans(read_tagged(path).sentences[1]) == [("New York", "LOC")]  # the rule is learned
    found = read_tagged(path, rule="unicode")
    assert spans(found.sentences[0]) == [("Ada", "PER"), ("北京", "LOC")]
    assert found.sentences[0].tokens == ["Ada", "住", "在", "北", "京", "。"]
    assert spans(found.sentences[1]) == [("New York's", "LOC")]  # widened to whole words, and said
    (note,) = found.notes
    assert "1 spans begin or end inside a word" in note
    given = from_record({"text": "New York's", "spans": [[0, 8, "LOC"]], "words": [[0, 3], [4, 8], [8, 10]]})
    assert to_words(given.spans, given.words) == ([Span(0, 1, "LOC")], 0)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"spans": []}, "no field 'text'"),
        ({"text": "a", "span": []}, "no field 'spans'. Did you mean 'span'"),
        ({"text": "a b", "spans": [[0, 2, "x"], [1, 3, "y"]]}, r"\(0, 2, 'x'\) and \(1, 3, 'y'\) overlap"),
        ({"text": "a b", "spans": [[0, 4, "x"]]}, r"\(0, 4, 'x'\) is not part of the text, which has 3 characters"),
        ({"text": "a b", "spans": [[1, 1, "x"]]}, "is not part of the text"),
        ({"text": "a b", "spans": [[0, 1]]}, "a span is no object such as"),
        ({"text": "a b", "spans": [{"start": 0, "end": True, "label": "x"}]}, "a span is no object such as"),
        ({"text": "a b", "spans": [[0, 1, " "]]}, "has an empty label"),
        ({"text": " ", "spans": []}, "the text has no words"),
        ({"text": "a b", "spans": [], "words": [[0, 2], [1, 3]]}, "'words' is no list of"),
        ({"text": "a", "spans": "x"}, "expected a text in 'text', a list in 'spans'"),
        ([], "a JSON list, expected an object"),
    ],
)
def test_a_mistake_in_a_record_names_its_line(record, said, tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"text": "good", "spans": []}) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(DataError, match=rf"a.jsonl, line 2: .*{said}"):
        read_tagged(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "line 1: no sentences"),
        ("a B-x\n\nc O\nb X-LOC\n", "line 4: tag 'X-LOC' has no prefix of BIO"),
        ("a O\n\nb\n", "line 3: the line has 1 columns, expected a word in column 0 and its tag in column -1"),
        ("a\t\n", "line 1: the word or its tag is empty"),
        ("a O\n\0\1 \2\n", "line 2: the line holds a zero byte"),
    ],
)
def test_a_mistake_in_columns_names_its_line(content, said, tmp_path):
    with pytest.raises(DataError, match=rf"a.txt, {said}"):
        read_tagged(write(tmp_path / "a.txt", content))


def test_comments_are_passed_over_but_not_words(tmp_path):
    path = write(tmp_path / "a.conll", "# id 7 domain=en\n# text = a b\n# B-x\na I-x\n#b = O\n# O\n")
    assert [one.tokens for one in read_tagged(path).sentences] == [["#", "a", "#"]]


def test_files_say_how_their_tags_were_read(tmp_path):
    """Tags such as b-per are labels of single words: who wanted spans should see it."""
    for tags, said in (
        ("b-per o", "tags have no prefixes (such as B-): each word has a label of its own"),
        ("B-x O", "tags in BIO"),
    ):
        first, second = tags.split()
        found = read_tagged(write(tmp_path / "a.conll", f"Ada {first}\nsleeps {second}\n"))
        assert [note.rpartition("a.conll: ")[2] for note in found.notes] == [said]


def test_repairs_are_told_once(tmp_path):
    found = read_tagged(write(tmp_path / "a.txt", "a O\nb I-x\n\nc B-x\n\nd O\ne I-x\n"))
    told = [note for note in found.notes if "malformed" in note]
    assert len(told) == 1
    assert "2 tags in 2 sentences" in told[0]
    with pytest.raises(ConfigError, match="expected numbers"):
        read_tagged(tmp_path / "a.txt", columns=(0, "upos"))


# ---- words, letters, vectors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Dr. O'Neil pays $12.50!", ["Dr", ".", "O'Neil", "pays", "$", "12.50", "!"]),
        ("明天下午3点", ["明", "天", "下", "午", "3", "点"]),
        ("तीन किलो", ["तीन", "किलो"]),
        ("٣ كيلو", ["٣", "كيلو"]),
        (" \t", []),
    ],
)
def test_words_keep_their_offsets_in_any_script(text, words):
    assert [text[start:end] for start, end in WordSplitter("unicode").offsets(text)] == words


def test_batches_hold_each_spelling_once():
    vocabulary, letters = Vocabulary(("a", "bb"), 1), Letters.count(["abb", "bc"])
    examples = TagExamples([["a", "bb", "A"], ["zz"]], [[0, 2, 1], [3]], [-1, 4], vocabulary, letters)
    batch = examples.batch(__import__("numpy").array([1, 0]), [3])
    assert batch.words.tolist() == [[3, 0, 0], [1, 2, 1]]
    assert batch.tags.tolist() == [[3, -1, -1], [0, 2, 1]]
    assert batch.intents.tolist() == [4, -1]
    spelt = [["".join(map(str, batch.letters[one].tolist())) for one in row] for row in batch.spelt.tolist()]
    assert len(batch.letters) == 5  # nothing, a, bb, A, zz
    assert spelt[0] == ["11", "00", "00"]
    assert spelt[1][0] != spelt[1][2]  # "a" and "A" are one word and two spellings
    with pytest.raises(DataError, match="one tag for each word"):
        TagExamples([["a"]], [[0, 1]], [-1], vocabulary, letters)
    with pytest.raises(DataError, match="is no list of letters"):
        Letters.from_text("[]", "letters.json")
    assert Letters.from_text(letters.to_text(), "x") == letters


def test_words_of_a_file_of_vectors(tmp_path):
    path = write(tmp_path / "v.txt", "4 2\nthe 1 2\nof 3 4\nNew York 5 6\nrare 7 8\n")
    assert words_with_vectors(path, 2, {"rare"}) == (["the", "of", "rare"], 2)
    assert words_with_vectors(write(tmp_path / "w.txt", "the 1 2\n"), 5, ()) == (["the"], 2)
    with pytest.raises(DataError, match="holds no vectors"):
        words_with_vectors(write(tmp_path / "x.txt", "\n"), 5, ())


# ---- built-in sentences


@pytest.mark.parametrize("locale", ["en", "de", "fr", "es", "zh", "ar", "ja", "hi", "fi"])
def test_built_in_sentences_of_any_language(locale):
    made = carriers(locale, size=60)
    assert made == carriers(locale, size=70)[:60]
    assert len({one.text for one in made}) == 60
    assert all(to_words(one.spans, one.words)[1] == 0 for one in made)
    labels = {span.label for one in made for span in one.spans}
    assert {"date", "amount", "measure", "list"} <= labels
    assert len({one.intent for one in made}) == len(CARRIERS.get(locale, {"one": 0, "two": 0}))
    held_out = {one.text for split in ("valid", "test") for one in carriers(locale, split=split, size=30, seed=3)}
    assert not held_out & {one.text for one in made}


def test_built_in_sentences_of_no_language():
    with pytest.raises(UnknownNameError, match="unknown locale 'germann'. Did you mean 'de'"):
        carriers("germann")
    with pytest.raises(UnknownNameError, match="unknown split"):
        carriers("en", split="dev")
    span = carriers("en", size=1)[0].spans[0]
    assert isinstance(span, LabeledSpan)
