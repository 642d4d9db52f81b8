"""Small detectors, and images for them."""

import torch

from foci.models.detector import Detector
from foci.models.options.detection import DetectorOptions
from foci.options import from_tables

KINDS = ("plain", "conditional", "deformable")


def some_detector(kind, **tables):
    """A small detector, none of whose layers is 0 as at the start."""
    torch.manual_seed(0)
    sizes = {"model_dim": 12, "num_heads": 3, "hidden_dim": 14, "num_queries": 5, "encoder": {"stages": (5, 6, 7)}}
    attention = {"kind": kind, **tables.pop("attention", {})}
    model = Detector(3, from_tables(DetectorOptions, {**sizes, "attention": attention, **tables}))
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def some_images(batch, height, width):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8, generator=generator)
