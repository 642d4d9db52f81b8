"""Tagged sentences: from files of many forms to one, a text with its words, its labeled spans and its intent.

    .jsonl          {"text": …, "spans": [{"start": 0, "end": 5, "label": "PER"}], "intent": …}; offsets in characters
    .conllu         CoNLL-U: any column by its name; ranges (3-4) and empty words (8.1) are passed over
    a folder        seq.in, seq.out and, if there are intents, label: line n of each is one sentence, as Snips has it
    two files       the same with any names
    any other file  one word per line, its columns separated by tabs or spaces; an empty line ends a sentence, and
                    comments (# key = value) and -DOCSTART- are passed over

All may be compressed (.gz, .xz). Tags are recognized as BIO, BIOES, IOB1 or plain labels; malformed ones are repaired
and counted (`foci.tasks.tag.schemes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import Fault, Log, ending_of, read_examples, read_lines
from foci.data.tables import JSON, read_records
from foci.data.words import word_pattern
from foci.errors import ConfigError, DataError, near_names
from foci.metrics.spans import Span
from foci.tasks.tag.schemes import PLAIN, Recognized, recognize, to_spans

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U."""
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=\s|# id\s")
"""A comment in a file with columns, as CoNLL-U and MultiCoNER write them; a word may be # too."""

Offsets = tuple[int, int]
"""Where a word begins and ends in its text, in characters; the end is not in it."""


class LabeledSpan(NamedTuple):
    """A labeled piece of a text, by its characters; ``end`` is not in it."""

    start: int
    end: int
    label: str


class TaggedSentence(NamedTuple):
    """A text, the pieces of it that have a label, and the label of the whole ("" for none)."""

    text: str
    spans: tuple[LabeledSpan, ...]
    intent: str
    words: tuple[Offsets, ...]

    @property
    def tokens(self) -> list[str]:
        """The words."""
        return [self.text[start:end] for start, end in self.words]

    def word_spans(self) -> list[Span]:
        """The spans by the numbers of their words."""
        return to_words(self.spans, self.words)[0]

    def to_record(self) -> dict[str, Any]:
        """Return the sentence as plain JSON."""
        return {
            "text": self.text,
            "spans": [span._asdict() for span in self.spans],
            "intent": self.intent,
            "words": [list(offsets) for offsets in self.words],
        }


class TaggedFile(NamedTuple):
    """The sentences of a file, the scheme of its tags, and what was noticed, as messages for the user."""

    sentences: list[TaggedSentence]
    scheme: str
    notes: list[str]


class _Written(NamedTuple):
    """A sentence with one tag per word, as it stands in a file."""

    words: list[str]
    tags: list[str]
    joined: list[bool]
    """Whether no space follows each word."""
    lines: list[int]
    """The line of each tag."""
    intent: str = ""


def find_words(text: str) -> tuple[Offsets, ...]:
    """Return where the words of a text are, in any script; see `foci.data.words.sentences_of` for what a word is.

    Example:
        >>> find_words("at 7 p.m.")
        ((0, 2), (3, 4), (5, 6), (6, 7), (7, 8), (8, 9))
        >>> find_words("3月5日")
        ((0, 1), (1, 2), (2, 3), (3, 4))
    """
    return tuple((found.start(), found.end()) for found in word_pattern().finditer(text))


def to_words(spans: Iterable[LabeledSpan], words: Sequence[Offsets]) -> tuple[list[Span], int]:
    """Return spans by the numbers of their words, and how many begin or end inside a word: these are widened.

    A span that touches no word, or words of another span, is left out and counted too.
    """
    found: list[Span] = []
    changed = 0
    taken = -1
    for start, end, label in sorted(spans):
        inside = [number for number, (begin, stop) in enumerate(words) if begin < end and stop > start]
        if not inside or inside[0] <= taken:
            changed += 1
            continue
        taken = inside[-1]
        changed += words[inside[0]][0] != start or words[taken][1] != end
        found.append(Span(inside[0], taken, label))
    return found, changed


def to_characters(spans: Iterable[Span], words: Sequence[Offsets]) -> tuple[LabeledSpan, ...]:
    """Return spans of words by their characters.

    Example:
        >>> to_characters([Span(1, 2, "time")], find_words("at 7 pm"))
        (LabeledSpan(start=3, end=7, label='time'),)
    """
    return tuple(LabeledSpan(words[first][0], words[last][1], label) for first, last, label in spans)


def read_tagged(
    path: str | Path,
    *,
    tags: str | Path | None = None,
    intents: str | Path | None = None,
    columns: tuple[int | str, int | str] = (0, -1),
    log: Log | None = None,
) -> TaggedFile:
    """Read tagged sentences; the form follows from the name of the file, as the module says.

    Args:
        path: the file, or a folder with seq.in and seq.out.
        tags: a file with the tags of each line of ``path``, which then holds one sentence per line.
        intents: a file with one label per line of ``path``; only with ``tags``.
        columns: in a file with columns, those of words and tags: zero-based, or from the end, -1 is the last one; in
            CoNLL-U that of the tags may be its name.
        log: called with a message every few seconds.

    Raises:
        DataError: the first mistake, with its file and line, and how many there are.
    """
    path = Path(path)
    if path.is_dir():
        if tags is not None or intents is not None:
            raise ConfigError(f"{path}: is a folder, so the tags are its seq.out. Leave data.tags and intents out.")
        names = {name: _inside(path, name) for name in ("seq.in", "seq.out", "label")}
        if names["seq.in"] is None or names["seq.out"] is None:
            raise DataError(f"{path}: the folder has no seq.in and seq.out, expected words and tags by these names.")
        return _from_tags(path, _aligned(names["seq.in"], names["seq.out"], names["label"]), log)
    if tags is not None:
        return _from_tags(path, _aligned(path, Path(tags), None if intents is None else Path(intents)), log)
    if intents is not None:
        raise ConfigError("data.intents is set without data.tags, expected files of words, tags and intents.")
    if ending_of(path) in JSON:
        return _from_objects(path, log)
    word_column, column = columns
    if ending_of(path) == ".conllu":
        return _from_tags(path, _conllu(path, column), log)
    if isinstance(word_column, str) or isinstance(column, str):
        raise ConfigError(
            f"{path}: data.columns is {word_column!r}, {column!r}, expected numbers: only CoNLL-U (.conllu) has "
            "names of columns."
        )
    return _from_tags(path, _columns(path, word_column, column), log)


def _inside(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed."""
    return next((path for end in ("", ".gz", ".xz") if (path := folder / f"{name}{end}").is_file()), None)


# ---- one tag per word


def _from_tags(path: Path, entries: Iterator[_Written | Fault], log: Log | None) -> TaggedFile:
    written = read_examples(path, entries, "sentences", log)
    scheme, foreign = recognize(sentence.tags for sentence in written)
    if foreign:
        raise _foreign_tag(path, written, Recognized(scheme, foreign))
    sentences, repairs, repaired = [], 0, 0
    for one in written:
        offsets, text = _laid_out(one)
        spans, malformed = to_spans(one.tags, scheme)
        repairs += malformed
        repaired += malformed > 0
        sentences.append(TaggedSentence(text, to_characters(spans, offsets), one.intent, offsets))
    plain = "no prefixes (such as B-): each word has a label of its own"
    notes = [f"{path}: tags {f'have {plain}' if scheme == PLAIN else f'in {scheme}'}"]
    if repairs:
        notes.append(
            f"{path}: {repairs:,} tags in {repaired:,} sentences are malformed for {scheme} (such as I after O) and "
            "were repaired as conlleval reads them: what cannot continue a span begins one"
        )
    return TaggedFile(sentences, scheme, notes)


def _foreign_tag(path: Path, written: Sequence[_Written], found: Recognized) -> DataError:
    tag = found.foreign[0]
    line = next(one.lines[one.tags.index(tag)] for one in written if tag in one.tags)
    count = sum(one.tags.count(foreign) for one in written for foreign in found.foreign)
    return DataError(
        f"{path}, line {line}: tag {tag!r} has no prefix of {found.scheme} (B-, I-, E- or S-), as the other tags have; "
        f"{count:,} tags of {len(found.foreign)} kinds are like that. Correct them, or choose another column."
    )


def _laid_out(sentence: _Written) -> tuple[tuple[Offsets, ...], str]:
    """Where the words stand in their text, and the text: a space between words unless they are joined."""
    offsets, text = [], ""
    for word, joined in zip(sentence.words, sentence.joined):
        offsets.append((len(text), len(text) + len(word)))
        text += word + ("" if joined else " ")
    return tuple(offsets), text.rstrip(" ")


def _aligned(words: Path, tags: Path, intents: Path | None) -> Iterator[_Written | Fault]:
    paths = [words, tags, *([] if intents is None else [intents])]
    for number, lines in enumerate(zip_longest(*(read_lines(path) for path in paths)), start=1):
        faults = [line for line in lines if isinstance(line, Fault)]
        texts = [line for line in lines if isinstance(line, str)]
        if faults:
            yield faults[0]
            continue
        if len(texts) < len(paths):
            missing = paths[lines.index(None)]
            yield Fault(
                next(path for path, line in zip(paths, lines) if line is not None),
                number,
                "line without a partner",
                f"no such line in {missing}. Line n of each file must be of the same sentence.",
            )
            return
        found, labels = texts[0].split(), texts[1].split()
        if not found:
            yield Fault(words, number, "empty sentence", "the line is empty, expected words.")
        elif len(found) != len(labels):
            reason = f"has {len(labels)} tags for {len(found)} words, expected as many of each."
            yield Fault(tags, number, "other number of tags", reason)
        elif intents is not None and not texts[2].strip():
            yield Fault(intents, number, "empty intent", "the line is empty, expected the label of the sentence.")
        else:
            apart, places = [False] * len(found), [number] * len(found)
            yield _Written(found, labels, apart, places, texts[2].strip() if intents else "")


def _columns(path: Path, word_column: int, column: int) -> Iterator[_Written | Fault]:
    def split(line: str) -> list[str]:
        return line.split("\t") if "\t" in line else line.split()

    def usable_row(line: str) -> bool:
        return not line.startswith("-DOCSTART-") and _COMMENT.match(line) is None

    return _rows(path, split, usable_row, word_column, column, lambda cells: False)


def _conllu(path: Path, column: int | str) -> Iterator[_Written | Fault]:
    if column == -1:
        column = "upos"
    if isinstance(column, str):
        if column.lower() not in CONLLU:
            raise ConfigError(f"{path}: data.columns has {column!r} for the tags. {near_names(column, CONLLU)}")
        column = CONLLU.index(column.lower())

    def usable_row(line: str) -> bool:
        return not line.startswith("#") and line.split("\t", 1)[0].isdecimal()

    def joined(cells: list[str]) -> bool:
        return len(cells) > 9 and "SpaceAfter=No" in cells[9].split("|")

    return _rows(path, lambda line: line.split("\t"), usable_row, 1, column, joined)


def _rows(
    path: Path,
    split: Callable[[str], list[str]],
    usable_row: Callable[[str], bool],
    word_column: int,
    column: int,
    joined: Callable[[list[str]], bool],
) -> Iterator[_Written | Fault]:
    """The sentences of a file with one word per line; a sentence with a faulty line is that fault."""
    sentence = _Written([], [], [], [])
    faults: list[Fault] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if isinstance(line, Fault):
            faults.append(line)
        elif "\0" in line:
            reason = "holds a zero byte, so it is a binary file. Give a text file."
            faults.append(Fault(path, number, "binary file", reason))
        elif not line.strip():
            if faults or sentence.words:
                yield faults[0] if faults else sentence
            sentence, faults = _Written([], [], [], []), []
        elif usable_row(line):
            cells = split(line)
            least = max(place if place >= 0 else -1 - place for place in (word_column, column)) + 1
            if len(cells) < max(least, 2):
                reason = (
                    f"the line has {len(cells)} columns, expected a word in column {word_column} and its tag in "
                    f"column {column} (from 0; -1 is the last one). Choose others with data.columns."
                )
                faults.append(Fault(path, number, "missing column", reason))
            elif not cells[word_column].strip() or not cells[column].strip():
                faults.append(Fault(path, number, "empty cell", "the word or its tag is empty."))
            else:
                sentence.words.append(cells[word_column].strip())
                sentence.tags.append(cells[column].strip())
                sentence.joined.append(joined(cells))
                sentence.lines.append(number)


# ---- spans by characters


def _from_objects(path: Path, log: Log | None) -> TaggedFile:
    sentences = read_examples(path, read_records(path, from_record, "unusable sentence"), "sentences", log)
    changed, every_word = 0, True
    for place, sentence in enumerate(sentences):
        found, inexact = to_words(sentence.spans, sentence.words)
        changed += inexact
        every_word = every_word and [(one.first, one.last) for one in found] == [
            (number, number) for number in range(len(sentence.words))
        ]
        sentences[place] = sentence._replace(spans=to_characters(found, sentence.words))
    notes = []
    if changed:
        notes.append(
            f"{path}: {changed:,} spans begin or end inside a word and were widened to whole words, or were left out "
            'where the word has a span already. Give the words yourself ("words": [[start, end], …]) to change that'
        )
    return TaggedFile(sentences, PLAIN if every_word else "BIO", notes)


def from_record(record: Any) -> TaggedSentence:
    """Return the sentence of a JSON object; words that are not given are found.

    Raises:
        DataError: a field is missing or of another kind, or spans lie outside of the text or overlap.
    """
    if not isinstance(record, dict):
        raise DataError(f"a JSON {type(record).__name__}, expected one object per line.")
    for name in ("text", "spans"):
        if name not in record:
            raise DataError(f"no field {name!r}. {near_names(name, record)}")
    text, intent = record["text"], record.get("intent", "")
    if not isinstance(text, str) or not isinstance(intent, str) or not isinstance(record["spans"], list | tuple):
        raise DataError("expected a text in 'text', a list in 'spans' and, if there is one, a text in 'intent'.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError("the text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character.")
    words = find_words(text) if record.get("words") is None else _given_words(record["words"], text)
    if not words:
        raise DataError("the text has no words.")
    spans = sorted(_given_span(one, text) for one in record["spans"])
    for before, after in pairwise(spans):
        if after.start < before.end:
            raise DataError(
                f"the spans {tuple(before)} and {tuple(after)} overlap, expected spans that do not: each word has one "
                "tag. Remove one of them."
            )
    return TaggedSentence(text, tuple(spans), intent.strip(), words)


def _given_span(given: Any, text: str) -> LabeledSpan:
    values = [given.get(name) for name in LabeledSpan._fields] if isinstance(given, dict) else given
    if (
        not isinstance(values, list | tuple)
        or len(values) != 3
        or not isinstance(values[2], str)
        or not all(isinstance(place, int) and not isinstance(place, bool) for place in values[:2])
    ):
        raise DataError(
            'a span is no object such as {"start": 0, "end": 5, "label": "PER"}, nor such a list [0, 5, "PER"].'
        )
    span = LabeledSpan(values[0], values[1], values[2].strip())
    if not 0 <= span.start < span.end <= len(text):
        raise DataError(
            f"the span {tuple(span)} is not part of the text, which has {len(text)} characters; expected 0 ≤ start < "
            "end ≤ length, counted in characters."
        )
    if not span.label:
        raise DataError(f"the span {tuple(span)} has an empty label.")
    return span


def _given_words(given: Any, text: str) -> tuple[Offsets, ...]:
    end = 0
    words = []
    for one in given if isinstance(given, list | tuple) else [None]:
        if (
            not isinstance(one, list | tuple)
            or len(one) != 2
            or not all(isinstance(place, int) for place in one)
            or not end <= one[0] < one[1] <= len(text)
        ):
            raise DataError("'words' is no list of [start, end] in the text, in order and without overlaps.")
        end = one[1]
        words.append((one[0], one[1]))
    return tuple(words)
