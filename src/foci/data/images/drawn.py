"""Scenes that are drawn when they are needed: colored shapes on a noisy canvas, whose places are known.

    scene = find_scene("drawn:several/train/0/17")      scene 17 of the training part with seed 0
    draw(scene, 48)                                     its pixels
    scene.shapes[0].box                                 where its first shape is
    caption(scene, "zh"), questions(scene, "en")        what can be said of it
    mentions(scene, "zh")                               which words of the caption name which shape

The name is the whole scene: equal names give equal scenes, at any size. Scenes of the family ``one`` have one shape
anywhere; those of ``several`` two, one beside or above the other, or three from left to right; those of ``scattered``
one to five anywhere, of any size, which hardly overlap.
"""

from __future__ import annotations

import math
import random
import zlib
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from foci.errors import DataError, check_positive, unknown_name
from foci.metrics.boxes import Box

PREFIX = "drawn:"
FAMILIES = ("one", "several", "scattered")
SIDE = 64
"""Height and width of a scene where places in it are given in pixels."""
SHAPES = {"circle": "圆形", "square": "正方形", "triangle": "三角形", "cross": "十字", "ring": "圆环"}
"""Names in English and in Chinese."""
COLORS = {
    "red": ("红色", (215, 40, 40)),
    "green": ("绿色", (40, 170, 60)),
    "blue": ("蓝色", (50, 80, 220)),
    "yellow": ("黄色", (235, 210, 50)),
    "purple": ("紫色", (150, 60, 180)),
    "white": ("白色", (250, 250, 250)),
}
"""Chinese name and RGB."""
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

_SIDES = {
    "left": ("left of", "左边"),
    "right": ("right of", "右边"),
    "above": ("above", "上面"),
    "below": ("below", "下面"),
}
_NUMBERS = {1: "one", 2: "two", 3: "three"}
_SMALL, _LARGE = 0.11, 0.15
"""Radius of the shapes of ``several``; the canvas is 1 wide and high."""
_LEAST, _MOST = 0.13, 0.28
"""Radius of the shape of ``one``."""
_SLIGHT, _WIDE = 0.08, 0.2
"""Radius of the shapes of ``scattered``."""
_APART = 0.9
"""Least distance of two of them, as a share of the sum of their radii."""
_HALF = math.sqrt(0.5)
_SLOPE = math.sqrt(0.75)
_OUTLINES = {
    "square": (-_HALF, -_HALF, _HALF, _HALF),
    "triangle": (-_SLOPE, -1.0, _SLOPE, 0.5),
    "cross": (-0.95, -0.95, 0.95, 0.95),
}
"""The smallest boxes around shapes in the circle of radius 1 that do not fill its box."""
_NOISE = 0.09
"""Standard deviation of the canvas's noise; white is 1."""


class Shape(NamedTuple):
    """A shape: what it is, its color, and the circle that it lies in."""

    kind: str
    color: str
    x: float
    y: float
    radius: float

    @property
    def box(self) -> Box:
        """The smallest box around the circle that it lies in."""
        return Box(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)

    @property
    def outline(self) -> Box:
        """The smallest box around the shape itself.

        Example:
            >>> [round(edge, 3) for edge in Shape("triangle", "red", 0.5, 0.5, 0.2).outline]
            [0.327, 0.3, 0.673, 0.6]
        """
        left, top, right, bottom = _OUTLINES.get(self.kind, (-1.0, -1.0, 1.0, 1.0))
        x, y, radius = self[2:]
        return Box(x + left * radius, y + top * radius, x + right * radius, y + bottom * radius)


class Scene(NamedTuple):
    """Shapes on a canvas of some gray, and the seed of its noise."""

    name: str
    shapes: tuple[Shape, ...]
    gray: float
    noise: int


class Question(NamedTuple):
    """A question about a scene, its answer, and the shapes, by number, that one must look at to answer it."""

    question: str
    answer: str
    about: tuple[int, ...]


class Mention(NamedTuple):
    """Characters of a caption, from ``start`` to before ``end``, that name the color or the kind of a shape."""

    start: int
    end: int
    shape: int
    what: Literal["color", "kind"]


def scene_name(family: str, split: str, seed: int, number: int) -> str:
    """Return the name of a scene, by which it is found again."""
    return f"{PREFIX}{family}/{split}/{seed}/{number}"


def find_scene(name: str) -> Scene:
    """Return the scene of a name.

    Example:
        >>> scene = find_scene("drawn:one/train/0/17")
        >>> scene.shapes[0].kind, scene.shapes[0].color, len(find_scene("drawn:several/test/0/3").shapes)
        ('ring', 'blue', 2)

    Raises:
        DataError: the name has another form, or the family is unknown.
    """
    parts = name.removeprefix(PREFIX).split("/")
    if not name.startswith(PREFIX) or len(parts) != 4 or not (parts[2].isdecimal() and parts[3].isdecimal()):
        raise DataError(f"{name!r} names no drawn scene, expected for example {scene_name('one', 'test', 0, 17)}.")
    if parts[0] not in FAMILIES:
        raise DataError(str(unknown_name("family of drawn scenes", parts[0], FAMILIES)))
    chance = random.Random(name)
    shapes = {"one": _alone, "several": _several, "scattered": _scattered}[parts[0]](chance)
    return Scene(name, shapes, chance.uniform(0.25, 0.6), zlib.crc32(name.encode()))


def _alone(chance: random.Random) -> tuple[Shape, ...]:
    return (_anywhere(chance, _LEAST, _MOST),)


def _anywhere(chance: random.Random, least: float, most: float) -> Shape:
    radius = chance.uniform(least, most)
    x, y = (chance.uniform(radius, 1 - radius) for _ in range(2))
    return Shape(chance.choice([*SHAPES]), chance.choice([*COLORS]), x, y, radius)


def _scattered(chance: random.Random) -> tuple[Shape, ...]:
    """One to five shapes anywhere; one that would lie on another is drawn anew, a few times."""
    shapes: list[Shape] = []
    for _ in range(chance.randint(1, 5)):
        for _ in range(20):
            one = _anywhere(chance, _SLIGHT, _WIDE)
            if all(math.dist(one[2:4], other[2:4]) >= _APART * (one.radius + other.radius) for other in shapes):
                shapes.append(one)
                break
    return tuple(shapes)


def _several(chance: random.Random) -> tuple[Shape, ...]:
    """Two shapes of which one is clearly beside or above the other, or three in three columns, in reading order."""
    if chance.randrange(3) == 0:
        cells = [(column, chance.randrange(3)) for column in range(3)]
    else:
        line, (first, last) = chance.randrange(3), sorted(chance.sample(range(3), 2))
        cells = [(first, line), (last, line)] if chance.randrange(2) else [(line, first), (line, last)]
    shapes = []
    for column, row in cells:
        radius = chance.choice((_SMALL, _LARGE))
        slack = 1 / 6 - radius
        x, y = ((place + 0.5) / 3 + chance.uniform(-slack, slack) for place in (column, row))
        shapes.append(Shape(chance.choice([*SHAPES]), chance.choice([*COLORS]), x, y, radius))
    return tuple(shapes)


def draw(scene: Scene, size: int) -> UInt8[NDArray[np.uint8], "H W 3"]:
    """Draw a scene into ``size`` × ``size`` pixels.

    Example:
        >>> draw(find_scene("drawn:one/train/0/17"), 24).shape
        (24, 24, 3)
    """
    check_positive("draw", size=size)
    noise = np.random.default_rng(scene.noise).normal(0.0, _NOISE, (size, size, 3))
    canvas = np.full((size, size, 3), scene.gray)
    centers = (np.arange(size) + 0.5) / size
    for shape in scene.shapes:
        left, top, right, bottom = (edge * size for edge in shape.box)
        rows, columns = (slice(max(0, int(a) - 1), int(b) + 2) for a, b in ((top, bottom), (left, right)))
        x, y = ((centers[part] - at) / shape.radius for part, at in ((columns, shape.x), (rows, shape.y)))
        # A pixel at the edge is covered in part.
        cover = np.clip(0.5 - _distance(shape.kind, x[None, :], y[:, None]) * shape.radius * size, 0, 1)[..., None]
        canvas[rows, columns] += (np.array(COLORS[shape.color][1]) / 255 - canvas[rows, columns]) * cover
    pixels: NDArray[np.uint8] = np.rint(np.clip(canvas + noise, 0, 1) * 255).astype(np.uint8)
    return pixels


def _distance(
    kind: str, x: Float[NDArray[np.float64], "1 W"], y: Float[NDArray[np.float64], "H 1"]
) -> Float[NDArray[np.float64], "H W"]:
    """How far each point is outside of a shape in the circle of radius 1; negative inside."""
    found: NDArray[np.float64]
    if kind == "circle":
        found = np.hypot(x, y) - 1
    elif kind == "ring":
        found = np.abs(np.hypot(x, y) - 0.75) - 0.25
    elif kind == "square":
        found = np.maximum(np.abs(x), np.abs(y)) - _HALF
    elif kind == "triangle":  # upright, its corners on the circle
        found = np.maximum(y - 0.5, np.abs(x) * _SLOPE - y / 2 - 0.5)
    else:
        upright = np.maximum(np.abs(x) - 0.3, np.abs(y) - 0.95)
        lying = np.maximum(np.abs(x) - 0.95, np.abs(y) - 0.3)
        found = np.minimum(upright, lying)
    return found


def caption(scene: Scene, language: Language = "en") -> str:
    """Return what is in a scene: one shape, how the first of two lies to the second, or more, in their order.

    Example:
        >>> caption(find_scene("drawn:several/test/0/3")), caption(find_scene("drawn:several/test/0/3"), "zh")
        ('a yellow cross above a red ring', '一个黄色的十字在一个红色的圆环上面')
    """
    _check_language(language)
    named = [_called(shape, language) for shape in scene.shapes]
    if len(named) == 1:
        return named[0]
    if len(named) > 2:
        comma, last = (", ", " and ") if language == "en" else ("、", "和")
        return f"{comma.join(named[:-1])}{last}{named[-1]}"
    english, chinese = _SIDES[side_of(*scene.shapes)]
    return f"{named[0]} {english} {named[1]}" if language == "en" else f"{named[0]}在{named[1]}{chinese}"


def mentions(scene: Scene, language: Language = "en") -> list[Mention]:
    """Return where the caption of a scene names the color and the kind of each of its shapes.

    Example:
        >>> scene = find_scene("drawn:several/test/0/3")
        >>> [(caption(scene)[one.start : one.end], one.shape) for one in mentions(scene)]
        [('yellow', 0), ('cross', 0), ('red', 1), ('ring', 1)]
    """
    text, found, start = caption(scene, language), [], 0
    for number, shape in enumerate(scene.shapes):
        kind, color = (shape.kind, shape.color) if language == "en" else (SHAPES[shape.kind], COLORS[shape.color][0])
        for what, name in (("color", color), ("kind", kind)):
            start = text.index(name, start)
            found.append(Mention(start, start + len(name), number, what))  # type: ignore[arg-type]
            start += len(name)
    return found


def side_of(shape: Shape, other: Shape) -> str:
    """Return on which side of another a shape lies: left, right, above or below, by the larger distance."""
    across, down = shape.x - other.x, shape.y - other.y
    if abs(across) >= abs(down):
        return "left" if across < 0 else "right"
    return "above" if down < 0 else "below"


def questions(scene: Scene, language: Language = "en") -> list[Question]:
    """Return the questions about a scene that have one answer: color, shape, side, number and whether there is one.

    Example:
        >>> [question.answer for question in questions(find_scene("drawn:several/test/0/3"))[:3]]
        ['yellow', 'cross', 'red']
    """
    _check_language(language)
    english = language == "en"
    shapes = scene.shapes
    kinds, colors = [one.kind for one in shapes], [one.color for one in shapes]
    asked: list[Question] = []
    for number, one in enumerate(shapes):
        kind, color = (one.kind, one.color) if english else (SHAPES[one.kind], COLORS[one.color][0])
        if kinds.count(one.kind) == 1:
            asked.append(
                Question(f"what colour is the {kind}?" if english else f"{kind}是什么颜色？", color, (number,))
            )
        if colors.count(one.color) == 1:
            text = f"what shape is {color}?" if english else f"什么形状是{color}的？"
            asked.append(Question(text, kind, (number,)))
    if len(shapes) == 2 and shapes[0][:2] != shapes[1][:2]:
        for number, one in enumerate(shapes):
            other = shapes[1 - number]
            side = side_of(other, one)
            named = f"{one.color} {one.kind}" if english else f"{COLORS[one.color][0]}的{SHAPES[one.kind]}"
            text = f"what is {_SIDES[side][0]} the {named}?" if english else f"{named}的{_SIDES[side][1]}是什么？"
            asked.append(Question(text, other.kind if english else SHAPES[other.kind], (0, 1)))
    chance = random.Random(f"{scene.name}?")
    for color in dict.fromkeys((chance.choice(colors), chance.choice([*COLORS]))):
        about = tuple(number for number, one in enumerate(colors) if one == color)
        named = color if english else COLORS[color][0]
        text = f"is there a {named} shape?" if english else f"有{named}的形状吗？"
        asked.append(Question(text, _yes(bool(about), english), about))
    count = _NUMBERS[len(shapes)] if english else "零一二三"[len(shapes)]
    text = "how many shapes are there?" if english else "有几个形状？"
    asked.append(Question(text, count, tuple(range(len(shapes)))))
    return asked


def _yes(yes: bool, english: bool) -> str:
    return ("yes" if yes else "no") if english else ("有" if yes else "没有")


def _called(shape: Shape, language: Language) -> str:
    if language == "en":
        return f"a {shape.color} {shape.kind}"
    return f"一个{COLORS[shape.color][0]}的{SHAPES[shape.kind]}"


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
