"""Text made safe to print: characters that a terminal would interpret are replaced by visible ones."""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
import unicodedata
from typing import Any

_ORDERS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order of the text around them."""
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029" + "".join(sorted(_ORDERS)) + "]")


def printable(text: object, *, lines: bool = False) -> str:
    """Return the text with control characters, ends of lines and half surrogates made visible.

    Args:
        text: anything; it is converted by ``str``.
        lines: keep line feeds, for messages of several lines.

    Example:
        >>> printable("red \\x1b[31m\\ttext\\n")
        'red ^[[31m⇥text↵'
    """
    return "".join(character if lines and character == "\n" else _visible(character) for character in str(text))


def to_json(content: Any) -> str:
    """Return one line of JSON that parses to the same value and has no character that a terminal would interpret.

    Numbers that are not finite, which JSON has no notation for, become null.

    Example:
        >>> to_json({"text": "\\x9b1m é"})
        '{"text": "\\\\u009b1m é"}'
    """
    text = json.dumps(_finite(content), ensure_ascii=False)
    text = _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(content: Any) -> None:
    """Print one line of JSON at once: UTF-8, which JSON always is, or escapes where the output has another encoding."""
    text = to_json(content)
    if codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name != "utf-8":
        text = json.dumps(json.loads(text))
    print(text, flush=True)


def escape_unencodable(stream: Any) -> None:
    """Let a stream write characters that its encoding does not have as JSON does: ``\\u4f60``.

    Lines of JSON stay valid and keep their content, and texts that differ stay different.
    """
    codecs.register_error("foci.json_escapes", _json_escapes)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="foci.json_escapes")


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\n\u2028\u2029":
        return "↵"
    if character == "\t":
        return "⇥"
    if character in _ORDERS:
        return ""
    number = ord(character)
    if number < 0x20 or number == 0x7F:
        return "^" + chr(number ^ 0x40)
    # Joiners and other format characters are part of words in many scripts.
    return character if unicodedata.category(character) in ("Cf", "Zs") else "\ufffd"
