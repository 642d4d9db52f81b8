"""Which heads read one word from another: a ranked list, the strongest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from foci.errors import ConfigError, FociError, unknown_name

Wanted = int | str | tuple[str, int]
"""A position; a word, at any of its positions; or a word and which of its positions, zero-based."""
Positions = tuple[int, ...]

_BEGINS, _CONTINUES = "▁Ġ", "##"
"""How tokenizers mark a piece that begins a word, and one that goes on."""


class HeadWeight(NamedTuple):
    """How much of one word a head reads from another.

    Attributes:
        path: the attention.
        head: the head, zero-based.
        weight: the sum over the pieces that are read, the mean over those that read.
        query: the positions that read.
        key: the positions that are read.
    """

    path: str
    head: int
    weight: float
    query: Positions
    key: Positions


class HeadRanking(list[HeadWeight]):
    """Heads by weight, the largest first; prints as a table."""

    def __repr__(self) -> str:
        width = max((len(one.path) for one in self), default=0)
        return "\n".join(
            f"{one.path:<{width}}  head {one.head:<3} {one.weight:.2f}  {_spelled(one.query)} → {_spelled(one.key)}"
            for one in self
        )


class Searched(NamedTuple):
    """An attention in which heads are looked for.

    Attributes:
        path: what it is called.
        heads: what its heads are called.
        rows: returns the weights ``(H, n, S)`` of n rows.
        targets: what stands at each position that reads.
        sources: what stands at each position that is read.
    """

    path: str
    heads: Sequence[int]
    rows: Callable[[Positions], Any]
    targets: Sequence[str]
    sources: Sequence[str]


def search(owner: str, attentions: Iterable[Searched], query: Wanted, key: Wanted, top: int | None) -> HeadRanking:
    """Return each head at the places where its weight is largest, the ``top`` heads of all.

    Attentions in which one of the two does not stand are left out; if it stands in none, that is an error.
    """
    best: dict[tuple[str, int], HeadWeight] = {}
    errors: list[FociError] = []
    for path, heads, rows, targets, sources in attentions:
        try:
            queries, keys = places(f"{owner}, query", targets, query), places(f"{owner}, key", sources, key)
        except FociError as error:
            errors.append(error)
            continue
        for reads in queries:
            read = rows(reads).mean(axis=1)
            for is_read in keys:
                for head, weight in zip(heads, read[:, list(is_read)].sum(axis=-1).tolist()):
                    found = HeadWeight(path, head, float(weight), reads, is_read)
                    best[path, head] = max(best.get((path, head), found), found, key=lambda one: one.weight)
    if not best and errors:
        raise errors[0]
    ranked = sorted(best.values(), key=lambda one: -one.weight)
    return HeadRanking(ranked[:top])


def places(owner: str, labels: Sequence[str], wanted: Wanted) -> list[Positions]:
    """Return the positions of each place where a word stands, which may be several pieces of a tokenizer.

    Raises:
        UnknownNameError: it stands nowhere.
        ConfigError: there is no such position, or the word stands at fewer places.

    Example:
        >>> places("", ["▁the", "▁an", "imal", "▁the"], "animal"), places("", ["the", "cat", "the"], ("the", 1))
        ([(1, 2)], [(2,)])
    """
    if isinstance(wanted, int):
        if not -len(labels) <= wanted < len(labels):
            raise ConfigError(f"{owner}: the position is {wanted}, but there are {len(labels)} (zero-based).")
        return [(wanted % len(labels),)]
    word, number = (wanted, None) if isinstance(wanted, str) else wanted
    found = _words(labels, word) or _words([label.casefold() for label in labels], word.casefold())
    found = found or [(place,) for place, label in enumerate(labels) if label == word]
    if not found:
        raise unknown_name(f"word ({owner})", word, dict.fromkeys(label.lstrip(_BEGINS) or label for label in labels))
    if number is None:
        return found
    if not -len(found) <= number < len(found):
        raise ConfigError(f"{owner}: {word!r} stands {len(found)} time(s), expected more than {number} (zero-based).")
    return [found[number]]


def _words(labels: Sequence[str], word: str) -> list[Positions]:
    marked = any(label.startswith(tuple(_BEGINS)) for label in labels)
    found = (_word(labels, start, word, marked) for start in range(len(labels)))
    return [place for place in found if place]


def _word(labels: Sequence[str], start: int, word: str, marked: bool) -> Positions:
    """Return the positions of the word if it begins here."""
    if start and _goes_on(labels[start], marked):
        return ()
    text, stop = labels[start].lstrip(_BEGINS), start + 1
    while stop < len(labels) and len(text) < len(word) and _goes_on(labels[stop], marked):
        text += labels[stop].removeprefix(_CONTINUES)
        stop += 1
    whole = stop == len(labels) or not _goes_on(labels[stop], marked)
    return tuple(range(start, stop)) if text == word and whole else ()


def _goes_on(label: str, marked: bool) -> bool:
    """Return whether a piece goes on with the word before it."""
    return label.startswith(_CONTINUES) or (marked and label[:1].isalnum() and label[0] not in _BEGINS)


def _spelled(place: Positions) -> str:
    return str(place[0]) if len(place) == 1 else f"{place[0]}–{place[-1]}"
