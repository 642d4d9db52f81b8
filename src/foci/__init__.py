"""foci: attention for PyTorch. Every mechanism of the literature, exact, mask-safe, and open to inspection.

    import foci
    attention = foci.build("additive", query_dim=64, key_dim=128, hidden_dim=96)
    output, weights, state = attention(query, key, mask=foci.masks.keys(valid))
    weights.topk(3)

Every name below stays stable; docs/design.md says how they fit together.
"""

from foci import masks
from foci.catalog import build, catalogue
from foci.functional.attend import attend
from foci.mechanisms.attention import Attention
from foci.record import record
from foci.results import Weights

__all__ = ["Attention", "Weights", "attend", "build", "catalogue", "masks", "record"]
