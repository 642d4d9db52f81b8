"""Tagged sentences from JSON objects of many programs.

    foci, Prodigy   {"text": …, "spans": [{"start": 0, "end": 5, "label": "PER"}], "intent": …}
    spaCy           {"text": …, "entities": [[0, 5, "PER"]]}
    doccano         {"text": …, "label": [[0, 5, "PER"]]}, "labels", or "entities" with start_offset and end_offset
    CLUENER         {"text": …, "label": {"name": {"叶老桂": [[9, 11]]}}}, where the last character is in the span
    Hugging Face    {"tokens": ["EU", …], "ner_tags": ["B-ORG", …]}; tags may be numbers if their names are known

Offsets are in characters. "words" or "tokens" are the words of the text: texts, [start, end], or objects with start and
end; without them words are found by a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from foci.data.word_splitter import Offsets, WordSplitter, align
from foci.encodings import has_surrogates
from foci.errors import ConfigError, DataError, near_names
from foci.tasks.tag.sentences import LabeledSpan, TaggedSentence, from_words

SPANS = ("spans", "entities", "label", "labels")
"""Fields of labeled spans."""
WORDS = ("words", "tokens")
"""Fields of words."""
TAGS = ("ner_tags", "tags", "labels", "pos_tags", "upos_tags", "upos", "chunk_tags")
"""Fields of one tag per word."""


class TaggedWords(NamedTuple):
    """Words with one tag each."""

    words: list[str]
    tags: list[str]


def words_of_record(record: Any) -> list[str] | None:
    """Return the words that an object lists as texts, or that are given alone; None where there are none."""
    if isinstance(record, Mapping):
        record = next((record[name] for name in WORDS if record.get(name)), None)
    listed = isinstance(record, list | tuple) and bool(record) and all(isinstance(word, str) for word in record)
    return list(record) if listed else None


def tagged_words(record: Any, columns: tuple[int | str, int | str], names: Sequence[str]) -> TaggedWords | None:
    """Return the words and tags of an object that has one tag per word; None of any other object.

    Args:
        record: the object.
        columns: the fields of words and tags, if they are texts; else those that are common.
        names: what tags that are numbers stand for.

    Raises:
        DataError: there are numbers without a name, or more words than tags.
    """
    if not isinstance(record, dict):
        return None
    fields = [(column,) if isinstance(column, str) else None for column in columns]
    of_words = next((name for name in fields[0] or WORDS if isinstance(record.get(name), list)), None)
    of_tags = next((name for name in fields[1] or TAGS if _is_tags(record.get(name))), None)
    if of_words is None or of_tags is None:
        return None
    words, tags = record[of_words], record[of_tags]
    if not words or not all(isinstance(word, str) and word.strip(" ") for word in words):
        raise DataError(f"{of_words!r} is no list of words, expected texts that are not empty.")
    if len(words) != len(tags):
        raise DataError(f"{of_tags!r} has {len(tags)} tags for {len(words)} words, expected as many of each.")
    numbers = [tag for tag in tags if isinstance(tag, int)]
    if numbers and not names:
        raise DataError(
            f"{of_tags!r} has numbers such as {max(numbers)}, expected names. Name them in order with data.tag_names, "
            'such as tag_names = ["O", "B-PER", "I-PER"]; Hugging Face has them in features["ner_tags"].feature.names.'
        )
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(names):
        raise DataError(f"{of_tags!r} has the number {max(numbers)}, but data.tag_names has {len(names)} names.")
    return TaggedWords(words, [names[tag] if isinstance(tag, int) else tag.strip() for tag in tags])


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(tag, str | int) for tag in value)


def from_record(record: Any, splitter: WordSplitter) -> TaggedSentence:
    """Return the sentence of an object with spans; words that are not given are found.

    Raises:
        DataError: a field is missing or of another kind, or spans lie outside of the text or overlap.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"a JSON {type(record).__name__}, expected one object per line.")
    listed = words_of_record(record)
    if "text" not in record and listed is None:
        raise DataError(f"no field 'text'. {near_names('text', record)}")
    of_spans = next((name for name in SPANS if name in record), None)
    if of_spans is None:
        fields = "If it has words and their tags, set data.columns (--columns) to both fields, as in words,tags."
        raise DataError(f"no field 'spans'. {near_names('spans', record)} {fields}")
    text, intent = record.get("text", " ".join(listed or ())), record.get("intent", "")
    given = _listed_spans(record[of_spans])
    if not isinstance(text, str) or not isinstance(intent, str) or given is None:
        raise DataError(f"expected a text in 'text', a list in {of_spans!r} and, if there is one, a text in 'intent'.")
    if has_surrogates(text):
        raise DataError("the text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character.")
    words = _words(record, listed, text)
    found = words is None
    words = splitter.offsets(text) if words is None else words
    if not words:
        raise DataError("the text has no words.")
    spans = sorted(_given_span(one, text) for one in given)
    for before, after in pairwise(spans):
        if after.start < before.end:
            raise DataError(
                f"the spans {tuple(before)} and {tuple(after)} overlap, expected spans that do not: each word has one "
                "tag. Remove one of them."
            )
    return TaggedSentence(text, tuple(spans), intent.strip(), words, given=not found)


def _listed_spans(value: Any) -> Sequence[Any] | None:
    """The spans of a list, or of CLUENER's table: label, text of the span, first and last character."""
    if not isinstance(value, dict):
        return value if isinstance(value, list | tuple) else None
    found: list[Any] = []
    for label, texts in value.items():
        for places in texts.values() if isinstance(texts, dict) else [None]:
            for place in places if isinstance(places, list) else [None]:
                if not isinstance(place, list) or len(place) != 2 or not all(isinstance(end, int) for end in place):
                    raise DataError('a label is no table of texts with their places, as {"name": {"Ada": [[0, 2]]}}.')
                found.append([place[0], place[1] + 1, label])
    return found


def _words(record: Mapping[str, Any], listed: list[str] | None, text: str) -> tuple[Offsets, ...] | None:
    """Where the words of a text are that came with it; None where none did."""
    if listed is not None:
        if "text" not in record:
            return from_words(listed).words
        try:
            return align(text, listed, "'words'")
        except ConfigError as error:
            raise DataError(str(error)) from error
    given = next((record[name] for name in WORDS if record.get(name) is not None), None)
    return None if given is None else _given_words(given, text)


def _given_span(given: Any, text: str) -> LabeledSpan:
    if isinstance(given, dict):
        given = [
            given.get("start", given.get("start_offset")),
            given.get("end", given.get("end_offset")),
            given.get("label"),
        ]
    values = given
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
        one = [one.get("start"), one.get("end")] if isinstance(one, dict) else one
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
