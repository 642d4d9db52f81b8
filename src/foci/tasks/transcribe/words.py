"""The words of a transcript: when each was spoken, and how sure it is.

The attention of a token is spread over positions of the encoder; the token stands at the median of its weights. CTC's
alignment has a first and a last position for each token. Both mark a token in the middle of its sound, so a word lasts
from half a token before its first position to half a token after its last one.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.data.tokenizer import Tokenizer
from foci.metrics.calibration import Bin, Odds, calibration, expected_calibration_error, fit_odds
from foci.metrics.error_rates import right_words
from foci.scripts import is_mark, join_texts, stands_alone

Span = tuple[float, float]
"""First and last moment, in seconds."""


@dataclass(frozen=True)
class SpokenWord:
    """A word, when it was spoken by the attention and by CTC (None without it), and its probability.

    ``time_confidence`` is that of the times that are given, CTC's where it has them: 1 is certain, 0 is none.
    """

    text: str
    confidence: float
    attention: Span | None
    ctc: Span | None
    time_confidence: float = 1.0

    @property
    def span(self) -> Span:
        """CTC's times, which are sharper, or else the attention's."""
        return self.ctc or self.attention or (0.0, 0.0)

    def moved(self, seconds: float) -> SpokenWord:
        """Return the word of a segment that begins later."""
        attention, ctc = (
            None if span is None else (span[0] + seconds, span[1] + seconds) for span in (self.attention, self.ctc)
        )
        return replace(self, attention=attention, ctc=ctc)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, times in seconds, to the millisecond."""
        start, end = (round(moment, 3) for moment in self.span)
        found: dict[str, Any] = {"word": self.text, "start": start, "end": end, "confidence": self.confidence}
        found["time_confidence"] = round(self.time_confidence, 3)
        for name, span in (("attention", self.attention), ("ctc", self.ctc)):
            if span is not None:
                found[name] = [round(moment, 3) for moment in span]
        return found


def word_tokens(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return each word with the numbers of its tokens; a character of a script without spaces is a word of its own.

    Example:
        >>> tokenizer = Tokenizer.train(["ab c 新"], "characters", 20)
        >>> word_tokens(tokenizer, tokenizer.encode("ab c新").ids)
        [('ab', [0, 1]), ('c', [3]), ('新', [4])]
    """
    return _words(map(tokenizer.text_stream(), tokens))


def text_words(text: str) -> list[str]:
    """Return the words of a text as `word_tokens` has them.

    Example:
        >>> text_words("ab c新.")
        ['ab', 'c', '新.']
    """
    return [word for word, _ in _words(text)]


def _words(pieces: Iterable[str]) -> list[tuple[str, list[int]]]:
    words: list[tuple[str, list[int]]] = []
    touching = alone = False  # whether no space came since the last letter, and whether that one stands alone
    waiting: list[int] = []  # tokens that are parts of a character
    for number, text in enumerate(pieces):
        waiting.append(number)
        for letter in text:
            if letter.isspace():
                touching = False
                continue
            attached = _is_attached(letter)
            if not touching or (not attached and (alone or stands_alone(letter))):
                words.append(("", []))
            said, numbers = words[-1]
            words[-1] = (said + letter, list(dict.fromkeys([*numbers, *waiting])))
            alone = alone if attached and touching else stands_alone(letter)
            touching = True
        if text:
            waiting = []
    return words


def _is_attached(letter: str) -> bool:
    """Return whether a sign belongs to what is before it: marks above and below letters, and closing punctuation."""
    kind = unicodedata.category(letter)
    return is_mark(letter) or (kind[0] == "P" and kind not in ("Ps", "Pi"))


class Aligned(NamedTuple):
    """CTC's best path: the first and last position of each token, and the largest probability of the token there."""

    spans: Sequence[tuple[int, int]]
    probabilities: Sequence[float]


def spoken_words(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    log_probs: Sequence[float],
    weights: Float[ndarray, "U S"] | None,
    aligned: Aligned | None,
    positions: int,
    seconds: float,
) -> list[SpokenWord]:
    """Return the words of a transcript.

    Args:
        tokenizer: of the tokens.
        tokens: what was recognized, without BOS and EOS.
        log_probs: of each token.
        weights: of each token over the positions.
        aligned: where CTC hears each token.
        positions: number of positions of the recording.
        seconds: duration of a position.
    """
    words = word_tokens(tokenizer, tokens)
    outer = [(numbers[0], numbers[-1]) for _, numbers in words]
    by_attention: Sequence[Span | None] = [None] * len(words)
    by_ctc: Sequence[Span | None] = [None] * len(words)
    certain = [0.0] * len(words)
    if weights is not None:
        middles = medians(weights)
        by_attention = _word_spans([(at, at) for at in map(int, middles)], outer, positions, seconds)
        certain = _pointed(weights, middles, [numbers for _, numbers in words], seconds)
    if aligned is not None:
        by_ctc = _word_spans(aligned.spans, outer, positions, seconds)
        certain = [float(np.mean([aligned.probabilities[number] for number in numbers])) for _, numbers in words]
    sure = [math.exp(min(sum(log_probs[number] for number in numbers), 0.0)) for _, numbers in words]
    return [SpokenWord(text, *values) for (text, _), values in zip(words, zip(sure, by_attention, by_ctc, certain))]


_NEAR = 0.5
"""Seconds around the median of a token's weights that count as one place."""


def _pointed(
    weights: Float[ndarray, "U S"], middles: ndarray, words: Sequence[Sequence[int]], seconds: float
) -> list[float]:
    """Return the share of the attention of each word that lies where its tokens stand.

    It is 0 where a word does not come after the one before it: then the attention has strayed.
    """
    places = np.arange(weights.shape[1])
    shares = [row[abs(places - middle) * seconds <= _NEAR].sum() / row.sum() for row, middle in zip(weights, middles)]
    found, last = [], -1.0
    for numbers in words:
        place = float(np.mean([middles[number] for number in numbers]))
        found.append(float(np.mean([shares[number] for number in numbers])) if place > last else 0.0)
        last = max(last, place)
    return found


def _word_spans(
    places: Sequence[tuple[int, int]], outer: Sequence[tuple[int, int]], positions: int, seconds: float
) -> list[Span]:
    """Return when words begin and end.

    Args:
        places: first and last position at which each token is marked.
        outer: first and last token of each word.
        positions: number of positions of the recording.
        seconds: duration of a position.
    """
    middles = np.array([(first + last + 1) / 2 for first, last in places])
    halves = np.diff(middles).clip(min=0) / 2  # from each token half-way to the next one
    inside = [float(half) for first, last in outer for half in halves[first:last]]
    usual = float(np.median(inside or halves)) if len(halves) else 0.0
    spans = []
    for first, last in outer:
        before = min(usual, halves[first - 1]) if first > 0 else usual
        after = min(usual, halves[last]) if last < len(halves) else usual
        edges = (*places[first], *places[last])
        start = max(min(middles[first] - before, min(edges)), 0.0)
        end = min(max(middles[last] + after, max(edges) + 1), positions)
        spans.append((float(start) * seconds, float(end) * seconds))
    return spans


def medians(weights: Float[ndarray, "U S"]) -> ndarray:
    """Return the position of each row at which half of its weight is reached."""
    total = weights.sum(axis=1, keepdims=True)
    reached = weights.cumsum(axis=1) >= 0.5 * total
    found: ndarray = np.argmax(reached, axis=1)
    return found


class WordOutcomes:
    """Counts with which probabilities words were right."""

    def __init__(self) -> None:
        self.probabilities: list[float] = []
        self.right: list[bool] = []

    def add(self, words: Sequence[SpokenWord], reference: str) -> None:
        """Count the words of a transcript."""
        self.probabilities += [word.confidence for word in words]
        self.right += right_words(text_words(reference), [word.text for word in words])

    def fit(self) -> Odds:
        """Return the calibration that fits best."""
        return fit_odds(self.probabilities, self.right)

    def measure(self, odds: Odds) -> tuple[dict[str, float], list[Bin]]:
        """Return the expected calibration error with a calibration and without, and how often words are right.

        Without words there is no such error.
        """
        bins = calibration(odds(self.probabilities), self.right)
        raw = calibration(self.probabilities, self.right)
        errors = {"ece": expected_calibration_error(bins), "ece_uncalibrated": expected_calibration_error(raw)}
        return errors if self.right else {}, bins


def doubtful_times(words: Sequence[SpokenWord], least: float) -> str | None:
    """Return a note on words whose times have less than the ``least`` confidence."""
    doubtful = [word for word in words if word.time_confidence < least]
    if not doubtful:
        return None
    worst = min(doubtful, key=lambda word: word.time_confidence)
    return (
        f"the times of {len(doubtful)} of {len(words)} words are doubtful (time_confidence below {least:g}), most "
        f"those of {worst.text!r} ({worst.time_confidence:.2f}): {_WHY[worst.ctc is not None]}"
    )


_WHY = {
    True: "CTC, which gives the times, hears something else where the word would have to be",
    False: "the attention, which gives the times, points to no one place there, or not after the word before",
}


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
