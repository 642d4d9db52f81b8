"""Fonts for labels in any script: matplotlib falls back from family to family, glyph by glyph, if it is told which."""

from __future__ import annotations

import warnings
from functools import lru_cache

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


def families(text: str) -> list[str]:
    """The families that together have every character of ``text``; a warning says what to install if none has."""
    chosen = [BASE]
    missing = {character for character in text if character.isprintable() and not character.isspace()}
    missing -= _characters(font_manager.findfont(BASE))
    if not missing:
        return chosen
    rank = {name: number for number, name in enumerate(PREFERRED)}
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: rank.get(font.name, len(rank))):
        found = missing & _characters(font.fname)
        if found and not font.name.startswith(PLACEHOLDER):
            chosen.append(font.name)
            missing -= found
        if not missing:
            return chosen
    shown = ", ".join(sorted(missing)[:8]) + (", …" if len(missing) > 8 else "")
    warnings.warn(
        f"no installed font has {shown}: boxes are drawn instead. Install one, for Chinese, Japanese and Korean "
        "fonts-noto-cjk (Debian, Ubuntu: apt install fonts-noto-cjk), google-noto-sans-cjk-fonts (Fedora) or "
        "noto-fonts-cjk (Arch); then delete matplotlib's list of fonts, "
        "python -c 'import matplotlib; print(matplotlib.get_cachedir())'.",
        UserWarning,
        stacklevel=3,
    )
    return chosen


@lru_cache(maxsize=1024)
def _characters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):  # a font that was uninstalled, or that FreeType cannot read
        return frozenset()
