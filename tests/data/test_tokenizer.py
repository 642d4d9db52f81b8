"""Tokenizers: exact round trips in any script, offsets, labels, one file, the same vocabulary every time."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foci.data.tokenizer import BOS, BYTES, EOS, KINDS, PAD, SYMBOLS, UNK, Tokenizer
from foci.errors import ConfigError, DataError, MissingPackageError, UnknownNameError

CORPUS = [
    "the lowest tower is lower than the newest tower",
    "low, lower, lowest; new, newer, newest!",
    "two  spaces and\ta tab, 12.50 dollars in 2024",
    "如果一个人在成年前没有机会学习语言",
    "机会不是每天都有的，语言也不是",
    "สวัสดีครับ ขอบคุณมากครับ",
    "こんにちは、世界。ありがとう",
]
SIZES = {"bpe": 400, "unigram": 400, "bytes": 260, "characters": 200, "words": 300}
TRAINED = {kind: Tokenizer.train(CORPUS, kind, SIZES[kind]) for kind in KINDS}
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", CORPUS)
def test_what_was_seen_comes_back_exactly(kind, sentence):
    tokenizer = TRAINED[kind]
    assert tokenizer.decode(tokenizer.encode(sentence).ids) == sentence


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes"])
@settings(max_examples=20)
@given(sentence=text)
def test_any_text_comes_back_exactly_from_subwords(kind, sentence):
    encoding = TRAINED[kind].encode(sentence)
    assert UNK not in encoding.ids
    assert TRAINED[kind].decode(encoding.ids) == sentence


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes"])
@pytest.mark.parametrize(
    "sentence", ["👩‍👩‍👧 family", "a   b    c ", " \n\n x", "<pad> <0x41> </s> ▁", "مرحبا بالعالم", "한국어"]
)
def test_emoji_spaces_symbols_and_unseen_scripts_come_back(kind, sentence):
    encoding = TRAINED[kind].encode(sentence)
    assert TRAINED[kind].decode(encoding.ids) == sentence
    assert min(encoding.ids) > UNK  # the user's "<pad>" is text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(sentence=text)
def test_offsets_cover_the_text_in_order(kind, sentence):
    ids, tokens, offsets = TRAINED[kind].encode(sentence)
    assert len(ids) == len(tokens) == len(offsets)
    assert all(0 <= start < end <= len(sentence) for start, end in offsets)
    assert offsets == sorted(offsets)
    assert {place for start, end in offsets for place in range(start, end)} == set(range(len(sentence)))
    for number, token, (start, end) in zip(ids, tokens, offsets):
        assert token in BYTES or number == UNK or token == sentence[start:end]


@pytest.mark.parametrize("kind", KINDS)
def test_many_equal_one_by_one(kind):
    tokenizer = TRAINED[kind]
    many = CORPUS * 150  # more than one chunk
    assert list(tokenizer.encode_many(iter(many))) == [tokenizer.encode(sentence).ids for sentence in many]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_ids_are_the_symbols_and_decoding_skips_them(kind):
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode("low lower").ids
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert tokenizer.labels([PAD, BOS, EOS, UNK]) == list(SYMBOLS)
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == tokenizer.decode(ids)
    assert tokenizer.decode([UNK]) == "�"
    with pytest.raises(DataError, match=f"id {len(tokenizer)} is not in the vocabulary, expected 0 to"):
        tokenizer.decode([len(tokenizer)])
    with pytest.raises(DataError, match="id -1 is not in the vocabulary"):
        tokenizer.labels([-1])


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_printable_and_different(kind):
    labels = TRAINED[kind].labels(range(len(TRAINED[kind])))
    assert all(label.isprintable() and " " not in label and label for label in labels)
    assert len(set(labels)) == len(labels)


def test_scripts_without_spaces_are_cut():
    for kind in ("bpe", "unigram"):
        assert 1 < len(TRAINED[kind].encode(CORPUS[3]).ids) <= len(CORPUS[3])
    assert "语言" in TRAINED["bpe"].encode("语言").tokens
    words = TRAINED["words"]
    assert words.encode("语言").tokens == ["语", "言"]
    assert words.encode("the lowest tower, 12").tokens == ["the", " lowest", " tower", ",", " 1", "2"]
    assert words.encode("unseenword").ids == [UNK]
    assert TRAINED["characters"].encode("low 机会").tokens == ["l", "o", "w", " ", "机", "会"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_file_holds_it_all(kind, tmp_path):
    path = tmp_path / "tokenizer.json"
    TRAINED[kind].save(path)
    loaded = Tokenizer.load(path)
    assert len(loaded) == len(TRAINED[kind]) <= SIZES[kind]
    for sentence in [*CORPUS, "unseen ключ"]:
        assert loaded.encode(sentence) == TRAINED[kind].encode(sentence)
    assert json.loads(path.read_text(encoding="utf-8"))


TRAIN_AND_PRINT = """
import hashlib, sys
sys.path.insert(0, sys.argv[2])
from foci.data.tokenizer import Tokenizer
import pathlib, tempfile
corpus = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("|")
for kind in ("bpe", "unigram", "words"):
    with tempfile.TemporaryDirectory() as folder:
        Tokenizer.train(corpus, kind, 420).save(folder + "/t.json")
        print(hashlib.sha256(pathlib.Path(folder, "t.json").read_bytes()).hexdigest())
"""


@pytest.mark.slow
def test_every_process_learns_the_same_file(tmp_path):
    import foci

    source = os.path.dirname(os.path.dirname(foci.__file__))
    (tmp_path / "corpus").write_text("|".join(CORPUS * 3), encoding="utf-8")
    command = [sys.executable, "-c", TRAIN_AND_PRINT, str(tmp_path / "corpus"), source]
    runs = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert len(runs.pop().split()) == 3


def test_wrong_options_say_what_is_right():
    with pytest.raises(ConfigError, match="size is 260, expected at least 261 for 'bpe': .* 4 symbols and 256 bytes"):
        Tokenizer.train(CORPUS, "bpe", 260)
    with pytest.raises(ConfigError, match="size is 4, expected at least 5 for 'words'"):
        Tokenizer.train(CORPUS, "words", 4)
    with pytest.raises(UnknownNameError, match="unknown kind of tokenizer 'unigrams'. Did you mean 'unigram'"):
        Tokenizer.train(CORPUS, "unigrams", 300)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corpus", [[], ["", ""], iter([])])
def test_an_empty_corpus_is_refused(kind, corpus):
    with pytest.raises(DataError, match="the corpus holds no text"):
        Tokenizer.train(corpus, kind, 300)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes"])
def test_the_smallest_vocabulary_still_brings_text_back(kind):
    tokenizer = Tokenizer.train(CORPUS, kind, 261)
    assert len(tokenizer) <= 261
    assert tokenizer.decode(tokenizer.encode(CORPUS[3]).ids) == CORPUS[3]


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none.json: the tokenizer cannot be read \(.*No such file"):
        Tokenizer.load(tmp_path / "none.json")
    path = tmp_path / "half.json"
    TRAINED["bpe"].save(path)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(DataError, match="half.json: not a tokenizer that foci wrote, or a damaged one"):
        Tokenizer.load(path)
    path.write_text(whole.replace('"<bos>"', '"<s>"'), encoding="utf-8")
    with pytest.raises(DataError, match="the first ids stand for <pad>, <s>, <eos>, <unk>, expected <pad>, <bos>"):
        Tokenizer.load(path)
    for change in (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}}},
        {"normalizer": {"type": "NFC"}},
    ):
        path.write_text(json.dumps({**json.loads(whole), **change}), encoding="utf-8")
        with pytest.raises(DataError, match="half.json: not a tokenizer that foci wrote"):
            Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        Tokenizer.load(path)


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(DataError, match="half a surrogate pair"):
        TRAINED["bpe"].encode("a\ud800")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'foci\[text\]'"):
        Tokenizer.train(CORPUS, "bpe", 300)


def test_chinese_that_comes_segmented_stays_segmented():
    texts = ["我 喜欢 北京 的 秋天 。", "他们 在 图书馆 读书 2024 <pad> 。"]
    segmented = Tokenizer.train(texts, "words", 100)
    assert {" 喜欢", " 图书馆", " 北京"} <= {*segmented.pieces}
    again = Tokenizer.from_text(segmented.to_text(), "x")
    assert again.note == ", as the texts are segmented"
    for text in (*texts, "我 的 北京 。"):
        assert again.decode(again.encode(text).ids) == text
    assert 0 not in again.encode("<pad>").ids
    natural = Tokenizer.train([text.replace(" ", "") for text in texts], "words", 100)
    assert natural.note == ""
    assert {"喜", "欢"} <= {*natural.pieces}
