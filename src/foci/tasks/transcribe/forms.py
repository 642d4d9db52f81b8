"""The forms in which the words of a transcript are written with their times: NIST's CTM, and captions of SubRip."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from foci.tasks.transcribe.words import SpokenWord, join_texts, stands_alone

_LONGEST_CAPTION, _SHORTEST_CAPTION = 5.0, 1.0
"""Seconds of a caption; a shorter one stays until it can be read, or the next one begins."""
_CAPTION_LINE = 42
"""Characters of a caption, which is one line; those of scripts without spaces are twice as wide."""
_PAUSE = 0.8
"""Seconds of silence after which a new caption begins."""


class _Timed(NamedTuple):
    """A word with times that are in order."""

    word: str
    start: float
    end: float


def to_ctm(audio: str, words: Sequence[SpokenWord]) -> str:
    """Return the words as lines of NIST's CTM: name, channel, start, duration, word, confidence.

    A recording without words is a comment, since an empty line is no CTM.

    Example:
        >>> print(to_ctm("a/b.wav", [SpokenWord("yes", 0.9, (0.5, 1.0), None)]))
        b 1 0.50 0.50 yes 0.90
        >>> print(to_ctm("a/c.wav", []))
        ;; c: no words
    """
    name = "_".join(Path(audio).stem.split()) or "audio"
    lines = [
        f"{name} 1 {timed.start:.2f} {timed.end - timed.start:.2f} {timed.word} {word.confidence:.2f}"
        for word, timed in zip(words, _in_order(words))
    ]
    return "\n".join(lines or [f";; {name}: no words"])


def to_srt(words: Sequence[SpokenWord]) -> str:
    """Return the words as captions of SubRip, each with an empty line after it.

    Example:
        >>> print(to_srt([SpokenWord("yes", 0.9, (0.5, 1.75), None), SpokenWord("no", 0.9, (61.0, 61.25), None)]))
        1
        00:00:00,500 --> 00:00:01,750
        yes
        <BLANKLINE>
        2
        00:01:01,000 --> 00:01:02,000
        no
        <BLANKLINE>
    """
    captions: list[list[_Timed]] = []
    for word in _in_order(words):
        held = captions[-1] if captions else []
        if (
            not held
            or _width([*held, word]) > _CAPTION_LINE
            or word.end - held[0].start > _LONGEST_CAPTION
            or word.start - held[-1].end > _PAUSE
        ):
            captions.append([])
        captions[-1].append(word)
    blocks = []
    for number, caption in enumerate(captions):
        start, end = caption[0].start, max(word.end for word in caption)
        end = max(end, start + _SHORTEST_CAPTION)
        if number + 1 < len(captions):
            end = min(end, captions[number + 1][0].start)
        blocks.append(f"{number + 1}\n{_clock(start)} --> {_clock(end)}\n{join_texts(word.word for word in caption)}\n")
    return "\n".join(blocks)


def _in_order(words: Sequence[SpokenWord]) -> list[_Timed]:
    """Return the words with starts that never go back, as both forms demand; an attention may."""
    found: list[_Timed] = []
    for word in words:
        start = max(word.span[0], found[-1].start if found else 0.0)
        found.append(_Timed(word.text, start, max(word.span[1], start)))
    return found


def _width(words: Sequence[_Timed]) -> int:
    line = join_texts(word.word for word in words)
    return len(line) + sum(map(stands_alone, line))


def _clock(seconds: float) -> str:
    total = round(seconds * 1000)
    hours, rest = divmod(total, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02},{rest % 1000:03}"
