"""Labels: how wide they are, where they are cut, and what is made visible."""

import pytest

from foci.viz.labels import clusters, cut, shown, untoned, width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("中文", 4),
        ("한국", 4),
        ("\u1112\u1161\u11ab", 2),  # one syllable in three parts
        ("ﾊﾛｰ", 3),
        ("Ａ", 2),
        ("é", 1),
        ("e\u0301", 1),
        ("مَرحبا", 5),
        ("สวัสดี", 4),
        ("👍", 2),
        ("👍🏽", 2),
        ("👨\u200d👩\u200d👧", 2),
        ("🏴\u200d☠\ufe0f", 2),
        ("❤", 1),
        ("❤\ufe0f", 2),
        ("1\ufe0f\u20e3", 2),
        ("🇨🇳🇫🇷", 4),
        ("🇨🇳🇫", 4 - 1),
        ("a\u200bb", 2),
        ("\u2068ab\u2069", 2),
    ],
)
def test_width(text, columns):
    assert width(text) == columns
    assert "".join(piece for piece, _ in clusters(text)) == text


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("中文字", 6, "中文字"),
        ("中文字", 5, "中文…"),
        ("中文字", 4, "中…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("👍🏽👍🏽", 3, "👍🏽…"),
        ("🇨🇳🇫🇷", 3, "🇨🇳…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_cut(text, columns, expected):
    assert cut(text, columns) == expected
    assert width(cut(text, columns)) <= columns


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("word", "word"),
        ("two words", "two words"),
        ("", "∅"),
        ("  ", "␣␣"),
        ("\n", "↵"),
        ("a\tb\x1b[31m\x7f", "a⇥b^[[31m^?"),
        ("\x9b", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("\u2028", "↵"),
        ("a\u202eb\u2066c", "a⟨U+202E⟩b⟨U+2066⟩c"),
        ("\u200b", "⟨U+200B⟩"),
        ("\ufeffword", "⟨U+FEFF⟩word"),
        ("\u200d", "⟨U+200D⟩"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u00a0", "␣"),
        ("\u3000", "␣"),
        (" \n", "␣↵"),
        ("\r", "^M"),
        ("\x00", "^@"),
        ("\u0301", "◌\u0301"),
        ("<b>&amp;", "<b>&amp;"),
        ("👨\u200d👩", "👨\u200d👩"),
    ],
)
def test_shown(label, expected):
    assert shown(label) == expected


@pytest.mark.parametrize("label", ["", " ", "\u200b", "\u200d", "\u202e", "\u2060", "\ufeff", "\u0301", "\u00ad"])
def test_no_label_is_invisible(label):
    assert width(shown(label)) > 0


def test_tones_of_skin_are_left_out_after_an_emoji_only():
    assert untoned("👍🏽a") == "👍a"
    assert untoned("🏽") == "🏽"
