"""Fonts for labels in any script: matplotlib falls back from family to family, glyph by glyph, if it is told which."""

from __future__ import annotations

import warnings
from functools import lru_cache
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

# The packages that have a font, on Debian, Fedora and Arch.
CHINESE_JAPANESE_KOREAN = ("fonts-noto-cjk", "google-noto-sans-cjk-fonts", "noto-fonts-cjk")
LETTERS = ("fonts-noto-core", "google-noto-fonts-all", "noto-fonts")
SYMBOLS = ("fonts-symbola", "gdouros-symbola-fonts", "ttf-symbola")
"""Emoji too, in black: coloured ones cannot be drawn."""


def choose(text: str) -> tuple[list[str], set[str]]:
    """The families that together have every character of ``text``, and those that none has, after a warning."""
    chosen = [BASE]
    missing = {character for character in text if _needs_a_glyph(character)}
    missing -= _characters(font_manager.findfont(BASE))
    chosen += _families(missing)
    if missing and _take_in_new_fonts(missing):
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


def _take_in_new_fonts(missing: set[str]) -> bool:
    """Tell matplotlib of fonts that were installed after it made its list and have some of these; whether any do."""
    listed = {font.fname for font in font_manager.fontManager.ttflist}
    new = [path for path in sorted(set(font_manager.findSystemFonts()) - listed) if missing & _characters(path)]
    for path in new:
        font_manager.fontManager.addfont(path)
    return bool(new)


def _needs_a_glyph(character: str) -> bool:
    return not character.isspace() and category(character) != "Cf"  # joiners and the like have none of their own


def _remedy(missing: set[str]) -> str:
    shown = ", ".join(sorted(missing)[:8]) + (", …" if len(missing) > 8 else "")
    wanted = {_package(character) for character in missing}
    debian, fedora, arch = (" and ".join(sorted({names[place] for names in wanted})) for place in range(3))
    return (
        f"no installed font has {shown}: their numbers (U+…) are written instead. Install a font, on Debian and Ubuntu "
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
            return frozenset()  # layers of colour, as coloured emoji have: drawn in black, nothing would be seen
        return frozenset(map(chr, font.get_charmap()))
    except (OSError, RuntimeError):  # a font that was uninstalled, or that FreeType cannot read
        return frozenset()
