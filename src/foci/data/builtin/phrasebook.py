"""A translation corpus without a download: phrases that CLDR (through Babel) can express in any two locales.

A phrase is drawn as a meaning (a day, an amount, a rate, a list of them) and then expressed in both locales by CLDR's
own patterns, so that the two sides are translations of each other in any two languages:

    $12.50, for each kilogram, three hours ago
        en  12.50 US dollars per kilogram, 3 hours ago
        zh  每千克12.50美元 3小时前
        de  12,50 US-Dollar pro Kilogramm, vor 3 Stunden

Word order differs: years move to the front, "ago" goes before the number or behind the noun, and numerator and
denominator of a rate change places. Each meaning has one form per locale, and no sentence has two translations, so
that a model can learn all of it. The split of a sentence depends on its source side only, for any seed and size:
training and test phrases are disjoint.
"""

from __future__ import annotations

import difflib
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from foci.data.pairs import Pair
from foci.errors import ConfigError, MissingPackageError, UnknownNameError, check_positive, unknown_name

if TYPE_CHECKING:
    from babel import Locale

Made = TypeVar("Made")
SPLITS = ("train", "valid", "test")

Phrase = Callable[["Locale"], str]
"""A meaning: a function from a locale to its text."""

_CURRENCIES = [
    *("USD", "EUR", "GBP", "JPY", "CNY", "INR", "KRW", "BRL"),
    *("CHF", "CAD", "AUD", "SEK", "PLN", "MXN", "TRY", "THB"),
]
_UNITS = [
    *("length-kilometer", "length-meter", "length-centimeter", "length-mile", "mass-kilogram", "mass-gram"),
    *("volume-liter", "area-square-meter", "area-hectare", "digital-gigabyte", "power-kilowatt"),
    *("energy-kilowatt-hour", "temperature-celsius"),
]
_SPANS = ["duration-year", "duration-month", "duration-week", "duration-day", "duration-hour", "duration-minute"]
_RATES = [
    *(("length-kilometer", "duration-hour"), ("length-meter", "duration-second"), ("length-mile", "duration-hour")),
    *(("volume-liter", "duration-minute"), ("volume-liter", "duration-day"), ("mass-gram", "volume-liter")),
    *(("mass-kilogram", "area-hectare"), ("digital-gigabyte", "duration-month"), ("duration-hour", "duration-week")),
]
_PRICED = ["mass-kilogram", "volume-liter", "length-meter", "duration-hour", "duration-day", "duration-month"]
_RELATIVE = {"year": 365 * 86400, "month": 30 * 86400, "week": 7 * 86400, "day": 86400, "hour": 3600, "minute": 60}
_FIRST_DAY, _LAST_DAY = date(1950, 1, 1).toordinal(), date(2049, 12, 31).toordinal()

# Special spaces become plain ones, and invisible direction marks are removed, so that a model is trained on the
# characters that users type.
_PLAIN = str.maketrans("\u00a0\u202f\u2009", "   ", "\u200e\u200f\u061c")


def phrasebook(
    source_locale: str, target_locale: str, *, split: str = "train", size: int = 10_000, seed: int = 0
) -> list[Pair]:
    """Return ``size`` different sentence pairs; a larger size begins with the same ones.

    Args:
        source_locale, target_locale: any two of Babel's locales: ``en``, ``zh``, ``zh_Hant``, ``pt-BR``, …
        split: ``train``, ``valid`` or ``test``. Two splits share no source sentence, for any seeds and sizes.
        size: number of pairs.
        seed: of the pairs.

    Example:

        >>> for pair in phrasebook("en", "de", size=2, seed=4):
        ...     print(pair.source, "|", pair.target)
        May 17, 137.50 Indian rupees | 17. Mai, 137,50 Indische Rupien
        7,269.9 liters, 9.6 grams, and 234.6 kilowatt-hours | 7.269,9 Liter, 9,6 Gramm und 234,6 Kilowattstunden
    """
    check_positive("phrasebook", size=size)
    source, target = find_locale(source_locale), find_locale(target_locale)
    if source == target:
        raise ConfigError(f"phrasebook: source and target locale are both {source_locale!r}, expected two.")
    phrases = _phrases(random.Random(f"{seed}/{split}"))
    drawn = draw_split(phrases, lambda phrase: say(phrase, source), split, size)
    return [Pair(sentence, say(phrase, target)) for sentence, phrase in drawn.items()]


def draw_split(made: Iterable[Made], text_of: Callable[[Made], str], split: str, size: int) -> dict[str, Made]:
    """Return the first ``size`` entries of a split with different texts, by their texts."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    drawn: dict[str, Made] = {}
    for one in made:
        text = text_of(one)
        if split_of(text) == split and text not in drawn:
            drawn[text] = one
            if len(drawn) == size:
                break
    return drawn


def find_locale(name: str) -> Locale:
    """Return Babel's locale of this name; an unknown one suggests the nearest."""
    try:
        from babel import Locale, UnknownLocaleError
        from babel.localedata import locale_identifiers
    except ImportError as error:
        raise MissingPackageError("the phrasebook needs Babel. Install it with: pip install 'foci[text]'") from error
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError, TypeError, AttributeError) as error:
        known = locale_identifiers()
        # English names such as "german" are accepted too.
        languages = {word.lower(): code for code, word in Locale("en").languages.items() if code in known}
        codes = {code.lower(): code for code in known}
        near = difflib.get_close_matches(str(name).lower().replace("-", "_"), [*languages, *codes], n=3, cutoff=0.6)
        meant = list(dict.fromkeys(languages.get(word) or codes[word] for word in near)) or ["en", "de", "zh", "ar"]
        shown = " or ".join(repr(code) for code in meant)
        raise UnknownNameError(
            f"unknown locale {name!r}. {'Did you mean' if near else 'Write it like'} {shown}{'?' if near else '.'} "
            f"There are {len(known)}; babel.localedata.locale_identifiers() lists them."
        ) from error


def say(phrase: Phrase, locale: Locale) -> str:
    """Return a meaning in words, with plain spaces and without marks of direction."""
    return phrase(locale).translate(_PLAIN)


def split_of(sentence: str) -> str:
    """Return which split a sentence belongs to: the same one whatever the seed and the size."""
    bucket = hashlib.blake2b(sentence.encode(), digest_size=8).digest()[0] % 16
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


def _phrases(chance: random.Random) -> Iterator[Phrase]:
    """Yield meanings endlessly: single ones, and sentences made of them."""
    while True:
        yield chance.choice(_SENTENCES)(chance)


def _day(chance: random.Random) -> date:
    return date.fromordinal(chance.randint(_FIRST_DAY, _LAST_DAY))


def _date(chance: random.Random) -> Phrase:
    from babel.dates import format_date

    day, form = _day(chance), chance.choice(("long", "full"))
    return lambda locale: str(format_date(day, form, locale=locale))


def _part_of_date(chance: random.Random) -> Phrase:
    from babel.dates import format_skeleton

    day, form = _day(chance), chance.choice(("MMMMd", "yMMMM"))
    return lambda locale: str(format_skeleton(form, day, locale=locale))


def _months(chance: random.Random) -> Phrase:
    from babel.dates import format_interval

    first = _day(chance).replace(day=1)
    last = (first + timedelta(days=31 * chance.randint(1, 14))).replace(day=1)
    return lambda locale: str(format_interval(first, last, "yMMMM", locale=locale))


def _time(chance: random.Random) -> Phrase:
    from babel.dates import format_time

    clock = time(chance.randrange(24), chance.randrange(60))
    return lambda locale: str(format_time(clock, "short", locale=locale))


def _moment(chance: random.Random) -> Phrase:
    return _beside(_date(chance), _time(chance))


def _relative(chance: random.Random) -> Phrase:
    from babel.dates import format_timedelta

    unit = chance.choice(list(_RELATIVE))
    delta = timedelta(seconds=_RELATIVE[unit] * chance.randint(1, 60) * chance.choice((1, -1)))
    # The threshold keeps Babel from rounding 24 hours to a day.
    return lambda locale: format_timedelta(delta, unit, threshold=1e9, add_direction=True, locale=locale)  # type: ignore[arg-type]


def _duration(chance: random.Random) -> Phrase:
    larger = chance.randrange(len(_SPANS) - 1)
    parts = [_quantity(Decimal(chance.randint(1, 30)), unit) for unit in _SPANS[larger : larger + 2]]
    return _joined(parts[: chance.randint(1, 2)], "standard")


def _measure(chance: random.Random) -> Phrase:
    return _quantity(_number(chance), chance.choice(_UNITS))


def _rate(chance: random.Random) -> Phrase:
    from babel.units import format_compound_unit

    number, (counted, per) = _number(chance), chance.choice(_RATES)
    parts = _per(_quantity(number, counted), per)

    def phrase(locale: Locale) -> str:
        whole = str(format_compound_unit(number, counted, denominator_unit=per, locale=locale))
        return parts(locale) if counted in whole or per in whole else whole

    return phrase


def _amount(chance: random.Random) -> Phrase:
    from babel.numbers import format_currency, get_currency_precision

    currency = chance.choice(_CURRENCIES)
    digits = get_currency_precision(currency)
    value = Decimal(chance.randint(1, 10 ** chance.randint(1, 4))) + Decimal(chance.randrange(20)) / 20
    rounded = value.quantize(Decimal(1).scaleb(-digits))
    return lambda locale: format_currency(rounded, currency, locale=locale, format_type="name")


def _price(chance: random.Random) -> Phrase:
    return _per(_amount(chance), chance.choice(_PRICED))


def _list(chance: random.Random) -> Phrase:
    kind = chance.choice((_amount, _measure, _price, _rate))
    return _joined([kind(chance) for _ in range(chance.randint(2, 3))], chance.choice(("standard", "or")))


def _number(chance: random.Random) -> Decimal:
    whole = Decimal(chance.randint(1, 10 ** chance.randint(1, 4)))
    return whole + Decimal(chance.randint(1, 9)) / 10 if chance.random() < 0.3 else whole


def _quantity(number: Decimal | str, unit: str) -> Phrase:
    from babel.units import format_unit

    def phrase(locale: Locale) -> str:
        words = format_unit(number, unit, "long", locale=locale)
        # Where CLDR has no long words but short ones, as often in Chinese, Babel shows the unit's code instead.
        return format_unit(number, unit, "short", locale=locale) if unit in words else words

    return phrase


def _per(counted: Phrase, unit: str) -> Phrase:
    from babel.units import format_compound_unit

    one = _quantity("", unit)

    def phrase(locale: Locale) -> str:
        whole = str(format_compound_unit(counted(locale), denominator_unit=unit, locale=locale))
        if unit not in whole:
            return whole
        return str(format_compound_unit(counted(locale), denominator_value=one(locale).strip(), locale=locale))

    return phrase


def _joined(parts: list[Phrase], style: str) -> Phrase:
    from babel.lists import format_list

    return lambda locale: format_list([part(locale) for part in parts], style, locale=locale)  # type: ignore[arg-type]


def _beside(first: Phrase, second: Phrase) -> Phrase:
    """Combine both with the locale's pattern for date and time."""
    return lambda locale: str(locale.datetime_formats["long"]).format(second(locale), first(locale))


def _dated(chance: random.Random) -> Phrase:
    return _beside(
        chance.choice((_date, _part_of_date, _moment))(chance), chance.choice((_amount, _measure, _list))(chance)
    )


def _told(chance: random.Random) -> Phrase:
    return _beside(chance.choice((_price, _rate, _amount, _measure))(chance), _relative(chance))


_SENTENCES = (
    *(_date, _part_of_date, _months, _time, _moment, _relative, _duration, _measure, _rate, _amount, _price),
    *(_list, _list, _dated, _dated, _told, _told),
)

MEANINGS: dict[str, tuple[Callable[[random.Random], Phrase], ...]] = {
    "date": (_date, _part_of_date, _months),
    "time": (_time,),
    "relative": (_relative,),
    "duration": (_duration,),
    "amount": (_amount,),
    "price": (_price,),
    "measure": (_measure,),
    "rate": (_rate,),
    "list": (_list,),
}
"""What draws a meaning of each kind."""
