"""The rules of scripts, each held by examples that once were wrong and by two other implementations."""

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from foci.data import Tokenizer
from foci.data.word_splitter import WordSplitter
from foci.metrics.rouge import compared_words
from foci.scripts import begins_spaceless, dominant_script, folded, graphemes, join_texts, lowered, sentence_texts

# ---- characters


LETTERS = [*"aZé1٣ שقนबকমကខ漢カ𠮷ﾊ가가", "각", "👍", "❤", "👩", "🔥", "✈"]
ATTACHED = [
    "\u0301",
    "\u05b8",
    "\u064e",
    "\u0e35",
    "\u0e33",
    "\u093f",
    "\u3099",
    "\uff9f",
    "\ufe0f",
    "\U0001f3fd",
    "\u200c",
]


@given(
    st.lists(
        st.tuples(st.sampled_from(LETTERS), st.lists(st.sampled_from(ATTACHED), max_size=3)).map(
            lambda pair: pair[0] + "".join(pair[1])
        )
    ).map("".join)
)
def test_characters_with_their_marks_are_those_of_other_implementations(text):
    assert graphemes(text) == list(iter_graphemes(text)) == regex.findall(r"\X", text)


@pytest.mark.parametrize(
    "text",
    [
        "🇩🇪🇫🇷🇯", "👨‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🙂‍↔️❤️‍🔥1️⃣", "ক্ষমা क्षमा স্ত্রী", "ខ្ញុំស្រឡាញ់", "한국어",
        unicodedata.normalize("NFD", "한국어 Việt"),
        "a\r\n\u0301b\n", "\u0600١٢", "a\u200bb\u00ad\u0301", "บำรุงน้ำ",
    ],
)  # fmt: skip
def test_flags_emoji_conjuncts_and_syllables_are_whole(text):
    assert graphemes(text) == list(iter_graphemes(text))


def test_burmese_vowels_stay_with_their_letter():
    assert graphemes("မြန်မာစာ") == ["မြ", "န်", "မာ", "စာ"]


@given(st.text())
def test_characters_are_the_text(text):
    assert "".join(graphemes(text)) == text


# ---- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u200bb \ufeffc \u200d \ufe0f \u2060d\u200f", ["a", "b", "c", "d"]),
        ("Donau\u00addampf מל\u200fים", ["Donau\u00addampf", "מל\u200fים"]),
        ("👍🏽🇩🇪🇫🇷👨‍👩‍👧 1️⃣", ["👍🏽", "🇩🇪", "🇫🇷", "👨‍👩‍👧", "1️⃣"]),
        ("ﾊﾟﾝ屋𠮷𪚥", ["ﾊﾟ", "ﾝ", "屋", "𠮷", "𪚥"]),
        ("น้ำดี", ["น้ำ", "ดี"]),
        ("မြန်မာ", ["မြ", "န်", "မာ"]),
        ("བཀྲ་ཤིས", ["བ", "ཀྲ", "་", "ཤི", "ས"]),
        ('צה״ל או צה"ל, "כן"', ["צה״ל", "או", 'צה"ל', ",", '"', "כן", '"']),
        ("شَهِيد ٣٫١٤", ["شَهِيد", "٣٫١٤"]),
        ("l’e\u0301te\u0301", ["l’e\u0301te\u0301"]),
    ],
)
def test_words_are_whole_characters_and_nothing_invisible(text, expected):
    assert WordSplitter("unicode").words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("مُدَرِّس فارسیِ می‌روم", ["مُدَرِّس", "فارسیِ", "می‌روم"]),
        ("ที่นี่น้ำ", ["ที่", "นี่", "น้ำ"]),
        ("ខ្ញុំ។", ["ខ្ញុំ"]),
        ("कृपया, ठीक।", ["कृपया", "ठीक"]),
        ("İZMİR", ["izmir"]),
    ],
)
def test_rouge_never_splits_vowel_signs(text, expected):
    assert compared_words(text) == expected


def test_the_tokenizer_of_words_has_the_same_characters():
    for text in ("ﾊﾟﾝ屋𠮷", "น้ำดี", "👍🏽🇩🇪👨‍👩‍👧", "မြန်မာဗုဒ္ဓ", "ខ្ញុំស្រឡាញ់"):
        tokenizer = Tokenizer.train([text], "words", 60)
        assert tokenizer.encode(text).tokens == WordSplitter("unicode").words(text)


# ---- sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["你好!", "去吗?", "去."],
        ["他走了。", "“真的?!”", "我问．", "圆周率是３．１４．", "完"],
        ["1.苹果和2.梨。", "OK.", "好"],
        ["我……不知道。", "Hello!", "你好"],
        ["今日は。", "｢はい｡｣", "ﾊﾟﾝ｡", "ね"],
        ["Am 3. Mai kam z. B. Dr. Müller bzw. Frau Klein.", " Vgl. Abb. 5, d.h. S. 7 usw.", " „Gut.“", " Er ging."],
        ["В г. Москва, на ул. Мира, д. 5, т.е. рядом, жил А. С. Пушкин.", " Это 1999 г.", " Он уехал и т. д.", " Всё."],
        ["قال د. أحمد إن أ. منى هنا، ص. 5.", " حقا؟", " نعم."],
        ["آقای ه. ش. رفت.", " کجا؟", "نمی‌دانم."],
        ["TP. Hồ Chí Minh do PGS. Lan kể.", " Hay quá!"],
        ["Doç. Dr. Ali geldi, bkz. Sayfa 5.", " Bu sen.", " Evet."],
        ["डॉ. राव आए।", "कब?", " कल॥"],
        ["မင်္ဂလာပါ။", "နေကောင်းလား။"],
        ["བཀྲ་ཤིས།", " བདེ་ལེགས།"],
        ["ខ្ញុំ​ទៅ។", "អរគុណ៕"],
        ["See No. 5 and J. R. Smith.", " I said no.", " Was it I?", " It was I.", " Yes."],
        ["ผมไปตลาด แล้วกลับบ้าน"],
    ],
    ids=lambda sentences: sentences[0][:12],
)
def test_sentences_end_where_people_end_them(sentences):
    assert list(sentence_texts("".join(sentences))) == sentences


@given(st.text(st.sampled_from("aB1. !?。．“”\n你ก।د…")))
def test_sentences_are_the_text(text):
    assert "".join(sentence_texts(text)) == text


# ---- texts without spaces


@pytest.mark.parametrize("opening", "《「“（【『〈(‘")
def test_no_space_before_an_opening_sign_of_a_script_without_spaces(opening):
    assert begins_spaceless(f"{opening}红楼梦")
    assert join_texts(["我读", f"{opening}红楼梦"]) == f"我读{opening}红楼梦"
    assert join_texts(["我读", opening, "红", "楼"]) == f"我读{opening}红楼"
    assert join_texts(["I", "read", "“", "it", "no"]) == "I read “ it no"


def test_punctuation_of_full_width_has_no_spaces_beside_letters_of_other_scripts():
    for text in ("他看（NBA）比赛", "他读《Harry Potter》。", "写代码，2024 年", "スマホ「iPhone」を", "OK！Go"):
        assert join_texts(WordSplitter("unicode").words(text)) == text


def test_scripts_are_known_by_their_letters():
    texts = {
        "spaced": ["ein Haus", "мир", "שלום", "สวัสดี is Thai for hello in a long English text of many letters"],
        "han": ["你好 OK", "𠮷𪚥"],
        "kana": ["ﾊﾟｿｺﾝ", "漢字とかな"],
        "hangul": ["안녕 OK", unicodedata.normalize("NFD", "안녕")],
        "spaceless": ["ภาษาไทย", "မြန်မာစာ", "བོད་སྐད", "ភាសាខ្មែរ", "ພາສາລາວ"],
    }
    assert {name: {dominant_script([text]) for text in some} for name, some in texts.items()} == {
        name: {name} for name in texts
    }


# ---- forms


def test_lower_case_has_one_letter_for_each_letter():
    assert lowered("İSTANBUL Straße ΟΔΟΣ") == "istanbul straße οδος"


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
