"""The gallery's scenes: for each mechanism, inputs made by hand on which its weights show what it is good for.

Every scene is computed by the mechanism itself, from fixed seeds. Parameters are set by hand or fitted to the scene in
a few steps, and the caption says which: a picture of random parameters would show nothing.
"""

from collections.abc import Callable

from foci.cli.scenes import chosen, heads, images, memory, paired, pooled, scored, windowed
from foci.cli.scenes.scene import Scene

SCENES: dict[str, Callable[[], Scene]] = {
    "dot": scored.dot,
    "scaled_dot": scored.scaled_dot,
    "general": scored.general,
    "additive": scored.additive,
    "concat": scored.concat,
    "cosine": scored.cosine,
    "location": scored.location,
    "location_aware": scored.location_aware,
    "hard": chosen.hard,
    "gumbel": chosen.gumbel,
    "sparsemax": chosen.sparsemax,
    "entmax": chosen.entmax,
    "local_m": windowed.local_m,
    "local_p": windowed.local_p,
    "sliding_window": windowed.sliding_window,
    "multi_head": heads.multi_head,
    "multi_step": heads.multi_step,
    "pool": pooled.pool,
    "hierarchical": pooled.hierarchical,
    "attention_over_attention": paired.attention_over_attention,
    "word_by_word": paired.word_by_word,
    "ntm": memory.ntm,
    "squeeze_excitation": images.squeeze_excitation,
    "efficient_channel": images.efficient_channel,
    "cbam": images.cbam,
    "spatial": images.spatial,
    "crf": pooled.crf,
}

__all__ = ["SCENES", "Scene"]
