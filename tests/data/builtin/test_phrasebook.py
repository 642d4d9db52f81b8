"""The phrasebook: correct translations, learnable, reordered, with disjoint splits."""

import datetime
import random
import sys
from decimal import Decimal
from itertools import islice

import pytest
from babel.dates import format_date, format_time, format_timedelta
from babel.numbers import format_currency

from foci.data.builtin.phrasebook import SPLITS, _beside, _per, _phrases, find_locale, phrasebook, say
from foci.data.pairs import Pair
from foci.errors import ConfigError, MissingPackageError, UnknownNameError

TARGETS = ["zh", "de", "ar"]


def test_a_larger_book_begins_with_the_smaller_and_seeds_differ():
    small = phrasebook("en", "zh", size=50, seed=3)
    assert phrasebook("en", "zh", size=80, seed=3)[:50] == small
    assert phrasebook("en", "zh", size=50, seed=4) != small
    assert all(isinstance(pair, Pair) and pair.source and pair.target for pair in small)
    assert len({pair.source for pair in small}) == 50


@pytest.mark.parametrize("target", TARGETS)
def test_splits_share_no_sentence_on_either_side(target):
    books = {split: phrasebook("en", target, split=split, size=80, seed=seed) for seed, split in enumerate(SPLITS)}
    for side in (0, 1):
        sentences = [{pair[side] for pair in book} for book in books.values()]
        assert not sentences[0] & sentences[1] | sentences[0] & sentences[2] | sentences[1] & sentences[2]


def test_a_sentence_is_in_the_same_split_for_every_seed():
    train = {pair.source for seed in range(3) for pair in phrasebook("en", "de", size=80, seed=seed)}
    test = {pair.source for seed in range(3) for pair in phrasebook("en", "de", split="test", size=50, seed=seed)}
    assert not train & test


@pytest.mark.parametrize("name", ["en", "zh", "de", "ar", "ja", "fr", "ru", "th"])
def test_a_sentence_has_one_translation(name):
    said = {}
    other = find_locale("de" if name == "en" else "en")
    for phrase in islice(_phrases(random.Random(7)), 300):
        sentence = say(phrase, find_locale(name))
        assert said.setdefault(sentence, say(phrase, other)) == say(phrase, other), sentence
        assert not set("\u00a0\u202f\u200e\u200f") & set(sentence)
        assert "duration-" not in sentence
        assert "length-" not in sentence


def test_spaces_and_marks_that_nobody_types_are_gone():
    assert say(lambda _: "3:05\u202fPM\u00a0\u200e3\u200f/\u061c5", find_locale("en")) == "3:05 PM 3/5"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("zh", ["3小时前", "每千克12.50美元", "2024年5月3日星期五 15:05"]),
        ("de", ["vor 3 Stunden", "12,50 US-Dollar pro Kilogramm", "Freitag, 3. Mai 2024, 15:05"]),
        ("ar", ["قبل 3 ساعات", "12.50 دولار أمريكي/كيلوغرام", "الجمعة، 3 مايو 2024، 3:05 م"]),
    ],
)
def test_word_order_differs(target, expected):
    moment = datetime.datetime(2024, 5, 3, 15, 5)
    phrases = [
        lambda locale: format_timedelta(datetime.timedelta(hours=-3), "hour", add_direction=True, locale=locale),
        _per(
            lambda locale: format_currency(Decimal("12.50"), "USD", locale=locale, format_type="name"), "mass-kilogram"
        ),
        _beside(
            lambda locale: format_date(moment, "full", locale=locale),
            lambda locale: format_time(moment, "short", locale=locale),
        ),
    ]
    assert [say(phrase, find_locale("en")) for phrase in phrases] == [
        "3 hours ago",
        "12.50 US dollars per kilogram",
        "Friday, May 3, 2024, 3:05 PM",
    ]
    assert [say(phrase, find_locale(target)) for phrase in phrases] == expected


@pytest.mark.slow
def test_every_locale_can_speak_and_none_changes_another():
    """Babel keeps what it resolved in shared tables: names that go through them change as more locales are used."""
    from babel.localedata import locale_identifiers

    before = {name: phrasebook("en", name, size=60) for name in ("ar", "ko", "ru", "fa", "zh")}
    for name in locale_identifiers():
        for phrase in islice(_phrases(random.Random(1)), 4):
            assert say(phrase, find_locale(name)).strip()
    assert {name: phrasebook("en", name, size=60) for name in before} == before


def test_locales_are_named_in_any_way_people_write_them():
    assert phrasebook("en-GB", "pt-BR", size=3) == phrasebook("en_GB", "pt_BR", size=3)
    with pytest.raises(
        UnknownNameError, match=r"unknown locale 'germann'. Did you mean .*'de'.*\? There are \d+; babel"
    ):
        phrasebook("en", "germann")
    with pytest.raises(UnknownNameError, match=r"unknown locale 'qqqqqq'. Write it like 'en' or 'de'"):
        phrasebook("qqqqqq", "en")
    with pytest.raises(UnknownNameError, match="unknown locale ''"):
        phrasebook("", "en")


def test_wrong_options():
    with pytest.raises(UnknownNameError, match="unknown split 'tests'. Did you mean 'test'"):
        phrasebook("en", "de", split="tests")
    with pytest.raises(ConfigError, match="source and target locale are both 'en', expected two"):
        phrasebook("en", "en")
    with pytest.raises(ConfigError, match="size is 0, expected a number above 0"):
        phrasebook("en", "de", size=0)


def test_without_babel_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(MissingPackageError, match=r"needs Babel. Install it with: pip install 'foci\[text\]'"):
        phrasebook("en", "de")
