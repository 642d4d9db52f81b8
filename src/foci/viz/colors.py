"""The colors of weights, the same in figures, in the terminal and on the page.

A weight is a share from 0 to 1 of the largest one that the scale covers. Colors run from white (share 0) over blue to
a dark navy (share 1), so that in gray print and to color-blind readers a darker cell always has a larger weight. The
nine stops lie at 0, 1/8, 2/8, … 1; between two of them each of red, green and blue is linear. Their CIE lightness L*
falls in equal steps of 11:

    share  0        1/8      2/8      3/8      4/8      5/8      6/8      7/8      1
    stop   #ffffff  #cfe2f4  #a0c6e5  #75a9d3  #4d8bc1  #2f6eab  #1c518f  #11366d  #081e46
    L*     100      89       78       67       56       45       34       23       12

Text on a color is black up to a share of 0.57 and white above: its contrast is 4.5 at least everywhere.

A weight of exactly 0 (masked, outside of a window, cut off by a sparse normalizer) is not white but hatched: thin gray
lines (#b0b0b0) that rise from left to right, on white. So it differs from a small weight, also in gray print.

The scale does not change with the background: on a dark page or terminal a map of weights keeps its white ground.
"""

from __future__ import annotations

STOPS = ("#ffffff", "#cfe2f4", "#a0c6e5", "#75a9d3", "#4d8bc1", "#2f6eab", "#1c518f", "#11366d", "#081e46")
"""At equal distances, from share 0 to share 1."""
HATCH = "#b0b0b0"
"""The lines over a weight of exactly 0; they lie on white."""
BLACK_UP_TO = 0.57
"""The largest share on whose color black text is read better than white text."""


def rgb(share: float) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255, of a share from 0 to 1; what lies outside is taken for the nearer end.

    Example:
        >>> rgb(0.0), rgb(0.5), rgb(1.0)
        ((255, 255, 255), (77, 139, 193), (8, 30, 70))
    """
    place = min(max(share, 0.0), 1.0) * (len(STOPS) - 1)
    below = min(int(place), len(STOPS) - 2)
    low, high = (int(stop[1:], 16) for stop in STOPS[below : below + 2])
    red, green, blue = (
        round((low >> shift & 0xFF) + ((high >> shift & 0xFF) - (low >> shift & 0xFF)) * (place - below))
        for shift in (16, 8, 0)
    )
    return red, green, blue


def ink(share: float) -> str:
    """Return the color of text on the color of this share: "black" or "white"."""
    return "black" if share <= BLACK_UP_TO else "white"


def code(color: tuple[int, int, int], colors: int) -> str:
    """Return the part of a terminal's escape sequence that names a color, as 24 bits or the nearest of 256.

    Example:
        >>> code((255, 0, 51), 1 << 24), code((255, 0, 51), 256)
        ('2;255;0;51', '5;197')
    """
    if colors > 256:
        return "2;" + ";".join(map(str, color))
    red, green, blue = (round(part / 255 * 5) for part in color)  # the 6 × 6 × 6 cube of the 256 colors
    return f"5;{16 + 36 * red + 6 * green + blue}"
