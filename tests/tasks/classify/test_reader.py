"""Documents from folders and tables, in any script; parts, vocabulary, vectors, planted evidence; and every mistake."""

import gzip
import json

import pytest

from foci.data.splits import unique
from foci.data.vocabulary import Vocabulary, read_vectors
from foci.data.word_splitter import WordSplitter
from foci.errors import ConfigError, DataError
from foci.tasks.classify.builtin import planted
from foci.tasks.classify.reader import Document, cut, read_documents
from foci.tasks.classify.task import Classify
from foci.tasks.frame import config as configs

EXPECTED = [Document('He said "no",\nand left.', "drama"), Document("好看！", "comedy")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_of_classes(tmp_path):
    for name, label, text in (
        ("2.txt", "b", "two"),
        ("1.txt", "b", "one\nmore\n"),
        ("x", "a", "第一"),
        (".x", "a", ""),
    ):
        (tmp_path / label).mkdir(exist_ok=True)
        write(tmp_path / label / name, text)
    write(tmp_path / "README", "not a document")
    expected = [Document("第一", "a"), Document("one\nmore", "b"), Document("two", "b")]
    assert read_documents(tmp_path) == expected


def test_tables_and_objects(tmp_path):
    comma = 'id,label,text\n1,drama,"He said ""no"",\nand left."\n\n2,comedy,好看！\n'
    assert read_documents(write(tmp_path / "a.csv", comma)) == EXPECTED
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + comma.encode()))
    assert read_documents(tmp_path / "a.csv.gz") == EXPECTED
    tabs = '"a quote\tdrama\nb\tcomedy\n'  # a lone quote swallows nothing
    assert read_documents(write(tmp_path / "a.tsv", tabs), columns=(0, 1)) == [
        Document('"a quote', "drama"),
        Document("b", "comedy"),
    ]
    lines = "".join(json.dumps({"review": d.text, "stars": i}) + "\n" for i, d in enumerate(EXPECTED))
    found = read_documents(write(tmp_path / "a.jsonl", lines), columns=("review", "stars"))
    assert found == [Document(EXPECTED[0].text, "0"), Document(EXPECTED[1].text, "1")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "txt,label\na,b\n", r"a\.csv, line 1: no column 'text' in the first line\. Did you mean 'txt'"),
        (
            "a.csv",
            'text,label\n"a\nb",c\nd\ne,f\n',
            r"a\.csv, line 4: no column 1 \(from 0\): the line has 1\.\n1 fault",
        ),
        ("a.csv", "text,label\na,b\n,c\nd,\n", r"line 3: the text is empty\.\n2 faults beside 1 good documents: 1 × e"),
        ("a.csv", 'text,label\na,b\n"c,d\n', r"a\.csv, line 3: the table cannot be read further \(unexpected end"),
        ("a.jsonl", '{"text": "a", "label": "b"}\n[1]\n', r"a\.jsonl, line 2: a JSON list, expected an object"),
        ("a.jsonl", "{oops\n", r"a\.jsonl, line 1: not a JSON object"),
        ("a.jsonl", '{"text": "a", "lable": 1}\n', r"line 1: no field 'label' or 'labels'\. Did you mean 'lable'"),
        ("a.jsonl", '{"text": 3, "label": 1.5}\n', r"field 'text' is a int, expected a text"),
        (
            "a.csv",
            "text,label\nno, not good,neg\nb,c\n",
            r"a\.csv, line 2: the row has 3 cells, but the first line has 2",
        ),
        ("a.csv", "", r"a\.csv, line 1: no documents, the file or folder is empty"),
        ("a.jsonl", "", r"a\.jsonl, line 1: no documents, the file or folder is empty"),
    ],
)
def test_faults_are_told_with_file_and_line(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_documents(write(tmp_path / name, text))


def test_wrong_places_and_bytes(tmp_path):
    header = write(tmp_path / "h.csv", "text,label\na,b\n")
    with pytest.raises(DataError, match=r"h\.csv, line 1: the line seems to hold the names of columns"):
        read_documents(header, columns=(0, 1))
    header.unlink()
    with pytest.raises(DataError, match=r"nowhere: there is no such file or folder"):
        read_documents(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no folders, expected one folder of text files for each class"):
        read_documents(tmp_path)
    with pytest.raises(ConfigError, match=r"a\.doc: expected a folder .* \.csv, \.tsv or \.jsonl, or fastText"):
        read_documents(write(tmp_path / "a.doc", "x"))
    with pytest.raises(ConfigError, match=r"columns 0 and 'label', expected two different names or numbers"):
        read_documents(write(tmp_path / "a.csv", "x"), columns=(0, "label"))
    (tmp_path / "sport").mkdir()
    (tmp_path / "sport" / "1.txt").write_bytes(b"fine\n\xa310m")
    with pytest.raises(DataError, match=r"sport/1\.txt, line 2: byte 1 of the line is not UTF-8"):
        read_documents(tmp_path)
    (tmp_path / "b.csv").write_bytes(b"text,label\na,b\n\xa3,c\n")
    with pytest.raises(DataError, match=r"b\.csv, line 3: byte 1 .*\n1 fault beside 1 good documents"):
        read_documents(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. It pours!  Why?", [["It", "rains", "."], ["It", "pours", "!"], ["Why", "?"]]),
        (
            "Mr. X met J. Smith vs. me. I won.",
            [["Mr", ".", "X", "met", "J", ".", "Smith", "vs", ".", "me", "."], ["I", "won", "."]],
        ),
        ("“Why?” he said.", [["“", "Why", "?", "”", "he", "said", "."]]),
        ("It cost 3.50, e.g. for isn’t", [["It", "cost", "3.50", ",", "e", ".", "g", ".", "for", "isn’t"]]),
        ("A title\n\nwrapped\nline", [["A", "title"], ["wrapped", "line"]]),
        (
            "他说：“好！”我走了。第1章",
            [["他", "说", "：", "“", "好", "！", "”"], ["我", "走", "了", "。"], ["第", "1", "章"]],
        ),
        ("नमस्ते दुनिया। ठीक है।", [["नमस्ते", "दुनिया", "।"], ["ठीक", "है", "।"]]),
        ("كيف حالك؟ بخير.", [["كيف", "حالك", "؟"], ["بخير", "."]]),
        ("می‌روم", [["می‌روم"]]),
        ("wait... what", [["wait", "..."], ["what"]]),
        ("cafe\u0301 snake_case 👍🏽", [["cafe\u0301", "snake", "_", "case", "👍🏽"]]),
        (" \n\n ", []),
    ],
)
def test_sentences_and_words_in_any_script(text, expected):
    assert WordSplitter("unicode").sentences(text) == expected


def test_long_sentences_are_cut_and_nothing_is_lost():
    assert WordSplitter("unicode").sentences("a b c d e. F", max_words=2) == [["a", "b"], ["c", "d"], ["e", "."], ["F"]]
    assert cut([["a", "b"], ["c", "d"], ["e"]], 3) == [["a", "b"], ["c"]]
    assert cut([["a", "b"], ["c"]], 2) == [["a", "b"]]
    with pytest.raises(ConfigError, match=r"max_words is 0"):
        WordSplitter("unicode").sentences("a", max_words=0)


def split_documents(documents, **shares):
    task = Classify(configs.configure(Classify.Config, {"data": {"path": "given", **shares}}, "test"))
    said = []
    return task.split(list(documents), said.append), " ".join(said)


def test_a_class_of_one_document_is_trained_on_or_left_out():
    documents = [Document(f"text number {number}", "a" if number % 4 else "b") for number in range(400)]
    documents += [Document(f"rare {number}", f"rare {number}") for number in range(30)]
    made, said = split_documents(documents, valid_share=0.1, test_share=0.2)
    held = [*made.valid, *made.test]
    left_out = len(documents) - len(made.train) - len(held)
    assert left_out > 0
    assert f"{left_out} held-out documents are left out: none of the documents to train on has their class" in said
    assert {document.label for document in held} == {"a", "b"}
    assert {*split_documents(reversed(documents), valid_share=0.1, test_share=0.2)[0].test} == {*made.test}


def test_copies_that_differ_in_case_or_punctuation_are_in_one_part():
    documents = [Document(f"text number {number}", "ab"[number % 2]) for number in range(200)]
    copies = [Document(f"TEXT, number {number}!", "ab"[number % 2]) for number in range(200)]
    made, said = split_documents([*documents, *copies], valid_share=0.1, test_share=0.2)
    assert "200 of 400 documents have the same text (case, punctuation and spaces aside) as another one" in said
    of = {document.text: number for number, part in enumerate(made) for document in part}
    assert all(of[one.text] == of[other.text] for one, other in zip(documents, copies))


def test_duplicates_are_found_by_their_words():
    documents = [Document("a  b", "x"), Document("c", "x")]
    assert unique([*documents, Document("a b\n", "y")], lambda one: one.text) == documents


def test_vocabulary_and_its_buckets():
    documents = [[["b", "B", "a"], ["c", "a", "b"]], [["rare"]]]
    vocabulary = Vocabulary.count(documents, size=2, min_count=2, buckets=5)
    assert vocabulary.words == ("b", "a")
    assert len(vocabulary) == 8
    assert vocabulary.ids(["A", "b"]) == [2, 1]
    assert vocabulary.ids(["c", "rare", "新", "C"]) == [3, 5, 3, 3]  # the same in every process
    assert len(set(vocabulary.ids(map(str, range(100))))) == 5
    assert Vocabulary.from_text(vocabulary.to_text(), "v.json") == vocabulary
    cased = Vocabulary.count(documents, size=9, min_count=1, buckets=1, lowercase=False)
    assert set(cased.words) == {"a", "b", "B", "c", "rare"}
    for damaged in ("[]", "null", '{"words": [1], "buckets": 2, "lowercase": true}', "[" * 100_000):
        with pytest.raises(DataError, match=r"v\.json: is not a vocabulary"):
            Vocabulary.from_text(damaged, "v.json")


def test_vectors_of_glove_and_fasttext(tmp_path):
    vocabulary = Vocabulary(("the", "a b", "cat", "5"), buckets=2)
    glove = "the 1 2 3\nother x y z\na b 4 5 6\n5 7 8 9\nthe 0 0 0\n"
    for name, text in (("glove.txt", glove), ("wiki.vec", f"5 3\n{glove.replace(chr(10), ' ' + chr(10))}")):
        vectors, found = read_vectors(write(tmp_path / name, text), vocabulary, 3)
        assert found.tolist() == [False, True, True, False, True, False, False]
        assert vectors[[1, 2, 4]].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
        assert not vectors[~found].any()


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("the 1 2\n", ConfigError, r"has vectors of 2 numbers, but the model's have 3\. Set model\.embedding_dim=2"),
        ("the 1 2 3 4\n", ConfigError, r"has vectors of 4 numbers, but the model's have 3"),
        ("100 50\nthe 1\n", ConfigError, r"has vectors of 50 numbers, but the model's have 3"),
        ("x 1 2 3\ny 1 2 3\nthe 1\n", DataError, r"line 3: has 1 numbers after the word, expected 3\. The file is dam"),
        ("the 1 oops 3\n", DataError, r"line 1: could not convert string to float: 'oops', expected a word and 3"),
        ("the 1 nan 3\n", DataError, r"line 1: holds NaN or an infinity"),
        ("x 1 2 3\n", DataError, r"has a vector for none of the 1 words of the vocabulary"),
        ("", DataError, r"has a vector for none of the 1 words"),
    ],
)
def test_faulty_vectors(tmp_path, text, kind, message):
    with pytest.raises(kind, match=message):
        read_vectors(write(tmp_path / "v.txt", text), Vocabulary(("the",)), 3)


def test_planted_evidence_decides_and_nothing_else_does():
    made = planted(300, classes=3, seed=1)
    telling = {}
    others = set()
    for (text, label), sentence, word in made:
        document = [[w.lower() for w in words] for words in WordSplitter("unicode").sentences(text)]
        telling.setdefault(document[sentence].pop(word), set()).add(label)
        others |= {w for words in document for w in words}
    assert all(len(labels) == 1 for labels in telling.values())
    assert not others & telling.keys()
    assert {label for _, label in (entry.document for entry in made)} == {"a", "b", "c"}
    assert planted(5, seed=1) == planted(9, seed=1)[:5]
    assert planted(5, seed=1) != planted(5, seed=1, split="test")
    with pytest.raises(ConfigError, match=r"classes is 9, expected at most 8"):
        planted(1, classes=9)
