"""Makes foci's last-resort font: the commonest Chinese characters of Noto Sans CJK SC, for machines without any.

    pip download --no-deps --dest /tmp/font noto-cjk-sans-otc==0.0.1
    unzip -o -d /tmp/font /tmp/font/noto_cjk_sans_otc-0.0.1-py3-none-any.whl
    python docs/subset_font.py /tmp/font/noto_cjk_sans_otc/NotoSansCJK-Regular.ttc

It keeps the 3,755 characters of level 1 of GB 2312 (rows 16 to 55, which cover more than 99 % of running text) and its
signs (rows 1 and 3), without hints and layout features. The license (SIL OFL 1.1) forbids a changed version to have the
reserved name "Source", and Noto is a trademark: the subset has a name of its own. Needs fonttools, which matplotlib
brings along.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection

TARGET = Path(__file__).parent.parent / "src" / "foci" / "viz" / "figure" / "font_files" / "FociSansSC-Subset.otf"
ORIGINAL, FAMILY = "Noto Sans CJK SC", "Foci Sans SC Subset"
SIGNS, COMMONEST = (1, 3), range(16, 56)
"""Rows of GB 2312."""
KEPT_NAMES = {0, 7, 8, 9, 11, 13, 14}
"""Of the original: copyright, trademark, maker, designer, address, license and its address."""


def characters(rows: range | tuple[int, ...]) -> list[str]:
    """Return the characters of these rows of GB 2312, in its order."""
    cells = (bytes([0xA0 + row, 0xA0 + cell]) for row in rows for cell in range(1, 95))
    return [cell.decode("gb2312") for cell in cells if cell.decode("gb2312", errors="ignore")]


def main(original: str) -> None:
    """Write the subset of a collection of fonts."""
    options = subset.Options(
        layout_features=[], hinting=False, desubroutinize=False, name_IDs=sorted(KEPT_NAMES), notdef_outline=True
    )
    font = next(face for face in TTCollection(original) if face["name"].getDebugName(1) == ORIGINAL)
    cut = subset.Subsetter(options)
    cut.populate(text="".join([*characters(SIGNS), *characters(COMMONEST)]))
    cut.subset(font)
    names = font["name"]
    for number, text in {1: FAMILY, 2: "Regular", 3: f"{FAMILY}; foci", 4: FAMILY, 6: FAMILY.replace(" ", "")}.items():
        names.setName(text, number, 3, 1, 0x409)
    if "CFF " in font:
        font["CFF "].cff.fontNames = [FAMILY.replace(" ", "")]
        top = font["CFF "].cff.topDictIndex[0]
        top.FullName = top.FamilyName = FAMILY
    TARGET.parent.mkdir(exist_ok=True)
    font.save(TARGET)
    print(f"{TARGET}: {TARGET.stat().st_size / 1e6:.2f} MB, {len(font.getBestCmap()):,} characters")


if __name__ == "__main__":
    main(sys.argv[1])
