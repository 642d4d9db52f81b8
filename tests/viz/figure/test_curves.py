"""Lines through points: what can be drawn, and where the legend goes."""

import pytest

pytest.importorskip("matplotlib")
from foci.viz.figure.curves import plot_curves


def curves(count):
    return {f"curve {number}": [(2, number), (1, 2 * number)] for number in range(count)}


def test_lines_go_from_left_to_right():
    (axes,) = plot_curves(curves(2), across="length", up="errors").axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 2]] * 2
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0, 0], [2, 1]]


@pytest.mark.parametrize(("count", "inside", "below"), [(1, False, False), (3, True, False), (4, False, True)])
def test_the_legend_of_many_curves_lies_below_them(count, inside, below):
    figure = plot_curves(curves(count), across="length", up="errors")
    assert (figure.axes[0].get_legend() is not None) == inside
    assert bool(figure.legends) == below
    if below:
        assert [text.get_text() for text in figure.legends[0].get_texts()] == list(curves(count))
