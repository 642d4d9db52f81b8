"""Text made safe to print."""

import io
import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foci.printable import escape_unencodable, printable, to_json


@given(st.text())
def test_nothing_that_a_terminal_acts_on_is_left(text):
    shown = printable(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in shown)
    assert "\u202e" not in shown
    assert printable(text, lines=True).replace("\n", "↵") == shown
    written = to_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in written)


def test_what_is_printable_stays():
    text = "Größe 数 क्षि می‌خواهم 👩\u200d🚀 [bold]x[/bold]"
    assert printable(text) == text
    assert printable("a\tb\nc\x1b[0m\x9b\u202e") == "a⇥b↵c^[[0m\ufffd"


def test_numbers_that_are_not_finite_are_null():
    assert to_json({"a": [math.nan, 1.5, (math.inf,)], "b": True}) == '{"a": [null, 1.5, [null]], "b": true}'


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "koi8-r", "utf-8"])
@given(st.dictionaries(st.text(), st.text()))
def test_json_is_the_same_through_every_encoding(encoding, content):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    escape_unencodable(stream)
    stream.write(to_json(content))
    assert json.loads(stream.buffer.getvalue().decode(encoding)) == content
