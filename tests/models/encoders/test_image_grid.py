import torch

from foci.models.encoders.image_grid import ImageNorm


def test_a_norm_of_readable_places_is_that_of_the_image_alone():
    norm = ImageNorm(14)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    features, readable = torch.randn(2, 14, 5, 7), torch.zeros(2, 5, 7, dtype=torch.bool)
    readable[0, :3, :2] = readable[1, :, :] = True
    normed = norm(features.masked_fill(~readable.unsqueeze(1), torch.nan), readable)
    torch.testing.assert_close(normed[0, :, :3, :2], norm(features[:1, :, :3, :2])[0])
    torch.testing.assert_close(normed[1], norm(features[1:])[0])
    assert not normed[0, :, 3:].any()
    assert not normed[0, :, :, 2:].any()
