"""Which pieces of words belong together: by the characters they stand for, or by the marks in their labels.

    ▁un believ able      ▁ or Ġ begins a word (SentencePiece, byte-level BPE, foci's own tokenizers)
    un ##believ ##able   ## goes on with one (WordPiece)
    ⟨E7⟩ ⟨8C⟩ ⟨AB⟩       the bytes of one character, 猫

Signs stand alone, and so does each character of a script without spaces between words, unless one piece holds several.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import NamedTuple

from foci.scripts import SPACELESS, is_mark

BEGINS = ("▁", "Ġ")
"""How the labels of pieces begin that a space goes before."""
_CONTINUES = "##"
_BYTE = re.compile(r"⟨([0-9A-F]{2})⟩")
_SPACELESS = re.compile(f"[{SPACELESS}]")
_INSIDE = "'’_"
"""Signs that may stand inside of a word."""


class Word(NamedTuple):
    """A word, and how many pieces it has, each of them a position."""

    label: str
    pieces: int


def words_of_labels(labels: Sequence[str], alone: Collection[int] = ()) -> tuple[Word, ...]:
    """Return the words that pieces with these labels form.

    Args:
        labels: of the pieces. Without any marks in them, each is a word.
        alone: positions that are no part of a word: special tokens.

    Example:
        >>> [word.label for word in words_of_labels(["▁un", "able", ",", "⟨E7⟩", "⟨8C⟩", "⟨AB⟩"])]
        ['unable', ',', '猫']
        >>> words_of_labels(["play", "##ing", "cat"])
        (Word(label='playing', pieces=2), Word(label='cat', pieces=1))
    """
    marked = any(label.startswith(BEGINS) for place, label in enumerate(labels) if place not in alone)
    found: list[Word] = []
    joinable = False  # whether the word before may go on
    place = 0
    while place < len(labels):
        label, single = labels[place], place in alone
        size = 1 if single else _bytes_together(labels, place, alone)
        text = label if single else _text_of(labels[place : place + size])
        goes_on = (label.startswith(_CONTINUES) and label != _CONTINUES) or (
            marked
            and not label.startswith(BEGINS)
            and (not found or not found[-1].label or _is_one_word(found[-1].label, text))
        )
        if joinable and goes_on and not single:
            found[-1] = Word(found[-1].label + text, found[-1].pieces + size)
        else:
            found.append(Word(text, size))
        joinable = not single
        place += size
    starts = accumulate((word.pieces for word in found), initial=0)
    return tuple(Word(word.label or labels[start], word.pieces) for word, start in zip(found, starts))


def words_of_spans(text: str, spans: Sequence[tuple[int, int]], labels: Sequence[str]) -> tuple[Word, ...]:
    """Return the words that pieces form which stand for these spans of a text.

    Args:
        text: what was split into pieces.
        spans: begin and end of what each piece stands for; pieces that share a character overlap, and a special token
            stands for nothing: its span is empty.
        labels: of the pieces; special tokens keep theirs.

    Example:
        >>> words_of_spans("Don't stop 猫", [(0, 3), (3, 5), (5, 10), (10, 12), (11, 12)], ["", "", "", "", ""])
        (Word(label="Don't", pieces=2), Word(label='stop', pieces=1), Word(label='猫', pieces=2))
    """
    tight = [_tight(text, *span) for span in spans]
    groups: list[list[int]] = []
    for place, (begin, end) in enumerate(tight):
        first, last = tight[place - 1] if place else (0, 0)
        both = place > 0 and first < last and begin < end
        space = place > 0 and begin < end and _is_space(text[slice(*spans[place - 1])]) and spans[place - 1][1] == begin
        if space or (both and (begin < last or (begin == last and _is_one_word(text[:last], text[begin:])))):
            groups[-1].append(place)
        else:
            groups.append([place])
    labeled = [text[tight[group[0]][0] : tight[group[-1]][1]].strip() or labels[group[0]] for group in groups]
    return tuple(Word(label, len(group)) for label, group in zip(labeled, groups))


def _is_space(text: str) -> bool:
    """Return whether a piece is the space before a word and nothing else; an end of line stands for itself."""
    return bool(text) and not text.strip(" ")


def _tight(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without the spaces around it."""
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


def _is_one_word(before: str, after: str) -> bool:
    """Return whether no word ends between two neighboring texts."""
    if not before or not after:
        return False
    return is_mark(after[0]) or (_is_letter(before[-1]) and _is_letter(after[0]))


def _is_letter(character: str) -> bool:
    return (character.isalnum() and not _SPACELESS.match(character)) or character in _INSIDE or is_mark(character)


def _bytes_together(labels: Sequence[str], place: int, alone: Collection[int]) -> int:
    """Return how many pieces, from this one on, it takes until every character is complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for end in range(place, len(labels)):
        if end > place and (end in alone or not _BYTE.match(labels[end])):
            return end - place
        decoder.decode(_bytes_of(labels[end]))
        if not decoder.getstate()[0]:
            return end - place + 1
    return len(labels) - place


def _text_of(labels: Sequence[str]) -> str:
    """Return the text of pieces, without the marks of their beginnings."""
    first, *others = labels
    if first.startswith(_CONTINUES) and len(first) > len(_CONTINUES):
        first = first.removeprefix(_CONTINUES)
    plain = first.lstrip("".join(BEGINS))
    return b"".join(map(_bytes_of, (plain, *others))).decode("utf-8", errors="replace")


def _bytes_of(label: str) -> bytes:
    parts = _BYTE.split(label)  # every second one is the number of a byte
    return b"".join(bytes.fromhex(p) if k % 2 else p.encode(errors="replace") for k, p in enumerate(parts))
