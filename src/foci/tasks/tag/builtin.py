"""Tagged sentences without a download: the phrasebook's dates, amounts, units and lists inside carrier sentences.

    Remind me on [date May 17] to transfer [amount 137.50 Indian rupees].      (remind)

English, German, French, Spanish and Chinese have carriers of their own. In any other locale of CLDR a sentence is made
of CLDR's own words alone: names of territories, languages and currencies around the phrases, put together by the
locale's patterns for lists and for days with hours. Sentences belong to a split by their text, as the phrasebook's do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from foci.data.builtin.phrasebook import MEANINGS, draw_split, find_locale, say
from foci.data.word_splitter import WordSplitter
from foci.errors import check_positive
from foci.tasks.tag.sentences import LabeledSpan, TaggedSentence, to_words

if TYPE_CHECKING:
    from babel import Locale

CARRIERS: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "remind": (
            "Remind me on {date} to transfer {amount}.",
            "please wake me up at {time}",
            "remind {name} about the meeting in {place} at {time} on {date}",
            "Set a timer for {duration}, then call {name}.",
            "{name} wants to be reminded {relative}.",
        ),
        "buy": (
            "Buy {list} before {date}.",
            "We need {measure} and nothing else, {name} said.",
            "order {measure} for at most {amount}",
            "{name} bought {measure} in {place} {relative}.",
            "In {place} it costs {price}, here {amount}.",
        ),
        "report": (
            "On {date} the pump moved {rate} for {duration}.",
            "The parcel for {name} weighs {measure} and left {place} at {time}.",
            "{name} measured {list} in {place}.",
            "Since {date} they pay {price} in {place}.",
            "It ran at {rate}, and stopped {relative}.",
        ),
    },
    "de": {
        "remind": (
            "Erinnere mich am {date} daran, {amount} zu überweisen.",
            "Weck mich bitte um {time}.",
            "{name} möchte {relative} erinnert werden.",
            "Stelle einen Wecker auf {duration} und ruf dann {name} an.",
        ),
        "buy": (
            "Kaufe {list} vor dem {date}.",
            "Wir brauchen {measure} und sonst nichts, sagte {name}.",
            "{name} hat {relative} in {place} {measure} gekauft.",
            "In {place} kostet es {price}, hier {amount}.",
        ),
        "report": (
            "Am {date} förderte die Pumpe {rate}, und zwar {duration} lang.",
            "Das Paket für {name} wiegt {measure} und verließ {place} um {time}.",
            "{name} hat in {place} {list} gemessen.",
            "Es lief mit {rate} und hielt {relative} an.",
        ),
    },
    "fr": {
        "remind": (
            "Rappelle-moi le {date} de virer {amount}.",
            "Réveille-moi à {time}, s'il te plaît.",
            "{name} veut un rappel {relative}.",
            "Mets un minuteur de {duration}, puis appelle {name}.",
        ),
        "buy": (
            "Achète {list} avant le {date}.",
            "Il nous faut {measure} et rien d'autre, dit {name}.",
            "{name} a acheté {measure} à {place} {relative}.",
            "À {place} cela coûte {price}, ici {amount}.",
        ),
        "report": (
            "Le {date} la pompe a débité {rate} pendant {duration}.",
            "Le colis de {name} pèse {measure} et a quitté {place} à {time}.",
            "{name} a mesuré {list} à {place}.",
            "Elle tournait à {rate} et s'est arrêtée {relative}.",
        ),
    },
    "es": {
        "remind": (
            "Recuérdame el {date} transferir {amount}.",
            "Despiértame a las {time}, por favor.",
            "{name} quiere un aviso {relative}.",
            "Pon un temporizador de {duration} y luego llama a {name}.",
        ),
        "buy": (
            "Compra {list} antes del {date}.",
            "Necesitamos {measure} y nada más, dijo {name}.",
            "{name} compró {measure} en {place} {relative}.",
            "En {place} cuesta {price}, aquí {amount}.",
        ),
        "report": (
            "El {date} la bomba movió {rate} durante {duration}.",
            "El paquete de {name} pesa {measure} y salió de {place} a las {time}.",
            "{name} midió {list} en {place}.",
            "Funcionaba a {rate} y se paró {relative}.",
        ),
    },
    "zh": {
        "remind": (
            "请在{date}提醒我转账{amount}。",
            "请在{time}叫醒我。",
            "{relative}提醒{name}。",
            "设一个{duration}的计时器，然后打电话给{name}。",
        ),
        "buy": (
            "在{date}之前买{list}。",
            "{name}说我们只需要{measure}。",
            "{name}于{relative}在{place}买了{measure}。",
            "在{place}要{price}，这里要{amount}。",
        ),
        "report": (
            "{date}水泵以{rate}运行了{duration}。",
            "给{name}的包裹重{measure}，{time}离开{place}。",
            "{name}在{place}测得{list}。",
            "它以{rate}运行，{relative}停了。",
        ),
    },
}
"""By language and intent; a name in braces is a kind of phrase, or a name or a place, which have no label."""
_GENERAL = {
    "one": ("{place}: {any}", "{any} ({language})", "{currency}, {place}: {any}"),
    "two": ("{place}: {any}; {language}: {any}", "{any}, {place} ({any})", "{currency}: {any} / {any}"),
}
"""For all other languages: nothing but signs stands between what CLDR knows."""
_NAMES = ("Ada", "Lin", "Omar", "Zoë", "Ivan", "Mei", "Noor", "José", "Anna", "Kofi")
_SLOT = re.compile(r"\{(\w+)\}")


def carriers(locale: str = "en", *, split: str = "train", size: int = 4000, seed: int = 0) -> list[TaggedSentence]:
    """Return ``size`` different tagged sentences; a larger size begins with the same ones.

    Args:
        locale: any of Babel's locales: ``en``, ``zh``, ``ar``, …
        split: ``train``, ``valid`` or ``test``. Two splits share no sentence, whatever their seeds and sizes.
        size: how many sentences.
        seed: which ones.

    Example:
        >>> sentence = carriers("en", size=1, seed=2)[0]
        >>> sentence.intent, [(sentence.text[start:end], label) for start, end, label in sentence.spans][:1]
        ('buy', [('86 hours per week or 29 grams per liter', 'list')])
    """
    check_positive("carriers", size=size)
    return list(_carriers(locale, split, size, seed))


@lru_cache(maxsize=8)  # a split takes up to a second, and an evaluation needs those of the training again
def _carriers(locale: str, split: str, size: int, seed: int) -> tuple[TaggedSentence, ...]:
    made = _sentences(find_locale(locale), random.Random(f"{seed}/{split}"))
    return tuple(draw_split(made, lambda sentence: sentence.text, split, size).values())


def _sentences(locale: Locale, chance: random.Random) -> Iterator[TaggedSentence]:
    by_intent = CARRIERS.get(locale.language, _GENERAL)
    patterns = [(intent, pattern) for intent, some in by_intent.items() for pattern in some]
    fillers = {
        "name": list(_NAMES),
        "place": _names(locale.territories, 2),
        "language": _names(locale.languages, 2),
        "currency": _names(locale.currencies, 3),
    }
    words = WordSplitter("unicode").offsets
    while True:
        intent, pattern = chance.choice(patterns)
        text, spans, done = "", [], 0
        for slot in _SLOT.finditer(pattern):
            text += pattern[done : slot.start()]
            done = slot.end()
            kind = slot[1] if slot[1] != "any" else chance.choice([*MEANINGS])
            filled = (
                chance.choice(fillers[kind]) if kind in fillers else say(chance.choice(MEANINGS[kind])(chance), locale)
            )
            if kind in MEANINGS:
                spans.append(LabeledSpan(len(text), len(text) + len(filled), kind))
            text += filled
        text += pattern[done:]
        sentence = TaggedSentence(text, tuple(spans), intent, words(text), given=False)
        if to_words(sentence.spans, sentence.words)[1] == 0:  # each phrase is made of whole words
            yield sentence


def _names(known: object, length: int) -> list[str]:
    """The names that CLDR has for codes of this length: territories like DE, languages like de, currencies like EUR."""
    made_up = ("XA", "XB", "ZZ")
    names = {
        str(name)
        for code, name in dict(known).items()  # type: ignore[call-overload]
        if len(code) == length and code.isalpha() and code not in made_up
    }
    return sorted(names) or ["–"]
