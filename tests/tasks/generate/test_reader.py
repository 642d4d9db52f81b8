"""Plain text from files, folders and JSONL; what is held out; windows of it."""

import gzip
import json
import lzma

import numpy as np
import pytest

from foci.data.tokenizer import BOS, EOS, PAD, Tokenizer
from foci.errors import ConfigError, DataError
from foci.tasks.generate.reader import TextDocument, TextFiles, python_reference
from foci.tasks.generate.windows import WindowBatches, WindowExamples, encode_documents, encode_text

LINES = "First line.\n\n  Second: 新年快乐\r\nthird\n"


def test_a_file_is_one_document_and_comes_back_exactly(tmp_path):
    (tmp_path / "a.txt").write_bytes(LINES.encode())
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf" + LINES.encode())
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(LINES.encode())
    with lzma.open(tmp_path / "a.txt.xz", "wb") as file:
        file.write(LINES.encode())
    for name in ("a.txt", "bom.txt", "a.txt.gz", "a.txt.xz"):
        assert TextFiles(tmp_path / name).documents() == [TextDocument(LINES)], name


def test_pieces_of_a_long_file_join_to_it_and_no_line_is_cut(tmp_path):
    text = "".join(f"line {number}: 雪 {'x' * (number % 37)}\n" for number in range(9000))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    pieces = list(TextFiles(tmp_path / "long.txt"))
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text.endswith("\n") for piece in pieces)
    one_line = "ab" * 300_000
    (tmp_path / "one.txt").write_text(one_line, encoding="utf-8")
    pieces = list(TextFiles(tmp_path / "one.txt"))
    assert len(pieces) > 1
    assert "".join(piece.text for piece in pieces) == one_line


def test_a_folder_in_the_order_of_its_paths_without_hidden_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.txt").write_text("two", encoding="utf-8")
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    (tmp_path / "c.md").write_text("three", encoding="utf-8")
    (tmp_path / ".hidden").write_bytes(b"\0")
    assert [one.text for one in TextFiles(tmp_path).documents()] == ["one", "two", "three"]
    assert [one.text for one in TextFiles(tmp_path, pattern="*.txt").documents()] == ["one", "two"]
    with pytest.raises(DataError, match=r"the folder has 3 files, none of which matches '\*\.rst'"):
        TextFiles(tmp_path, pattern="*.rst").documents()


def test_jsonl_has_a_document_per_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"body": text}) for text in ("a\nb", "c")) + "\n", encoding="utf-8")
    assert TextFiles(path, field="body").documents() == [TextDocument("a\nb"), TextDocument("c")]
    assert TextFiles(path, field="body", max_characters=1).documents() == [TextDocument("a"), TextDocument("c")]
    with pytest.raises(
        DataError,
        match=r"a\.jsonl, line 1: no field 'text'.*Set data.columns \(--columns\) to the names that the file has\.\n",
    ):
        TextFiles(path).documents()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: there is no text"),
        (b"good\nbad \xff\n", "line 2: is not UTF-8"),
        (b"a\nb\nc\0d\n", "line 3: holds a zero byte, so it is a binary file"),
        (b"x" * 70_000 + b"\n" * 5 + b"\xe4\xbd", "line 6: is not UTF-8"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:-20], "the compressed file is damaged"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_their_line(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        TextFiles(path).documents()
    assert str(path) in str(caught.value)


def test_the_built_in_text_is_there():
    chapters = python_reference()
    assert len(chapters) > 50
    assert sum(len(one.text) for one in chapters) > 300_000
    assert max(len(one.text) for one in python_reference(100)) == 100


def test_long_texts_are_encoded_as_in_one_piece():
    text = "".join(f"word{number % 101} and more\n" for number in range(12_000))
    for kind, size in (("characters", 100), ("words", 300), ("bytes", 260), ("bpe", 400)):
        tokenizer = Tokenizer.train([text[:5000]], kind, size)
        assert encode_text(tokenizer, text).tolist() == tokenizer.encode(text).ids
    assert encode_text(tokenizer, "").tolist() == []


def test_documents_are_separated_and_a_single_one_is_not():
    tokenizer = Tokenizer.train(["abc"], "characters", 10)
    a, b, c = tokenizer.encode("abc").ids
    assert encode_documents(tokenizer, [TextDocument("ab"), TextDocument("c")]).tolist() == [a, b, EOS, c, EOS]
    assert encode_documents(tokenizer, [TextDocument("abc")]).tolist() == [a, b, c]


def test_an_epoch_of_windows_has_each_token_at_most_once_and_windows_are_whole():
    ids = np.arange(10, 10 + 103)
    batches = WindowBatches(ids, context=7, batch_size=3, seed=5)
    firsts = set()
    for _ in range(3):
        epoch = batches.state_dict()["epoch"]
        seen = []
        for batch in batches:
            assert (batch.tokens[:, 0] == BOS).all()
            for row in batch.tokens[:, 1:]:
                assert row.tolist() == list(range(int(row[0]), int(row[0]) + 7))
                seen += row.tolist()
            if batches.state_dict()["epoch"] != epoch:
                break
        assert len(seen) == len(set(seen)) >= 103 - 7 - 3 * 7
        firsts.add(min(seen) % 7)
    assert len(firsts) > 1  # windows begin elsewhere in other epochs


def test_no_whole_window_of_an_epoch_is_left_out():
    for length in (5, 9, 10, 23):
        batches = WindowBatches(np.arange(4, 4 + length), context=5, batch_size=1, seed=2)
        for epoch in range(12):
            starts = sorted(int(one) for starts in batches._plan(epoch) for one in starts)
            assert starts == list(range(starts[0], length - 4, 5))
            assert starts[0] < 5


def test_windows_resume_where_they_stopped_and_shards_make_up_the_batch():
    ids = np.arange(4, 300)
    options = {"context": 11, "batch_size": 5, "seed": 3}
    whole = WindowBatches(ids, **options)
    stream = iter(whole)
    for _ in range(7):
        next(stream)
    resumed = WindowBatches(ids, **options)
    resumed.load_state_dict(whole.state_dict())
    for ours, expected in zip(range(9), zip(resumed, stream)):
        assert expected[0].tokens.tolist() == expected[1].tokens.tolist(), ours
    first = next(iter(WindowBatches(ids, **options))).tokens
    parts = [next(iter(WindowBatches(ids, **options, rank=rank, world_size=2))).tokens for rank in (0, 1)]
    assert parts[0].tolist() == first[0::2].tolist()
    assert parts[1].tolist() == first[1::2].tolist()
    with pytest.raises(ConfigError, match="another stream: its context is 11, here it is 12"):
        WindowBatches(ids, context=12, batch_size=5, seed=3).load_state_dict(whole.state_dict())
    with pytest.raises(DataError, match="has 5 tokens, expected at least one window of data.context = 6"):
        WindowBatches(ids[:5], context=6, batch_size=1)


def test_windows_of_a_stream_are_padded_at_the_end_only():
    examples = WindowExamples(np.arange(4, 15), 4)
    assert examples.lengths.tolist() == [[5], [5], [4]]
    batch = examples.batch(np.array([2, 0]), [5])
    assert batch.tokens.tolist() == [[BOS, 12, 13, 14, PAD], [BOS, 4, 5, 6, 7]]
