"""Where sentences end, in any script.

A full stop that has no other use in its script (。।။) ends a sentence wherever it stands. The signs ``. ! ? …`` end one
before a space, or next to a script without spaces; a period does not after an initial, after an abbreviation of the
list below, nor before a small letter. Scripts that write no full stops, such as Thai, have a sentence per paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from foci.scripts.characters import SPACELESS

_CLOSING = "\"'”’»›)\\]}」』）】》〉｣"
_CLOSING_BEFORE_SPACE = _CLOSING + "“‘«‹"  # „Gut.“ »Gut.«
_FULL_STOPS = "。！？｡．︒﹒﹖﹗‼⁇⁈⁉‽؟۔।॥։።፧፨။។៕།༎᠃᠉᭞᭟꧉෴"

_ENDS = re.compile(
    rf"(?:[{_FULL_STOPS}]|(?<=[{_FULL_STOPS}])[.!?])+[{_CLOSING}]*"
    rf"|[.!?…]+[{_CLOSING_BEFORE_SPACE}]*(?=\s|$)"
    rf"|(?:(?<=[{SPACELESS}])(?<!\.)(?:\.(?!\.)|[!?]+)|(?<!\d)(?:\.(?!\.)|[!?]+)(?=[{SPACELESS}]))[{_CLOSING}]*"
    r"|\n[^\S\n]*\n\s*"
)

_TITLES = """
    Mr Mrs Ms Dr Prof Sr Sra Dra Jr St Mt Gen Sen Rep Gov Capt Col Lt Sgt Rev Hon vs cf Cf e.g i.e E.g I.e viz approx
    fig Fig figs Figs z Z z.B Z.B d.h D.h u.a U.a o.ä u.ä i.d.R I.d.R u.U U.U z.T Z.T s.o s.u v.a V.a m.E M.E bzw ca Ca
    vgl Vgl Hr Fr Frl Dipl Ing inkl exkl evtl Evtl ggf Ggf sog Str geb gest zzgl abzgl lt Lt bspw Bspw
    Mme Mlle Mgr Sig Dott p.ex Av Doç Yrd Öğr Sn Örn örn Bkz bkz TS PGS GS TP TX
    т.е Т.е т.к Т.к т.н т.о Т.о и.о г ул пл просп пер обл р-н см См ср Ср напр Напр проф Проф акад доц канд инж гр тов
    св д.м.н к.т.н д.т.н к.м.н أ.د إ.م م.م डॉ पं प्रो
"""
"""Abbreviations that stand before what they belong to, so that no sentence ends after them."""
_NUMBERED = """
    No Nos nos Nr Nrn p pp S vol Vol Bd ch Ch Sec Art eq eqs Eq Eqs Abb Tab Kap Ziff Anm Jan Feb Mar Apr Jun Jul Aug Sep
    Sept Oct Nov Dec д кв п пп т тт ст стр рис Рис табл Табл гл № ص ج ت
"""
"""Abbreviations after which no sentence ends before a digit."""
_MONTHS = "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez"
"""Beginnings of German months: the period of an ordinal before them ends no sentence."""


def sentence_texts(text: str) -> Iterator[str]:
    """Yield the sentences of a text as they stand in it, with the spaces around them; together they are the text.

    Example:
        >>> list(sentence_texts("Dr. No kam z. B. am 3. Mai. 你好!去吗?去."))
        ['Dr. No kam z. B. am 3. Mai.', ' 你好!', '去吗?', '去.']
    """
    start = 0
    for end in _ENDS.finditer(text):
        if _is_end(text, end):
            yield text[start : end.end()]
            start = end.end()
    if start < len(text):
        yield text[start:]


def _is_end(text: str, end: re.Match[str]) -> bool:
    """Return whether a sentence ends here: not after an initial or an abbreviation, nor before a small letter."""
    after = text[end.end() : end.end() + 40].lstrip()
    if end.group() == "．":
        return not (text[end.start() - 1 : end.start()].isdecimal() and after[:1].isdecimal())
    if end.group() != ".":
        return not (after[:1].islower() and end.group()[-1] in _CLOSING_BEFORE_SPACE)
    before = text[max(0, end.start() - 20) : end.start()].split()
    if not before or text[end.start() - 1].isspace():
        return not after[:1].islower()
    last = before[-1].lstrip("(\"'“‘„«»[")
    return not (after[:1].islower() or _is_initial(last) or _is_abbreviation(last, before, after))


def _is_initial(word: str) -> bool:
    """Return whether a word is one letter of a name: a capital one, or one of a spaced script without capitals."""
    if len(word) != 1 or word == "I" or not word.isalpha():
        return False
    return not word.islower() and re.match(f"[{SPACELESS}]", word) is None


def _is_abbreviation(word: str, before: list[str], after: str) -> bool:
    if word.isdecimal():
        return len(word) < 3 and after.startswith(tuple(_MONTHS.split()))
    known = {word, word.capitalize()} if word.isupper() else {word}
    if after[:1].isdecimal() and known & _words(_NUMBERED):
        return True
    # After a number it is a unit: 1999 г. is a year, г. Москва a town.
    return bool(known & _words(_TITLES)) and not (len(before) > 1 and before[-2].isdecimal())


@cache
def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())
