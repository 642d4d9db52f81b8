"""Fonts for labels in any script: matplotlib falls back from family to family, glyph by glyph, if it knows which.

First come the fonts of the machine, then that of the package noto-cjk-sans-otc where it is installed, and last a small
one that foci brings along: the commonest Chinese characters, for machines without any Chinese font. Its license lies
beside it; docs/subset_font.py makes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from unicodedata import category, name

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

BASE = "DejaVu Sans"
"""Ships with matplotlib; covers Latin, Greek, Cyrillic, Arabic and mathematics."""

PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Noto Sans CJK JP",
    "Noto Sans CJK TC",
    "Noto Sans CJK KR",
    "Arial Unicode MS",
    "Droid Sans Fallback",
)
"""Tried in this order before any other installed font. One file of Noto CJK covers Chinese, Japanese and Korean."""

PLACEHOLDER = "Last Resort"
"""A font of boxes that ships with matplotlib: it has every character and shows none."""

PACKAGE = "noto-cjk-sans-otc"
"""A package of PyPI that has Noto Sans CJK, with all its characters."""
LAST_RESORT = Path(__file__).parent / "font_files" / "FociSansSC-Subset.otf"

# The packages that have a font, on Debian, Fedora and Arch.
CHINESE_JAPANESE_KOREAN = ("fonts-noto-cjk", "google-noto-sans-cjk-fonts", "noto-fonts-cjk")
LETTERS = ("fonts-noto-core", "google-noto-fonts-all", "noto-fonts")
SYMBOLS = ("fonts-symbola", "gdouros-symbola-fonts", "ttf-symbola")
"""Emoji too, in black: colored ones cannot be drawn."""


def choose(text: str) -> tuple[list[str], set[str]]:
    """The families that together have every character of ``text``, and those that none has, after a warning."""
    chosen = [BASE]
    # Joiners and the like (Cf) have no glyphs of their own.
    missing = {character for character in text if not character.isspace() and category(character) != "Cf"}
    missing -= _characters(font_manager.findfont(BASE))
    chosen += _families(missing)
    for source in _FURTHER:
        if missing and _take_in(source(), missing):
            chosen += _families(missing)
    if missing:
        warnings.warn(_remedy(missing), UserWarning, stacklevel=5)
    return chosen, missing


def _families(missing: set[str]) -> list[str]:
    """Families that have some of these characters, which are then no longer missing."""
    rank = {name: number for number, name in enumerate(PREFERRED)}
    chosen = []
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: rank.get(font.name, len(rank))):
        if not missing:
            break
        if font.name.startswith(PLACEHOLDER):
            continue
        found = missing & _characters(font.fname)
        if found:
            chosen.append(font.name)
            missing -= found
    return chosen


def _take_in(paths: Iterable[str], missing: set[str]) -> bool:
    """Tell matplotlib of those of these fonts that it does not know and that have some of these characters."""
    listed = {font.fname for font in font_manager.fontManager.ttflist}
    new = [path for path in paths if path not in listed and missing & _characters(path)]
    for path in new:
        font_manager.fontManager.addfont(path)
    return bool(new)


def _installed() -> list[str]:
    """Fonts of the machine; matplotlib's own list is as old as its cache."""
    return sorted(font_manager.findSystemFonts())


def _of_package() -> list[str]:
    try:
        held = files(PACKAGE) or []
    except PackageNotFoundError:
        return []
    return [str(file.locate()) for file in held if file.suffix in (".ttc", ".otf", ".ttf")]


def _own() -> list[str]:
    return [str(LAST_RESORT)]


_FURTHER: tuple[Callable[[], list[str]], ...] = (_installed, _of_package, _own)
"""Where fonts are looked for beyond matplotlib's own list, in this order."""


def _remedy(missing: set[str]) -> str:
    shown = ", ".join(sorted(missing)[:8]) + (", …" if len(missing) > 8 else "")
    wanted = {_package(character) for character in missing}
    debian, fedora, arch = (" and ".join(sorted({names[place] for names in wanted})) for place in range(3))
    return (
        f"no font has {shown}: their numbers (U+…) are written instead. Install a font, on Debian and Ubuntu "
        f"{debian} (apt install {debian.replace(' and', '')}), on Fedora {fedora}, on Arch {arch}."
    )


def _package(character: str) -> tuple[str, str, str]:
    words = {"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "FULLWIDTH", "HALFWIDTH"}
    if words & set(name(character, "").split()):
        return CHINESE_JAPANESE_KOREAN
    return LETTERS if category(character)[0] in "LMN" else SYMBOLS


@lru_cache(maxsize=1024)
def _characters(path: str) -> frozenset[str]:
    try:
        font = FT2Font(path)
        if "Color" in font.family_name:
            return frozenset()  # layers of color, as colored emoji have: drawn in black, nothing would be seen
        return frozenset(map(chr, font.get_charmap()))
    except (OSError, RuntimeError):  # a font that was uninstalled, or that FreeType cannot read
        return frozenset()
