"""Maps of several levels: the equations on plain convolutions, codes of places, and sizes."""

import pytest
import torch
from detectors import some_detector, some_images
from torch.nn import functional as F

from foci.errors import ShapeError
from foci.functional.positions import place_code


def test_levels_are_joined_from_the_coarsest_to_the_finest():
    levels = some_detector("plain", encoder_layers=0, encoder={"stages": (5, 6, 7), "num_levels": 3}).levels
    images = some_images(2, 22, 18)
    found = levels.backbone(images, None)
    assert [tuple(one.shape[1:]) for one in found] == [(5, 11, 9), (6, 6, 5), (7, 3, 3)]
    above, maps = None, []
    for features, lateral in reversed([*zip(found, levels.laterals)]):
        here = torch.einsum("bchw,dc->bdhw", features, lateral.weight[..., 0, 0]) + lateral.bias.view(-1, 1, 1)
        if above is not None:
            for row in range(here.shape[2]):
                for column in range(here.shape[3]):
                    here[:, :, row, column] += above[:, :, row // 2, column // 2]
            smoothing = levels.smoothings[len(found) - 1 - len(maps)]
            here = F.conv2d(here, smoothing.weight, smoothing.bias, padding=1)
        maps.insert(0, here)
        above = here
    values = torch.cat([one.flatten(2).transpose(1, 2) for one in maps], dim=1)
    torch.testing.assert_close(levels(images).values, values, atol=1e-4, rtol=1e-4)


def test_codes_say_where_in_the_picture_the_middle_of_a_cell_is():
    levels = some_detector("plain").levels
    codes = levels(some_images(1, 32, 32), torch.tensor([[19, 29]])).codes[0]
    for level, stride, first in ((0, 4, 0), (1, 8, 64)):
        width = 32 // stride
        row, column = 2 - level, 3 - level
        place = torch.tensor([(column + 0.5) * stride / 29, (row + 0.5) * stride / 19])
        torch.testing.assert_close(
            codes[first + row * width + column], place_code(place, 12, fastest=4.0), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("sizes", [[[17, 24]], [[16, 0]]])
def test_sizes_lie_within_the_canvas(sizes):
    with pytest.raises(ShapeError, match="expected heights from 1 to 16 and widths from 1 to 24"):
        some_detector("plain")(some_images(1, 16, 24), torch.tensor(sizes))
