import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foci.scripts import folded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße 5!", "STRASSE, 5"),
        ("İstanbul", "ISTANBUL"),
        ("ılık", "ILIK"),
        ("Tiếng Việt", unicodedata.normalize("NFD", "tiếng  việt.")),
        ("می‌روم؟", "میروم"),
        ("ﾊﾟﾝ", "「パン」"),
        ("ＡＢＣ１２", "abc 12"),
        ("soft\u00adhyphen\u200b", "soft-hyphen"),
    ],
)
def test_texts_that_differ_in_form_alone_have_one_key(one, other):
    assert folded(one) == folded(other) != ""


def test_other_letters_marks_and_symbols_have_other_keys():
    texts = ["cafe", "café", "C", "C++", "नमस्ते", "नमसते", "ぱん", "ばん", "…", "?", "👍", "👍🏽", ""]
    assert len({folded(text) for text in texts}) == len(texts)


@given(st.text())
def test_keys_do_not_depend_on_normal_forms_nor_on_being_folded(text):
    assert folded(folded(text)) == folded(text)
    assert len({folded(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")}) == 1
