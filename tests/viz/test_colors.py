"""The colors of weights: darker is always more, in gray print and in a terminal of 256 colors too."""

import itertools

import pytest

from foci.viz import colors as colors

SHARES = [number / 64 for number in range(65)]


def luminance(red, green, blue):
    """The relative luminance of sRGB (IEC 61966-2-1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))


def of_share(share):
    return luminance(*(part / 255 for part in colors.rgb(share)))


def lightness(share):
    """CIE L*."""
    value = of_share(share)
    return 116 * value ** (1 / 3) - 16 if value > (6 / 29) ** 3 else value * (29 / 3) ** 3


def test_weight_0_is_white_and_1_the_darkest():
    assert colors.rgb(0.0) == (255, 255, 255)
    assert lightness(1.0) < 15
    assert colors.rgb(-1.0) == colors.rgb(0.0)
    assert colors.rgb(2.0) == colors.rgb(1.0)


def test_lightness_falls_evenly():
    steps = [lightness(less) - lightness(more) for less, more in itertools.pairwise(SHARES[::4])]
    assert min(steps) > 0.9 * 88 / 16
    assert max(steps) < 1.1 * 88 / 16


@pytest.mark.parametrize("share", SHARES)
def test_text_on_a_color_can_be_read(share):
    paper, text = of_share(share), {"black": 0.0, "white": 1.0}[colors.ink(share)]
    contrast = (max(paper, text) + 0.05) / (min(paper, text) + 0.05)
    assert contrast >= 4.5  # WCAG 2 AA


def test_the_docstring_tells_the_stops():
    assert all(stop in colors.__doc__ for stop in (*colors.STOPS, colors.HATCH, str(colors.BLACK_UP_TO)))
