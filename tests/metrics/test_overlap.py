"""BLEU by language, as sacrebleu chooses its tokenizer, and texts in any normal form."""

import unicodedata

import pytest

from foci.errors import MissingPackageError
from foci.metrics import overlap

metrics = pytest.importorskip("sacrebleu.metrics")

TEXTS = {
    "en": "The cat sat on the mat.",
    "de": "Die Katze saß auf der Matte.",
    "ru": "Кошка сидела на коврике.",
    "ar": "جلست القطة على السجادة.",
    "zh": "猫坐在垫子上。",
    "yue": "隻貓坐喺張墊度。",
    "ja": "猫はマットの上に座っていた。",
    "ko": "고양이가 매트 위에 앉아 있었다.",
    "th": "แมวนั่งอยู่บนเสื่อ",
    "my": "ကြောင်က ဖျာပေါ်မှာ ထိုင်နေတယ်။",
    "bo": "ཞི་མི་གདན་ཐོག་ལ་བསྡད་འདུག",
    "km": "ឆ្មាអង្គុយលើកន្ទេល។",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_tokenizer_is_that_of_sacrebleu_for_the_language(language):
    by_language, by_script = (
        overlap.tokenizer_for([TEXTS[language]], language),
        overlap.tokenizer_for([TEXTS[language]]),
    )
    spaceless = {"yue": "zh", "th": "char", "my": "char", "bo": "char", "km": "char"}
    try:
        expected = metrics.BLEU(trg_lang=language).tokenizer.signature().split("-mecab")[0]
    except RuntimeError:  # MeCab is not installed
        expected = "char"
        assert f"{language}-mecab, which others report, is not installed" in by_language.note
        assert f"pip install 'sacrebleu[{language}]'" in by_script.note
    expected = spaceless.get(language, expected)
    assert by_language.name.split("-mecab")[0] == by_script.name.split("-mecab")[0] == expected
    assert f"for the language {language}" in by_language.note
    assert "by the script of the references" in by_script.note


@pytest.mark.parametrize("text", ["ﾈｺﾊｿﾌｧﾉ ｳｴ", "𠮷𪚥𠀀"])
def test_half_width_kana_and_rare_han_have_no_words_between_spaces(text):
    assert overlap.tokenizer_for([text]).name in ("char", "zh", "ja-mecab")


def test_a_tokenizer_that_is_not_installed_is_named_before_the_work(monkeypatch):
    monkeypatch.setattr(overlap, "_is_installed", lambda name: False)
    with pytest.raises(MissingPackageError, match=r"ja-mecab needs packages .* pip install 'sacrebleu\[ja\]'"):
        overlap.check_tokenizer("ja-mecab")
    monkeypatch.setattr(overlap, "_is_installed", lambda name: True)
    assert overlap.tokenizer_for(["猫は"]) == ("ja-mecab", "ja-mecab, by the script of the references")


def test_normal_forms_change_no_metric():
    text = "Tiếng Việt rất đẹp và khó"
    other = unicodedata.normalize("NFD", text)
    assert overlap.bleu([text], [other], tokenize="13a").score == pytest.approx(100)
    assert overlap.chrf([other], [text]).score == pytest.approx(100)
    assert overlap.exact_matches([text, "é"], [other, "e"]) == 0.5
