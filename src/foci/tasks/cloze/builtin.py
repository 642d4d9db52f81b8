"""Cloze questions without a download: short stories of people who carry things about, in English and Chinese.

    Mary went to the garden. John took the ball to the kitchen. … Mary went to the office.
    Mary is in the XXXXX now.                                   garden | kitchen | office: the last one is right

Frequency does not decide: all candidates are of the same kind as the answer, and the answer is the one of the latest
event that the question is about, however often the others are named.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from foci.data.builtin.phrasebook import draw_split
from foci.errors import check_positive, unknown_name
from foci.tasks.cloze.reader import BAR, ClozeQuestion


class _Language(NamedTuple):
    """Names, and sentences for each event and question."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...]
    moves: tuple[str, ...]
    carries: tuple[str, ...]
    gives: tuple[str, ...]
    questions: dict[str, tuple[str, ...]]
    space: str
    """Between sentences."""


LANGUAGES = {
    "en": _Language(
        ("Mary", "John", "Ada", "Omar", "Lin", "Kofi", "Zoe", "Ivan", "Noor", "Ben"),
        ("kitchen", "garden", "office", "cellar", "library", "market", "attic", "harbour", "school", "barn"),
        ("ball", "book", "lamp", "apple", "drum", "letter", "basket", "clock", "hat", "key"),
        ("{person} went to the {place}.", "{person} walked to the {place}."),
        ("{person} took the {thing} to the {place}.", "{person} carried the {thing} to the {place}."),
        ("{person} gave the {thing} to {other}.", "{person} handed the {thing} to {other}."),
        {
            "where is someone": ("{person} is in the XXXXX now.", "You can find {person} in the XXXXX."),
            "where is something": ("The {thing} is in the XXXXX now.", "You can find the {thing} in the XXXXX."),
            "who has something": ("The {thing} is with XXXXX now.", "XXXXX has the {thing}."),
            "what was given": ("{person} gave {other} the XXXXX.", "{other} got the XXXXX from {person}."),
        },
        " ",
    ),
    "zh": _Language(
        ("小明", "小红", "王芳", "李雷", "张伟", "小兰", "阿强", "陈静", "刘洋", "阿梅"),
        ("厨房", "花园", "办公室", "地下室", "图书馆", "市场", "阁楼", "港口", "学校", "谷仓"),
        ("皮球", "书本", "台灯", "苹果", "小鼓", "信件", "篮子", "闹钟", "帽子", "钥匙"),
        ("{person}去了{place}。", "{person}走到了{place}。"),
        ("{person}把{thing}拿到了{place}。", "{person}带着{thing}去了{place}。"),
        ("{person}把{thing}给了{other}。", "{person}将{thing}交给了{other}。"),
        {
            "where is someone": ("{person}现在在XXXXX。", "在XXXXX能找到{person}。"),
            "where is something": ("{thing}现在在XXXXX。", "在XXXXX能找到{thing}。"),
            "who has something": ("{thing}现在在XXXXX手里。", "XXXXX有{thing}。"),
            "what was given": ("{person}给了{other}XXXXX。", "{other}从{person}那里得到了XXXXX。"),
        },
        "",
    ),
}
"""By the code of the language."""
_CAST = 5
"""How many people, places and things a story has."""


def stories(language: str = "en", *, split: str = "train", size: int = 4000, seed: int = 0) -> list[ClozeQuestion]:
    """Return ``size`` different stories with a question each; a larger size begins with the same ones.

    Args:
        language: "en" or "zh".
        split: ``train``, ``valid`` or ``test``. Two splits share no story, whatever their seeds and sizes.
        size: how many questions.
        seed: which ones.

    Example:
        >>> story = stories(size=1, seed=3)[0]
        >>> story.question, story.candidates, story.answer
        ('You can find John in the XXXXX.', 'attic|library|office|school|cellar', 'cellar')
    """
    if language not in LANGUAGES:
        raise unknown_name("language of the built-in stories", language, LANGUAGES)
    check_positive("stories", size=size)
    return list(_made(language, split, size, seed))


@lru_cache(maxsize=8)  # of a small split sixteen times as many are made as are kept
def _made(language: str, split: str, size: int, seed: int) -> tuple[ClozeQuestion, ...]:
    made = _questions(LANGUAGES[language], random.Random(f"{seed}/{split}"))
    return tuple(draw_split(made, lambda question: question.document, split, size).values())


def _questions(language: _Language, chance: random.Random) -> Iterator[ClozeQuestion]:
    while True:
        people = chance.sample(language.people, _CAST)
        places = chance.sample(language.places, _CAST)
        things = chance.sample(language.things, _CAST)
        lines: list[str] = []
        # For each kind, what is asked about (slots of the question's sentence) and the answer; later events replace it.
        facts: dict[str, dict[tuple[tuple[str, str], ...], str]] = {kind: {} for kind in language.questions}
        for _ in range(chance.randint(7, 11)):
            person, other = chance.sample(people, 2)
            place, thing = chance.choice(places), chance.choice(things)
            event = chance.choice(("move", "carry", "give"))
            patterns = {"move": language.moves, "carry": language.carries, "give": language.gives}[event]
            lines.append(chance.choice(patterns).format(person=person, other=other, place=place, thing=thing))
            if event in ("move", "carry"):
                facts["where is someone"][(("person", person),)] = place
            if event == "carry":
                facts["where is something"][(("thing", thing),)] = place
                facts["who has something"][(("thing", thing),)] = person
            if event == "give":
                facts["where is something"].pop((("thing", thing),), None)  # it is where its new owner is
                facts["who has something"][(("thing", thing),)] = other
                facts["what was given"][("person", person), ("other", other)] = thing
        kind = chance.choice([*language.questions])
        text = language.space.join(lines)
        casts = {"where is someone": places, "where is something": places, "who has something": people}
        named = sorted((name for name in casts.get(kind, things) if name in text), key=text.index)
        if not facts[kind] or len(named) < 4:
            continue
        slots, answer = chance.choice([*facts[kind].items()])
        question = chance.choice(language.questions[kind]).format(**dict(slots))
        yield ClozeQuestion(text, question, BAR.join(named), answer, kind)
