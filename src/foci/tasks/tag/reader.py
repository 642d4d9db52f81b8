"""Tagged sentences: from files of many forms to one, a text with its words, its labeled spans and its intent.

    .jsonl          {"text": …, "spans": [{"start": 0, "end": 5, "label": "PER"}], "intent": …}, and the objects of
                    spaCy, doccano, CLUENER and Hugging Face (`foci.tasks.tag.json_records`)
    .conllu         CoNLL-U: any column by its name; ranges (3-4) and empty words (8.1) are passed over
    a folder        seq.in, seq.out and, if there are intents, label: line n of each is one sentence, as Snips has it
    two files       the same with any names
    any other file  one word per line, its columns separated by tabs or blanks; an empty line ends a sentence, and
                    comments (# key = value) and -DOCSTART- are passed over

All may be compressed (.gz, .xz). Tags are recognized as BIO, BIOES, IOB1 or plain labels; malformed ones are repaired
and counted (`foci.tasks.tag.schemes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import Fault, ending_of, read_examples, read_lines
from foci.data.tables import JSON, json_objects
from foci.data.word_splitter import Offsets, WordSplitter
from foci.errors import ConfigError, DataError, near_names
from foci.tasks.tag.json_records import from_record, tagged_words
from foci.tasks.tag.schemes import PLAIN, Recognized, in_standard_form, recognize, to_spans
from foci.tasks.tag.sentences import TaggedSentence, to_characters, to_words
from foci.tasks.tag.splitting import learn_rule

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U."""
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=\s|# id\s")
"""A comment in a file with columns, as CoNLL-U and MultiCoNER write them; a word may be # too."""
_COLUMN_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".bmes", ".bioes")
_TAG = re.compile(r"O|[BIESLUMW]|[BIESLUMW][-_].+|.+[-_][BIESLUMW]")
_SNIFFED = 2000
"""Lines that tell whether a file has columns."""


class TaggedFile(NamedTuple):
    """The sentences of a file, the scheme of its tags, and what was noticed, as messages for the user."""

    sentences: list[TaggedSentence]
    scheme: str
    notes: list[str]
    rule: str
    """The rule that splits plain text into such words."""


class _Written(NamedTuple):
    """A sentence with one tag per word, as it stands in a file."""

    words: list[str]
    tags: list[str]
    joined: list[bool]
    """Whether no space follows each word."""
    lines: list[int]
    """The line of each tag."""
    intent: str = ""


def read_tagged(
    path: str | Path,
    *,
    tags: str | Path | None = None,
    intents: str | Path | None = None,
    columns: tuple[int | str, int | str] = (0, -1),
    names: Sequence[str] = (),
    rule: str = "auto",
) -> TaggedFile:
    """Read tagged sentences; the form follows from the name of the file, as the module says.

    Args:
        path: the file, or a folder with seq.in and seq.out.
        tags: a file with the tags of each line of ``path``, which then holds one sentence per line.
        intents: a file with one label per line of ``path``; only with ``tags``.
        columns: in a file with columns, those of words and tags: zero-based, or from the end, -1 is the last one; in
            CoNLL-U that of the tags may be its name, and in JSON both are names of fields.
        names: what tags that are numbers in JSON stand for.
        rule: how texts without words are split; by default the rule is learned.

    Raises:
        DataError: the first mistake, with its file and line, and how many there are.
    """
    path = Path(path)
    if path.is_dir():
        if tags is not None or intents is not None:
            raise ConfigError(f"{path}: is a folder, so the tags are its seq.out. Leave data.tags and intents out.")
        words, labels = _inside(path, "seq.in"), _inside(path, "seq.out")
        if words is None or labels is None:
            raise DataError(f"{path}: the folder has no seq.in and seq.out, expected words and tags by these names.")
        return _from_tags(path, _aligned(words, labels, _inside(path, "label")), rule)
    if tags is not None:
        return _from_tags(path, _aligned(path, Path(tags), None if intents is None else Path(intents)), rule)
    if intents is not None:
        raise ConfigError("data.intents is set without data.tags, expected files of words, tags and intents.")
    if ending_of(path) in JSON:
        return _from_objects(path, columns, names, rule)
    word_column, column = columns
    if ending_of(path) == ".conllu":
        return _from_tags(path, _conllu(path, column), rule)
    if isinstance(word_column, str) or isinstance(column, str):
        raise ConfigError(
            f"{path}: data.columns is {word_column!r}, {column!r}, expected numbers: only CoNLL-U (.conllu) and "
            "JSON have names of columns."
        )
    return _from_tags(path, _columns(path, word_column, column), rule)


def read_words(path: str | Path, word_column: int | str = 0) -> Iterator[tuple[list[str], int] | Fault] | None:
    """Return the words of the sentences of a file with columns, and the line of each; None for a file of another form.

    Such a file has a known ending, or as many columns, two or more, in each of its lines, and either tags in the last
    one or empty lines between sentences.
    """
    path = Path(path)
    if path.is_dir() or not (ending_of(path) in _COLUMN_ENDINGS or _has_columns(path)):
        return None
    place = word_column if isinstance(word_column, int) else 0
    sentences = _conllu(path, "form") if ending_of(path) == ".conllu" else _columns(path, place, place)
    return (one if isinstance(one, Fault) else (one.words, one.lines[0]) for one in sentences)


def _has_columns(path: Path) -> bool:
    if ending_of(path) in JSON:
        return False
    lines = [line for line in islice(read_lines(path), _SNIFFED) if isinstance(line, str)]
    rows = [_cells(line) for line in lines if line.strip() and _is_row(line)]
    if len(rows) < 2 or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return False
    # In plain tags anything may stand: then sentences must be told by empty lines inside of the file.
    between = any(not line.strip() for line in lines[lines.index(next(filter(str.strip, lines))) : -1])
    return all(_TAG.fullmatch(row[-1]) for row in rows) or (between and len(rows) > 3)


def _inside(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed."""
    return next((path for end in ("", ".gz", ".xz") if (path := folder / f"{name}{end}").is_file()), None)


# ---- one tag per word


def _from_tags(path: Path, entries: Iterator[_Written | Fault], rule: str) -> TaggedFile:
    written = read_examples(path, entries, "sentences")
    notes = []
    if standard := in_standard_form([tag for one in written for tag in one.tags]):
        example = next(tag for one in written for tag in one.tags if standard(tag) != tag)
        notes.append(f"{path}: tags such as {example} are read as {standard(example)}")
        written = [one._replace(tags=[*map(standard, one.tags)]) for one in written]
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
    notes.append(f"{path}: tags {f'have {plain}' if scheme == PLAIN else f'in {scheme}'}")
    if repairs:
        notes.append(
            f"{path}: {repairs:,} tags in {repaired:,} sentences are malformed for {scheme} (such as I after O) and "
            "were repaired as conlleval reads them: what cannot continue a span begins one"
        )
    return TaggedFile(sentences, scheme, notes, learn_rule(sentences).rule if rule == "auto" else rule)


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
        found, labels = _cells(texts[0]), _cells(texts[1])
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
    return _rows(path, _cells, _is_row, word_column, column, lambda cells: False)


def _cells(line: str) -> list[str]:
    """The columns of a line: only tabs and blanks separate, since a no-break or an ideographic space may be a word."""
    if "\t" in line:
        return line.split("\t")
    return line.strip(" ").split() if line.isascii() else [cell for cell in line.split(" ") if cell]


def _is_row(line: str) -> bool:
    """Whether a line of a file with columns is a word, not a comment nor the beginning of a document."""
    return not line.startswith("-DOCSTART-") and _COMMENT.match(line) is None


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
        elif not line.strip():
            if faults or sentence.words:
                yield faults[0] if faults else sentence
            sentence, faults = _Written([], [], [], []), []
        elif usable_row(line):
            cells = split(line)
            least = max(place if place >= 0 else -1 - place for place in (word_column, column)) + 1
            if len(cells) < (least if column == word_column else max(least, 2)):
                reason = (
                    f"the line has {len(cells)} columns, expected a word in column {word_column} and its tag in "
                    f"column {column} (from 0; -1 is the last one). Choose others with data.columns."
                )
                faults.append(Fault(path, number, "missing column", reason))
            elif not cells[word_column].strip(" ") or not cells[column].strip(" "):
                faults.append(Fault(path, number, "empty cell", "the word or its tag is empty."))
            else:
                sentence.words.append(cells[word_column].strip(" "))
                sentence.tags.append(cells[column].strip(" "))
                sentence.joined.append(joined(cells))
                sentence.lines.append(number)


# ---- spans by characters


def _from_objects(path: Path, columns: tuple[int | str, int | str], names: Sequence[str], rule: str) -> TaggedFile:
    splitter = WordSplitter(rule)

    def entries() -> Iterator[TaggedSentence | _Written | Fault]:
        for entry in json_objects(path):
            if isinstance(entry, Fault):
                yield entry
                continue
            try:
                found = tagged_words(entry.content, columns, names)
                if found is None:
                    yield from_record(entry.content, splitter)
                else:
                    count = len(found.words)
                    yield _Written(*found, [False] * count, [entry.line] * count, str(entry.content.get("intent", "")))
            except DataError as error:
                yield Fault(path, entry.line, "unusable sentence", str(error))

    read = read_examples(path, entries(), "sentences")
    by_tags = [one for one in read if isinstance(one, _Written)]
    sentences = [one for one in read if isinstance(one, TaggedSentence)]
    if by_tags and sentences:
        raise DataError(f"{path}: some objects have tags of words and others spans, expected the same of all.")
    if by_tags:
        return _from_tags(path, iter(by_tags), rule)
    if names:
        raise ConfigError(f"{path}: data.tag_names is set, but the file has no tags of words. Leave it out.")
    if rule == "auto":
        rule = learn_rule(sentences).rule
        words = WordSplitter(rule).offsets
        sentences = [one if one.given else one._replace(words=words(one.text)) for one in sentences]
    return _widened(path, sentences, rule)


def _widened(path: Path, sentences: list[TaggedSentence], rule: str) -> TaggedFile:
    """The sentences with spans of whole words."""
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
            "where the word has a span already. Another rule (data.words), or words given beside the text, change that"
        )
    return TaggedFile(sentences, PLAIN if every_word else "BIO", notes, rule)
