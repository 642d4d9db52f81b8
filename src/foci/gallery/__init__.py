"""The gallery's scenes: for each mechanism, constructed inputs on which its weights show how it works.

Every scene is computed by the mechanism itself, from fixed seeds. Parameters are set by hand or fitted to the scene in
a few steps, and the caption says which: a picture of random parameters would show nothing.
"""

from collections.abc import Callable

from foci.gallery import hard_and_sparse, heads, images, memory, pairs, pools, scores, windows
from foci.gallery.scene import Scene

SCENES: dict[str, Callable[[], Scene]] = {
    "dot": scores.dot,
    "scaled_dot": scores.scaled_dot,
    "general": scores.general,
    "additive": scores.additive,
    "concat": scores.concat,
    "cosine": scores.cosine,
    "location": scores.location,
    "location_aware": scores.location_aware,
    "hard": hard_and_sparse.hard,
    "gumbel": hard_and_sparse.gumbel,
    "sparsemax": hard_and_sparse.sparsemax,
    "entmax": hard_and_sparse.entmax,
    "local_m": windows.local_m,
    "local_p": windows.local_p,
    "sliding_window": windows.sliding_window,
    "multi_head": heads.multi_head,
    "multi_step": heads.multi_step,
    "conditional": images.conditional,
    "deformable": images.deformable,
    "pool": pools.pool,
    "hierarchical": pools.hierarchical,
    "attention_over_attention": pairs.attention_over_attention,
    "word_by_word": pairs.word_by_word,
    "ntm": memory.ntm,
    "squeeze_excitation": images.squeeze_excitation,
    "efficient_channel": images.efficient_channel,
    "cbam": images.cbam,
    "spatial": images.spatial,
    "crf": pools.crf,
}

__all__ = ["SCENES", "Scene"]
