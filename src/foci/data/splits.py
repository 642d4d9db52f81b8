"""Train, validation and test parts of examples, by thresholds on a hash of what each example is about.

The part of an example depends on its own key alone: not on where the data lies, on its order, on what else is in it, or
on the seed of the training. Examples about the same thing (one text, document or image) are never in two parts.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from foci.errors import ConfigError
from foci.files import open_regular
from foci.scripts import folded

Entry = TypeVar("Entry")

PARTS = ("train", "valid", "test")
_SEPARATOR = "\x1f"
_MADE = re.compile(r"[a-z]+:")
"""How the names of drawn images and of rendered sounds begin."""


class Parts(NamedTuple):
    """Examples to train on, to validate and to evaluate with."""

    train: list[Any]
    valid: list[Any]
    test: list[Any]


def split(
    entries: Iterable[Entry], key: Callable[[Entry], str], *, valid_share: float, test_share: float, seed: int = 0
) -> Parts:
    """Split entries by thresholds on a hash of their keys and the seed, whatever else is among them.

    Shares are therefore those of very many keys: of 100 keys and a share of 0.1, about 7 to 13 are held out. Where a
    threshold holds nothing out, the entries of the nearest key are, as long as another key is left to train on, so that
    few entries have a part to validate and one to evaluate, too. These are the only ones that entries which are added
    later can move, and only into training: none is held out that was trained on.

    Args:
        entries: what is split; its order is kept within each part.
        key: what an entry is about; entries with one key are in one part.
        valid_share, test_share: shares of the keys.
        seed: another seed gives another split.

    Example:
        >>> made = split(range(1000), str, valid_share=0.1, test_share=0.2)
        >>> [len(part) for part in made]
        [709, 100, 191]
        >>> more = split(range(1001), str, valid_share=0.1, test_share=0.2)
        >>> {*more.test} - {1000} == {*made.test}
        True
    """
    for name, share in (("valid_share", valid_share), ("test_share", test_share)):
        if not 0 <= share < 1 or valid_share + test_share >= 1:
            raise ConfigError(
                f"split: {name} is {share}, expected from 0 to below 1, and less than 1 with the other share."
            )
    entries = list(entries)
    places = [place_of(key(entry), seed) for entry in entries]
    valid = {place for place in places if place >= 1 - valid_share}
    test = {place for place in places if place < test_share} - valid
    train = sorted({*places} - valid - test)
    if valid_share > 0 and not valid and len(train) > 1:
        valid = {train.pop()}
    if test_share > 0 and not test and len(train) > 1:
        test = {train[0]}
    made = Parts([], [], [])
    for entry, place in zip(entries, places, strict=True):
        (made.valid if place in valid else made.test if place in test else made.train).append(entry)
    return made


def part_of(key: str, *, valid_share: float, test_share: float, seed: int = 0) -> str:
    """Return the part of a key, by the thresholds of `split` alone."""
    place = place_of(key, seed)
    return "valid" if place >= 1 - valid_share else "test" if place < test_share else "train"


def place_of(key: str, seed: int = 0) -> float:
    """Return a number from 0 to 1 that depends on a key and the seed only."""
    return digest(key, seed) / 2**64


def digest(key: str, seed: int = 0) -> int:
    """Return a number of 64 bits that stands for a key."""
    content = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, key=str(seed).encode(), digest_size=8).digest(), "big")


def unique(entries: Iterable[Entry], key: Callable[[Entry], str]) -> list[Entry]:
    """Return the first entry of each key; white space is folded."""
    kept: dict[int, Entry] = {}
    for entry in entries:
        kept.setdefault(digest(" ".join(key(entry).split())), entry)
    return list(kept.values())


# ---- keys


def text_key(*texts: str) -> str:
    """Return the key of one text or several, which differ in more than case, punctuation and spaces from others.

    Example:
        >>> text_key("Don't stop!") == text_key("don’t  stop"), text_key("a", "b") == text_key("ab")
        (True, False)
    """
    return _SEPARATOR.join(map(folded, texts))


def pair_key(one: str, other: str) -> str:
    """Return the key of two texts, which a pair and its swap have in common."""
    return _SEPARATOR.join(sorted((folded(one), folded(other))))


def file_key(name: str) -> str:
    """Return the key of an image or a recording: its bytes, wherever its file lies and whatever it is called.

    One without a file has its name as key: of a drawn image all of it, of a missing file the last part.
    """
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return name if _MADE.match(name) else os.path.basename(name)
    return _file_digest(name, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1 << 20)
def _file_digest(name: str, size: int, changed: int) -> str:
    """Return the digest of a file, which is read again after it has changed."""
    try:
        with open_regular(name) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError:  # that it cannot be read is reported where it is decoded
        return os.path.basename(name)


def same_content(
    names: Sequence[str], shape: Callable[[str], Hashable | None], content: Callable[[str], str | None]
) -> list[str | None]:
    """Return one key for all files of other bytes that decode to the same content; None for those that are alone.

    Args:
        names: the files.
        shape: what a header says of the size of the content; None where it cannot be read.
        content: the digest of the decoded content. It is asked for where files of different bytes have one shape only.
    """
    shapes = {name: shape(name) for name in dict.fromkeys(names)}
    alike: dict[Hashable, set[str]] = {}
    for name, found in shapes.items():
        alike.setdefault(found, set()).add(file_key(name))
    digests: dict[str, str | None] = {}
    for name, found in shapes.items():
        if found is not None and len(alike[found]) > 1 and (key := file_key(name)) not in digests:
            digests[key] = content(name)
    return [digests.get(file_key(name)) for name in names]
