"""Mechanisms that reweight a feature map: ``m(features (B, C, H, W)) -> AttentionOutput``, output of the same shape."""

from foci.mechanisms.visual.cbam import CBAM, ChannelAttention
from foci.mechanisms.visual.efficient_channel import EfficientChannel
from foci.mechanisms.visual.spatial import SpatialAttention
from foci.mechanisms.visual.squeeze_excitation import SqueezeExcitation

__all__ = ["CBAM", "ChannelAttention", "EfficientChannel", "SpatialAttention", "SqueezeExcitation"]
