"""What people marked as the reason in the texts of an input, as tokens; of images it is in `images` beside this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foci.errors import ConfigError
from foci.probing.subject import Source, overlapping
from foci.tasks.frame.probing.images import BOXES

RATIONALES = "rationales"
"""The field of what people marked as the reason: ``[begin, end]`` of characters, in a text or by the name of a text."""
_SPACE = "▁"
"""What the labels of tokens have instead of a space."""


def refuse_idle_marks(given: Mapping[str, Any], sources: Mapping[str, Source]) -> None:
    """Raise if something is marked that is not compared with, or it is not known of which text it is."""
    texts = {source.place for source in sources.values() if source.unit == "words"}
    spans = given.get(RATIONALES)
    if spans is not None and not isinstance(spans, Mapping) and len(texts) != 1:
        named = next((key for key, source in sources.items() if source.unit == "words"), None)
        form = (
            "Leave them out."
            if named is None
            else f'Name the text: {{"{RATIONALES}": {{"{named}": [[begin, end], …]}}}}.'
        )
        raise ConfigError(f"probe: {RATIONALES} are given of an input with {len(texts)} texts, expected one. {form}")
    unknown = [key for key in spans if key not in sources] if isinstance(spans, Mapping) else []
    if unknown:
        raise ConfigError(f"probe: {RATIONALES} are given of {unknown[0]!r}, expected {', '.join(sources)}.")
    if given.get(BOXES) is not None and all(source.unit != "regions" for source in sources.values()):
        raise ConfigError(f"probe: {BOXES} are given, but no image is read. Leave them out.")


def marked_tokens(given: Mapping[str, Any], key: str, tokens: Sequence[str]) -> frozenset[int] | None:
    """Return which tokens of a text people marked, None if nobody did."""
    spans = given.get(RATIONALES)
    if isinstance(spans, Mapping):
        spans = spans.get(key)
    if spans is None:
        return None
    text = next((given[name] for name in (key, "text") if isinstance(given.get(name), str)), None)
    if text is None:
        raise ConfigError(f"probe: rationales of {key!r} are given, but there is no such text.")
    marked = overlapping(places_of_tokens(text, tokens), spans, len(text))
    if spans and not marked:
        raise ConfigError(f"probe: {RATIONALES} of {key!r} are {spans!r}, which covers none of its words. Check them.")
    return marked


def places_of_tokens(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each token begins and ends in its text; one that is not found is empty."""
    places, cursor = [], 0
    lowered = text.casefold() if len(text.casefold()) == len(text) else text
    for token in (label.strip(_SPACE) for label in tokens):
        found = text.find(token, cursor)
        begin = found if found >= 0 else lowered.find(token.casefold(), cursor)
        if begin < 0:
            places.append((cursor, cursor))
        else:
            places.append((begin, begin + len(token)))
            cursor = begin + len(token)
    return places
