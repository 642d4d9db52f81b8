"""Examples split into train, valid and test, each by its own content alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from foci.errors import ConfigError

Part = Literal["train", "valid", "test"]


def place_of(content: str, seed: int = 0) -> float:
    """Return a number from 0 to 1 that depends on the words of a text and the seed only."""
    words = " ".join(content.split()).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(words, key=str(seed).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def parts_by_content(contents: Iterable[str], *, valid_share: float, test_share: float, seed: int = 0) -> list[Part]:
    """Return the part of each example: by thresholds on the digest of its content, not by its place or its rank.

    Equal contents are in one part, and examples that are added later move none into validation or test. Where a
    threshold holds nothing out, it is moved to the nearest example, as long as another one is left to train on: so
    few examples have a part to validate and one to evaluate, too.

    Example:
        >>> made = parts_by_content(map(str, range(1000)), valid_share=0.1, test_share=0.2)
        >>> [made.count(part) for part in ("train", "valid", "test")]
        [709, 100, 191]
        >>> more = parts_by_content(map(str, range(1001)), valid_share=0.1, test_share=0.2)
        >>> more[:1000] == made
        True
    """
    if min(valid_share, test_share) < 0 or valid_share + test_share >= 1:
        raise ConfigError(
            f"parts_by_content: valid_share is {valid_share} and test_share is {test_share}, expected at least 0 and "
            "together less than 1."
        )
    places = [place_of(content, seed) for content in contents]
    distinct = {*places}
    valid_from, test_to = 1 - valid_share, test_share
    if valid_share > 0 and len(distinct) > 1:
        valid_from = min(valid_from, max(distinct))
    least = min(distinct, default=0.0)
    keep_one = test_share > 0 and len(distinct) > 1 + (valid_share > 0)

    def part(place: float) -> Part:
        if valid_share > 0 and place >= valid_from:
            return "valid"
        return "test" if place < test_to or (keep_one and place == least) else "train"

    return [part(place) for place in places]
