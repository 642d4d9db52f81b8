"""The networks under the maps: EfficientNet as captions read it, an image alone and padded, frozen or tuned."""

import pytest
import torch
from detectors import some_images
from torch.nn import functional as F

from foci.models.encoders.frozen import EfficientNetLite0
from foci.models.encoders.image_backbones import EfficientNetBackbone, SmallBackbone
from foci.models.options.detection import EfficientNetMapOptions, SmallMapOptions


def test_efficientnet_is_that_of_captions():
    whole, images = EfficientNetLite0(), some_images(1, 64, 96)
    *_, coarsest = EfficientNetBackbone(EfficientNetMapOptions())(images, None)
    assert torch.equal(F.relu6(whole.network._conv_head(coarsest)), whole(images))


@pytest.mark.parametrize(
    "backbone",
    [lambda: EfficientNetBackbone(EfficientNetMapOptions(num_levels=3)), lambda: SmallBackbone(SmallMapOptions())],
)
def test_features_are_those_of_the_image_alone_and_0_beyond_it(backbone):
    torch.manual_seed(0)
    network = backbone()
    image, canvas = some_images(1, 37, 45), some_images(2, 64, 72)
    canvas[0, :, :37, :45] = image
    sizes = torch.tensor([[37, 45], [64, 72]])
    for stride, alone, padded in zip(network.strides, network(image, None), network(canvas, sizes)):
        height, width = -(-37 // stride), -(-45 // stride)
        assert alone.shape[2:] == (height, width)
        torch.testing.assert_close(padded[0, :, :height, :width], alone[0], atol=1e-4, rtol=1e-4)
        assert not padded[0, :, height:].any()
        assert not padded[0, :, :, width:].any()


def test_it_is_trained_only_where_it_is_tuned():
    images = some_images(1, 32, 32)
    assert not any(one.requires_grad for one in EfficientNetBackbone(EfficientNetMapOptions())(images, None))
    tuned = EfficientNetBackbone(EfficientNetMapOptions(tuned=True))
    sum(one.sum() for one in tuned(images, None)).backward()
    assert all(one.grad is not None for one in tuned.parameters())
