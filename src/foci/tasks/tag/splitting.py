"""Which rule splits plain text into the words of a file: learned by comparing rules with the words of its sentences.

A file with one word per line has no text, so it is written as people write it: no space before a full stop or n't, none
after an opening bracket, none between Chinese characters. CoNLL-U says itself where no space follows (SpaceAfter=No).
Texts with spans but without words tell less: a rule is right where no span begins or ends inside a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from foci.data.word_splitter import Offsets, WordSplitter
from foci.scripts import SPACELESS, join_texts
from foci.tasks.tag.sentences import TaggedSentence

LOW = 0.9
"""The share of words below which a rule is not reliable."""
_HOPELESS = 0.6
"""The share below which no rule is taken, and text must come with spaces between its words."""
_GAIN = 0.02
"""How much more of the spans of texts without words another rule must fit to than the general one."""
_SAMPLE = 2000
"""Sentences that rules are compared with, from all over the file."""

_ATTACHED = re.compile(r"[,.;:!?)\]}%…’”»]+|['’](?:s|m|d|ll|re|ve)|n['’]t|'", re.IGNORECASE)
"""Words without a space before them."""
_OPENING = re.compile(r"[(\[{$£€“‘«¿¡`]+")
"""Words without a space after them."""
_SPACELESS = re.compile(f"[{SPACELESS}]")


class Agreement(NamedTuple):
    """How well a rule reproduces the words of sentences from plain text: shares of the words and of the sentences."""

    rule: str
    words: float
    sentences: float


def learn_rule(sentences: Sequence[TaggedSentence]) -> Agreement:
    """Return the rule that fits best to sentences, and how well it does.

    Example:
        >>> from foci.tasks.tag.sentences import from_words
        >>> learn_rule([from_words(["EU", "did", "n't", "win", "2-0", "."])])
        Agreement(rule='treebank', words=1.0, sentences=1.0)
        >>> [learn_rule([from_words(words)]).rule for words in (["1", "2", "月", "以", "后"], ["上海市", "人民"])]
        ['characters', 'spaces']
    """
    sample = _sample(sentences)
    by_characters = _is_by_characters(sample)
    if any(sentence.given for sentence in sample):
        rules = ["unicode", "treebank", "ud", "spaces"]
        rules = ["characters", *rules] if by_characters else rules
        best = max((agreement(rule, sample) for rule in rules), key=lambda found: found.words)
        return best if best.words >= _HOPELESS else agreement("spaces", sample)
    rules = ["treebank", "ud", *(["characters"] if by_characters else [])]
    general = agreement("unicode", sample)
    best = max((agreement(rule, sample) for rule in rules), key=lambda found: found.words)
    return best if best.words > general.words + _GAIN else general


def agreement(rule: str, sentences: Sequence[TaggedSentence]) -> Agreement:
    """Return how well a rule reproduces the words of sentences; of texts without words, how many of the spans fit."""
    splitter, sentences = WordSplitter(rule), _sample(sentences)
    right = total = whole = 0
    for sentence, (text, words) in zip(sentences, _natural(sentences)):
        found = splitter.offsets(text)
        if sentence.given:
            same = len({*words} & {*found})
            right, total = right + 2 * same, total + len(words) + len(found)
            whole += words == found
            continue
        starts, ends = {start for start, _ in found}, {end for _, end in found}
        fitting = [span.start in starts and span.end in ends for span in sentence.spans]
        right, total, whole = right + sum(fitting), total + len(fitting), whole + all(fitting)
    return Agreement(rule, right / total if total else 1.0, whole / len(sentences) if sentences else 1.0)


def _sample(sentences: Sequence[TaggedSentence]) -> Sequence[TaggedSentence]:
    return sentences[:: max(1, -(-len(sentences) // _SAMPLE))]


def said(found: Agreement, given: bool, best: Agreement | None = None) -> list[str]:
    """Return what is logged of a rule: how well it fits, a warning where it does not, and the ``best`` if that does."""
    what = "the words" if given else "the spans"
    better = best is not None and best.words > found.words
    if found.rule == "spaces" and found.words < LOW and not better:
        return [
            "warning: no rule finds the words of the training data in plain text, so words are what spaces separate "
            "(data.words = spaces). Predict text with spaces between its words, or lists of words; or name a function "
            "that splits text as the data is, such as data.words = jieba:lcut"
        ]
    line = (
        f"plain text is split by the rule {found.rule} (data.words), which reproduces {found.words:.1%} of {what} of "
        f"the training data, and {found.sentences:.1%} of its sentences"
    )
    if found.words >= LOW:
        return [line]
    hint = (
        f"; or set data.words = auto for the rule {best.rule}, which finds {best.words:.1%}" if best and better else ""
    )
    return [line, f"warning: {low_note(found.rule, found.words)}{hint}"]


def low_note(rule: str, share: float) -> str:
    """Return what is to be said of plain text that is split by a rule which does not fit."""
    return (
        f"the rule {rule} finds only {share:.0%} of the words of the training data, so plain text is split otherwise "
        "than in training, and labels are less reliable. Give words instead: a list, a column file, or JSON with words"
    )


# ---- text as people write it


def _natural(sentences: Sequence[TaggedSentence]) -> Iterator[tuple[str, tuple[Offsets, ...]]]:
    """Yield text and words of each sentence; where a file has no text, it is made."""
    if any(before[1] == after[0] for one in sentences for before, after in pairwise(one.words)):
        return ((one.text, one.words) for one in sentences)
    joined = _is_by_characters(sentences)
    return (written(one.tokens, joined) for one in sentences)


def written(words: Sequence[str], joined: bool = False) -> tuple[str, tuple[Offsets, ...]]:
    """Return words as a text that people would write, and where they stand in it; ``joined`` without any spaces.

    Example:
        >>> written(["He", "did", "n't", "say", '"', "no", '"', "(", "yet", ")", "."])[0]
        'He didn\\'t say "no" (yet).'
        >>> written(["他", "说", "。"])
        ('他说。', ((0, 1), (1, 2), (2, 3)))
    """
    text, offsets, quoted, before = "", [], False, ""
    for word in words:
        space = " " * bool(text and not joined)
        closing = word == '"' and quoted
        if _ATTACHED.fullmatch(word) or _OPENING.fullmatch(before) or closing or (before == '"' and quoted):
            space = ""
        elif space and " " not in join_texts([before, word]).removeprefix(before)[:1]:
            space = ""  # neither script has spaces
        quoted ^= word == '"'
        text += space
        offsets.append((len(text), len(text) + len(word)))
        text, before = text + word, word
    return text, tuple(offsets)


def _is_by_characters(sentences: Iterable[TaggedSentence]) -> bool:
    """Return whether words are single characters, many of them of a script without spaces."""
    words = [word for sentence in sentences for word in sentence.tokens]
    single = [word for word in words if len(word) == 1 or len(WordSplitter("characters").words(word)) == 1]
    spaceless = [word for word in words if _SPACELESS.match(word)]
    return len(single) >= 0.98 * len(words) and 5 * len(spaceless) >= len(words) > 0
