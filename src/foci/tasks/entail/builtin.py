"""Pairs of sentences about one scene, made from a small lexicon of words and what they are kinds of.

A premise names an agent, a thing and a place, each by a word of one of three levels (animal, dog, poodle). The
hypothesis says the same with one or two of them replaced by a word of the middle level:

    entailment      by what the premise's word is a kind of (poodle -> dog)
    neutral         at least one by a kind of it (animal -> dog), the others by a more general or a more specific word
    contradiction   at least one by another word of the same level (cat -> dog), the others by any of these

Both sentences describe one scene, as in SNLI: a cat that eats is not a dog that eats. How many words are replaced, what
else the sentences say, and which adjectives the hypothesis leaves out does not depend on the label, so neither the
words that both sentences share nor the hypothesis alone say anything about it.
"""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

from foci.errors import check_positive, unknown_name
from foci.tasks.entail.reader import SentencePair

LABELS = ("contradiction", "entailment", "neutral")
LANGUAGES = ("en", "zh")

_AGENTS = """
animal 动物: dog 狗: poodle 贵宾犬, beagle 比格犬, husky 哈士奇
animal 动物: cat 猫: tabby 虎斑猫, siamese 暹罗猫, persian 波斯猫
animal 动物: bird 鸟: sparrow 麻雀, eagle 老鹰, parrot 鹦鹉
animal 动物: monkey 猴子: baboon 狒狒, macaque 猕猴, gibbon 长臂猿
person 人: child 小孩: girl 女孩, boy 男孩, toddler 幼童
person 人: musician 音乐家: pianist 钢琴师, drummer 鼓手, violinist 小提琴手
person 人: athlete 运动员: boxer 拳击手, swimmer 游泳选手, sprinter 短跑选手
person 人: medic 医务人员: nurse 护士, surgeon 外科医生, dentist 牙医
"""
_THINGS = """
food 食物: fruit 水果: apple 苹果, pear 梨, banana 香蕉
food 食物: vegetable 蔬菜: carrot 胡萝卜, onion 洋葱, potato 土豆
food 食物: bread 面包: baguette 法棍, bagel 贝果, toast 吐司
food 食物: cheese 奶酪: cheddar 切达, feta 羊奶酪, brie 布里
clothing 衣物: hat 帽子: beret 贝雷帽, bonnet 软帽, fedora 礼帽
clothing 衣物: shoe 鞋: boot 靴子, sandal 凉鞋, slipper 拖鞋
clothing 衣物: coat 外套: parka 派克大衣, anorak 防风衣, raincoat 雨衣
toy 玩具: ball 球: football 足球, basketball 篮球, marble 弹珠
toy 玩具: doll 玩偶: puppet 木偶, teddy 泰迪熊, mannequin 人偶
"""
_PLACES = """
building 建筑: house 房子: cottage 农舍, villa 别墅, bungalow 平房
building 建筑: shop 商店: bakery 面包店, pharmacy 药店, bookstore 书店
building 建筑: school 学校: college 学院, kindergarten 幼儿园, academy 研究院
vehicle 车船: car 汽车: taxi 出租车, limousine 豪华轿车, sedan 轿车
vehicle 车船: boat 船: canoe 独木舟, ferry 渡轮, yacht 游艇
plant 植物: tree 树: oak 橡树, birch 桦树, maple 枫树
plant 植物: flower 花: rose 玫瑰, tulip 郁金香, daisy 雏菊
"""
_VERBS = (
    ("finds", "找到"),
    ("wants", "想要"),
    ("takes", "拿走"),
    ("hides", "藏起"),
    ("sees", "看见"),
    ("drops", "丢下"),
)
_PREPOSITIONS = (("near", "附近"), ("behind", "后面"), ("beside", "旁边"))
_ADJECTIVES = (
    ("small", "小"),
    ("big", "大"),
    ("strange", "奇怪"),
    ("famous", "著名"),
    ("pretty", "漂亮"),
    ("dusty", "脏"),
)
_ADJECTIVE = 0.4
"""How often a word of the premise has an adjective; the hypothesis leaves half of them out."""


class _Entry(NamedTuple):
    """A word of the middle level: what it is a kind of, its name, and its kinds; each in all languages."""

    general: tuple[str, ...]
    name: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]


def _entries(text: str) -> list[_Entry]:
    entries = []
    for line in text.strip().splitlines():
        general, name, kinds = line.split(": ")
        split = tuple(tuple(kind.split(" ")) for kind in kinds.split(", "))
        entries.append(_Entry(tuple(general.split(" ")), tuple(name.split(" ")), split))
    return entries


_SLOTS = tuple(_entries(text) for text in (_AGENTS, _THINGS, _PLACES))


def hypernym_pairs(size: int, *, language: str = "en", split: str = "train", seed: int = 0) -> list[SentencePair]:
    """Return pairs, a third of each label, in random order.

    Args:
        size: how many.
        language: "en" or "zh".
        split: other splits have other pairs; none has a premise of the training pairs.
        seed: other seeds have other pairs.

    Example:
        >>> for pair in hypernym_pairs(2):
        ...     print(*pair, sep=" | ")
        The child drops the strange hat behind the big canoe. | The child drops the hat behind the boat. | entailment
        The medic hides the potato near the college. | The athlete hides the potato near the college. | contradiction
    """
    check_positive("hypernym_pairs", size=size)
    if language not in LANGUAGES:
        raise unknown_name("language of built-in pairs", language, LANGUAGES)
    chance = random.Random(f"{seed}/{split}")
    made: list[SentencePair] = []
    while len(made) < size:
        pair = _pair(chance, LABELS[len(made) % len(LABELS)], LANGUAGES.index(language))
        # Disjoint splits without making the others: a premise belongs to the split that its hash chooses.
        held_out = hashlib.blake2b(pair.premise.encode(), digest_size=1).digest()[0] < 51
        if held_out == (split != "train"):
            made.append(pair)
    chance.shuffle(made)
    return made


def _pair(chance: random.Random, label: str, language: int) -> SentencePair:
    edited = chance.sample(range(len(_SLOTS)), chance.choice((1, 2)))
    words: list[tuple[str, str]] = []
    for number, entries in enumerate(_SLOTS):
        entry = chance.choice(entries)
        if number in edited:
            relation = _relation(chance, label, decides=number == edited[0])
            words.append((_replaced(chance, entry, entries, relation)[language], entry.name[language]))
        else:
            word = chance.choice((entry.general, entry.name, chance.choice(entry.kinds)))[language]
            words.append((word, word))
    adjectives = [chance.choice(_ADJECTIVES)[language] if chance.random() < _ADJECTIVE else "" for _ in _SLOTS]
    kept = [adjective if chance.random() < 0.5 else "" for adjective in adjectives]
    verb, preposition = chance.choice(_VERBS)[language], chance.choice(_PREPOSITIONS)[language]
    premise = _sentence(language, [word for word, _ in words], adjectives, verb, preposition)
    hypothesis = _sentence(language, [word for _, word in words], kept, verb, preposition)
    return SentencePair(premise, hypothesis, label)


def _relation(chance: random.Random, label: str, *, decides: bool) -> str:
    """Return how a word of the premise and one of the hypothesis are related; one of them decides the label."""
    if decides:
        return label
    allowed = {"entailment": 1, "neutral": 2, "contradiction": 3}[label]
    return chance.choice(("entailment", "neutral", "contradiction")[:allowed])


def _replaced(chance: random.Random, entry: _Entry, entries: list[_Entry], relation: str) -> tuple[str, ...]:
    """Return the word of the premise that the word of the middle level replaces."""
    if relation == "entailment":
        return chance.choice(entry.kinds)
    if relation == "neutral":
        return entry.general
    return chance.choice([other for other in entries if other is not entry]).name


def _sentence(language: int, words: list[str], adjectives: list[str], verb: str, preposition: str) -> str:
    if LANGUAGES[language] == "zh":
        agent, thing, place = (
            f"{adjective}的{word}" if adjective else word for word, adjective in zip(words, adjectives)
        )
        return f"{agent}在{place}{preposition}{verb}{thing}。"
    agent, thing, place = (
        f"the {adjective} {word}" if adjective else f"the {word}" for word, adjective in zip(words, adjectives)
    )
    return f"{agent.capitalize()} {verb} {thing} {preposition} {place}."
