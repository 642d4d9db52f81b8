"""Which encoding a text has: by its mark, by its zero bytes, or as the user says; never by guessing alone.

UTF-8 is what text is read as; UTF-16 and UTF-32 are recognized by the byte-order mark or, without one, by the zero
bytes of their ASCII characters. Any other encoding has to be named (`data.encoding`), and a name is refused where the
bytes show another encoding. Nothing here imports torch.
"""

from __future__ import annotations

import codecs
import unicodedata
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

AUTO = "auto"
SAMPLE = 1 << 16
"""Bytes at the beginning of a file that show its encoding."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    ("\ufeff".encode("gb18030"), "gb18030"),
)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_SHOWN = ("gb18030", "big5", "shift_jis", "euc_kr", "cp1251", "cp1252")
"""Encodings by which a text that is not UTF-8 is shown to the user, who sees which one is right."""
_CERTAIN = 5
"""Characters beyond ASCII, all valid, from which on a text is certainly UTF-8."""
_NO_TEXT = ("Cn", "Co", "Cs")
"""Categories of characters that no text has: unassigned, private, surrogates."""


class TextForm(NamedTuple):
    """The encoding of a text, and the number of bytes of the mark at its beginning."""

    encoding: str
    mark: int


def known_encoding(name: str) -> str:
    """Return the name of an encoding in the form that Python gives it; "auto" is one.

    Raises:
        ValueError: Python does not know it; the message says what is expected.
    """
    if name.lower() == AUTO:
        return AUTO
    try:
        encoded = "a\n".encode(name)
        fits = encoded.decode(name) == "a\n" and b"\n" in encoded and not _writes_surrogates(name)
    except (LookupError, UnicodeError):
        fits = False
    if not fits:
        raise ValueError("auto, or an encoding that Python knows, such as utf-8, utf-16, gb18030, big5, cp1252")
    return codecs.lookup(name).name.removesuffix("-sig")


def has_surrogates(text: str) -> bool:
    """Return whether a text holds half of a surrogate pair, which is no character and cannot be written as UTF-8.

    JSON can spell it; Python also has it in names of files that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _writes_surrogates(name: str) -> bool:
    """Return whether texts of an encoding, such as UTF-7, may hold half of a surrogate pair, which is no character."""
    try:
        "\ud800".encode(name)
    except UnicodeError:
        return False
    return True


Encoding = Annotated[str, AfterValidator(known_encoding)]
"""The name of an encoding in the settings, or "auto"."""


def recognize(sample: bytes, encoding: str = AUTO) -> TextForm:
    """Return the form of a text that begins with these bytes.

    Args:
        sample: at most `SAMPLE` bytes.
        encoding: as the user says, or "auto".

    Raises:
        ValueError: the bytes show another encoding than the given one.

    Example:
        >>> recognize("hi\\n".encode("utf-16-le")), recognize(b"\\xef\\xbb\\xbfhi")
        (TextForm(encoding='utf-16-le', mark=0), TextForm(encoding='utf-8', mark=3))
    """
    mark, marked = next(((mark, name) for mark, name in _MARKS if sample.startswith(mark)), (b"", ""))
    if marked:
        if encoding != AUTO and not marked.startswith(encoding):
            raise ValueError(f"the mark at its beginning is that of {marked}, not of {encoding}")
        return TextForm(marked, len(mark))
    wide = _wide(sample) if b"\0" in sample else None
    if encoding in (AUTO, "utf-16", "utf-32"):
        if wide is None and encoding != AUTO:
            raise ValueError(f"it has neither the mark nor the zero bytes of {encoding}")
        return TextForm(wide or "utf-8", 0)
    if wide not in (None, encoding):
        raise ValueError(f"its zero bytes show that it is {wide}, not {encoding}")
    if encoding != "utf-8" and _is_utf8(sample, 0 if encoding in _WIDE else _CERTAIN):
        raise ValueError(f"it is UTF-8, not {encoding}")
    return TextForm(encoding, 0)


def decode(content: bytes, encoding: str = AUTO) -> str:
    """Return a whole text, without its mark.

    Raises:
        ValueError: as `recognize` does, or some bytes are not of the encoding (a UnicodeDecodeError).
    """
    form = recognize(content[:SAMPLE], encoding)
    return content[form.mark :].decode(form.encoding)


def shown_as(raw: bytes) -> str:
    """Return how bytes that are not UTF-8 read in the common encodings of other texts, for a message; "" if in none."""
    found = []
    for name in _SHOWN:
        try:
            text = raw.decode(name)
        except UnicodeDecodeError:
            continue
        if _is_plausible(text):
            beyond = next((place for place, character in enumerate(text) if character > "\x7f"), 0)
            found.append(f"{name} it reads {text[max(0, beyond - 4) : beyond + 12].strip()!r}")
    return f"As {', as '.join(found[:3])}. " if found else ""


def _wide(sample: bytes) -> str | None:
    """Return the form of UTF-16 or UTF-32 that makes sense of zero bytes; of several the one with most ASCII."""
    best, most = None, 0
    for name in _WIDE:
        size = 4 if "32" in name else 2
        text = codecs.getincrementaldecoder(name)("replace").decode(sample[: len(sample) // size * size])
        ascii_characters = sum(character < "\x80" for character in text)
        if ascii_characters > most and _is_plausible(text):
            best, most = name, ascii_characters
    return best


def _is_utf8(sample: bytes, certain: int) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(sample)  # its last character may be cut
    except UnicodeDecodeError:
        return False
    return "\0" not in text and len(text) > 1 and sum(character > "\x7f" for character in text) >= certain


def _is_plausible(text: str) -> bool:
    """Return whether a text has no characters that only binary data and wrong encodings have."""
    return not any(
        (ord(one) < 0x20 and one not in "\t\n\r\f\x0b\x1b") or one == "\ufffd" or unicodedata.category(one) in _NO_TEXT
        for one in set(text)
    )
