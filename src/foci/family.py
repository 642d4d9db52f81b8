"""The families of mechanisms, by their call signature; see docs/design.md."""

from typing import Literal

Family = Literal["attend", "pool", "pair", "memory", "map"]
