"""Train, validation and test parts of examples, by a hash of what each example is about.

The order of the examples has no effect on the split, and examples about the same thing (equal texts, one document, one
image) are never in two parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from foci.errors import ConfigError

Entry = TypeVar("Entry")


class Parts(NamedTuple):
    """Examples to train on, to validate and to evaluate with."""

    train: list[Any]
    valid: list[Any]
    test: list[Any]


def split(
    entries: Iterable[Entry],
    key: Callable[[Entry], str],
    stratum: Callable[[Entry], Hashable] | None = None,
    *,
    valid_share: float,
    test_share: float,
    seed: int = 0,
) -> Parts:
    """Split entries by a hash of their keys and the seed; entries with one key are in one part.

    Of the n keys of a stratum ``round(n · test_share)`` are for testing and ``round(n · valid_share)`` for validation,
    but at least one is trained on.

    Args:
        entries: what is split; its order is kept within each part.
        key: what an entry is about; white space is folded.
        stratum: strata are split separately, such as classes; the first entry of a key decides.
        valid_share, test_share: shares of the keys.
        seed: another seed gives another split.

    Example:
        >>> made = split([f"number {i}" for i in range(50)], key=str, valid_share=0.1, test_share=0.2)
        >>> len(made.train), len(made.valid), len(made.test)
        (35, 5, 10)
    """
    _check_shares(valid_share, test_share)
    entries = list(entries)
    digests = [digest(key(entry)) for entry in entries]
    strata: dict[Hashable, dict[bytes, bytes]] = {}
    seen: set[bytes] = set()
    for entry, one in zip(entries, digests):
        if one not in seen:
            seen.add(one)
            rank = hashlib.blake2b(one, key=str(seed).encode(), digest_size=8).digest()
            strata.setdefault(None if stratum is None else stratum(entry), {})[one] = rank
    held: dict[bytes, int] = {}
    for ranks in strata.values():
        order = sorted(ranks, key=ranks.__getitem__)
        most = len(order) - 1
        test = min(round(len(order) * test_share), most)
        valid = min(round(len(order) * valid_share), most - test)
        held |= dict.fromkeys(order[:test], 2) | dict.fromkeys(order[test : test + valid], 1)
    return _parts(entries, (held.get(one, 0) for one in digests))


def split_by_content(
    entries: Iterable[Entry], key: Callable[[Entry], str], *, valid_share: float, test_share: float, seed: int = 0
) -> Parts:
    """Split entries by thresholds on a hash of their keys and the seed, whatever else is among them.

    Entries with one key are in one part, and entries that are added later move none into validation or test. Where a
    threshold holds nothing out, it is moved to the nearest entry, as long as another one is left to train on: so few
    entries have a part to validate and one to evaluate, too.

    Args:
        entries, key, valid_share, test_share, seed: as in `split`.

    Example:
        >>> made = split_by_content(range(1000), str, valid_share=0.1, test_share=0.2)
        >>> [len(part) for part in made]
        [709, 100, 191]
        >>> more = split_by_content(range(1001), str, valid_share=0.1, test_share=0.2)
        >>> {*more.test} - {1000} == {*made.test}
        True
    """
    _check_shares(valid_share, test_share)
    entries = list(entries)
    places = [place_of(key(entry), seed) for entry in entries]
    distinct = {*places}
    valid_from, test_to = 1 - valid_share, test_share
    if valid_share > 0 and len(distinct) > 1:
        valid_from = min(valid_from, max(distinct))
    least = min(distinct, default=0.0)
    keep_one = test_share > 0 and len(distinct) > 1 + (valid_share > 0)

    def part(place: float) -> int:
        if valid_share > 0 and place >= valid_from:
            return 1
        return 2 if place < test_to or (keep_one and place == least) else 0

    return _parts(entries, map(part, places))


def place_of(text: str, seed: int = 0) -> float:
    """Return a number from 0 to 1 that depends on the words of a text and the seed only."""
    words = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(words, key=str(seed).encode(), digest_size=8).digest(), "big") / 2**64


def _check_shares(valid_share: float, test_share: float) -> None:
    for name, share in (("valid_share", valid_share), ("test_share", test_share)):
        if not 0 <= share < 1 or valid_share + test_share >= 1:
            raise ConfigError(
                f"split: {name} is {share}, expected from 0 to below 1, and less than 1 with the other share."
            )


def _parts(entries: Iterable[Entry], numbers: Iterable[int]) -> Parts:
    """Return the entries of each part, given the number of the part of each entry."""
    made = Parts([], [], [])
    for entry, number in zip(entries, numbers, strict=True):
        made[number].append(entry)
    return made


def unique(entries: Iterable[Entry], key: Callable[[Entry], str]) -> list[Entry]:
    """Return the first entry of each key."""
    kept: dict[bytes, Entry] = {}
    for entry in entries:
        kept.setdefault(digest(key(entry)), entry)
    return list(kept.values())


def digest(text: str) -> bytes:
    """Return a hash of a text's words: white space is folded."""
    words = " ".join(text.split())
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()


PARTS = ("train", "valid", "test")


@runtime_checkable
class HasImage(Protocol):
    """An entry with the name of an image."""

    @property
    def image(self) -> str:
        """The file of the image, or the name of a drawn scene."""
        ...


ImageEntry = TypeVar("ImageEntry", bound=HasImage)


def split_by_image(entries: Sequence[ImageEntry], *, valid_share: float, test_share: float, seed: int = 0) -> Parts:
    """Split entries by a hash of their image and the seed, so that no image is in two parts.

    Of n images ``round(n · valid_share)`` are for validation and ``round(n · test_share)`` for testing: one at least
    where the share is above 0, as long as one is left to train on.
    """
    names = sorted(
        {one.image for one in entries},
        key=lambda name: hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=str(seed).encode()).digest(),
    )
    valid, test = (max(1, round(len(names) * share)) if share > 0 else 0 for share in (valid_share, test_share))
    valid = min(valid, len(names) - 1)
    test = min(test, len(names) - 1 - valid)
    part = {name: 2 if place < test else 1 if place < test + valid else 0 for place, name in enumerate(names)}
    return _parts(entries, (part[one.image] for one in entries))
