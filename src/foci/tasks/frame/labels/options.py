"""The options of predictions that are labels."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from foci.settings import settings


@settings
class LabelOptions:
    """Which labels are given."""

    top_k: Annotated[int, Ge(1)] = 1
    """How many labels are given for each input, likeliest first, each with its probability."""
