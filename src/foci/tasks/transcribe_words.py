"""The words of a transcript: when each was spoken, how sure it is, and the forms in which they are written.

The attention of a token is spread over cells of the encoder; its place is the median of its weights. A word lasts from
the place of its first token to that of its last. CTC's alignment has a first and a last cell for each token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.data.tokenise import Tokeniser

_CAPTION_SECONDS, _CAPTION_WORDS = 5.0, 8
"""A caption of .srt is at most so long."""
_PAUSE = 0.8
"""Seconds of silence after which a new caption begins."""

Span = tuple[float, float]
"""First and last moment, in seconds."""


@dataclass(frozen=True)
class SpokenWord:
    """A word, when it was spoken by the attention and by CTC (None without it), and its probability."""

    text: str
    confidence: float
    attention: Span | None
    ctc: Span | None

    @property
    def span(self) -> Span:
        """CTC's times, which are sharper, or else the attention's."""
        return self.ctc or self.attention or (0.0, 0.0)

    @property
    def distance(self) -> float:
        """Seconds between the middles of both spans; 0 where there is one only."""
        if self.attention is None or self.ctc is None:
            return 0.0
        return abs(sum(self.attention) - sum(self.ctc)) / 2

    def moved(self, seconds: float) -> SpokenWord:
        """Return the word of a piece that begins later."""
        later = [
            None if span is None else (span[0] + seconds, span[1] + seconds) for span in (self.attention, self.ctc)
        ]
        return SpokenWord(self.text, self.confidence, *later)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, times in seconds."""
        start, end = self.span
        found: dict[str, Any] = {"word": self.text, "start": start, "end": end, "confidence": self.confidence}
        for name, span in (("attention", self.attention), ("ctc", self.ctc)):
            if span is not None:
                found[name] = list(span)
        return found


def word_tokens(tokeniser: Tokeniser, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return each word with the numbers of its tokens; a character of a script without spaces is a word of its own.

    Example:
        >>> tokeniser = Tokeniser.train(["ab c 新"], "characters", 20)
        >>> word_tokens(tokeniser, tokeniser.encode("ab c新").ids)
        [('ab', [0, 1]), ('c', [3]), ('新', [4])]
    """
    complete = tokeniser.text_stream()
    words: list[tuple[str, list[int]]] = []
    open_word = False
    waiting: list[int] = []  # tokens that are parts of a character
    for number, token in enumerate(tokens):
        waiting.append(number)
        text = complete(token)
        for letter in text:
            if letter.isspace():
                open_word = False
                continue
            if not open_word or _stands_alone(letter):
                words.append(("", []))
            said, numbers = words[-1]
            words[-1] = (said + letter, list(dict.fromkeys([*numbers, *waiting])))
            open_word = not _stands_alone(letter)
        if text:
            waiting = []
    return words


def _stands_alone(letter: str) -> bool:
    return any(
        low <= letter <= high for low, high in (("\u0e00", "\u0fff"), ("\u3005", "\u30ff"), ("\u3400", "\u9fff"))
    )


def spoken_words(
    tokeniser: Tokeniser,
    tokens: Sequence[int],
    log_probs: Sequence[float],
    weights: Float[ndarray, "U S"] | None,
    aligned: Sequence[tuple[int, int]] | None,
    seconds: float,
) -> list[SpokenWord]:
    """Return the words of a transcript.

    Args:
        tokeniser: of the tokens.
        tokens: what was recognised, without BOS and EOS.
        log_probs: of each token.
        weights: of each token over the cells.
        aligned: first and last cell of each token, by CTC.
        seconds: duration of a cell.
    """
    middles = None if weights is None else medians(weights)
    found = []
    for text, numbers in word_tokens(tokeniser, tokens):
        first, last = numbers[0], numbers[-1]
        heard = spoken = None
        if middles is not None:
            low, high = sorted((int(middles[first]), int(middles[last])))
            heard = (low * seconds, (high + 1) * seconds)
        if aligned is not None:
            spoken = (aligned[first][0] * seconds, (aligned[last][1] + 1) * seconds)
        sure = math.exp(min(sum(log_probs[number] for number in numbers), 0.0))
        found.append(SpokenWord(text, sure, heard, spoken))
    return found


def medians(weights: Float[ndarray, "U S"]) -> ndarray:
    """Return the cell of each row at which half of its weight is reached."""
    total = weights.sum(axis=1, keepdims=True)
    reached = weights.cumsum(axis=1) >= 0.5 * total
    found: ndarray = np.argmax(reached, axis=1)
    return found


def disagreements(words: Sequence[SpokenWord], tolerance: float) -> str | None:
    """Return a note on words whose times by attention and by CTC differ by more than ``tolerance`` seconds."""
    apart = [word for word in words if word.distance > tolerance]
    if not apart:
        return None
    worst = max(apart, key=lambda word: word.distance)
    return (
        f"the times of {len(apart)} of {len(words)} words differ by more than {tolerance:g} s between attention and "
        f"CTC, most for {worst.text!r} ({worst.distance:.2f} s): do not rely on them"
    )


def to_ctm(audio: str, words: Sequence[SpokenWord]) -> str:
    """Return the words as lines of NIST's CTM: name, channel, start, duration, word, confidence.

    Example:
        >>> print(to_ctm("a/b.wav", [SpokenWord("yes", 0.9, (0.5, 1.0), None)]))
        b 1 0.50 0.50 yes 0.90
    """
    name = "_".join(Path(audio).stem.split()) or "audio"
    return "\n".join(
        f"{name} 1 {word.span[0]:.2f} {word.span[1] - word.span[0]:.2f} {word.text} {word.confidence:.2f}"
        for word in words
    )


def to_srt(words: Sequence[SpokenWord]) -> str:
    """Return the words as captions of SubRip.

    Example:
        >>> print(to_srt([SpokenWord("yes", 0.9, (0.5, 1.0), None), SpokenWord("no", 0.9, (61.0, 62.25), None)]))
        1
        00:00:00,500 --> 00:00:01,000
        yes
        <BLANKLINE>
        2
        00:01:01,000 --> 00:01:02,250
        no
    """
    captions: list[list[SpokenWord]] = []
    for word in words:
        held = captions[-1] if captions else None
        if (
            held is None
            or len(held) == _CAPTION_WORDS
            or word.span[1] - held[0].span[0] > _CAPTION_SECONDS
            or word.span[0] - held[-1].span[1] > _PAUSE
        ):
            captions.append([])
        captions[-1].append(word)
    blocks = [
        f"{number}\n{_clock(some[0].span[0])} --> {_clock(some[-1].span[1])}\n{' '.join(word.text for word in some)}"
        for number, some in enumerate(captions, start=1)
    ]
    return "\n\n".join(blocks)


def _clock(seconds: float) -> str:
    total = round(seconds * 1000)
    hours, rest = divmod(total, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02},{rest % 1000:03}"
