"""What the scripts of the world need: characters with their marks, words without spaces, ends of sentences, forms."""

from foci.scripts.characters import (
    ATTACHED,
    IGNORABLE,
    SPACELESS,
    begins_spaceless,
    dominant_script,
    ends_spaceless,
    is_mark,
    join_texts,
    letter_run,
    marks,
    stands_alone,
    without_spaces,
)
from foci.scripts.graphemes import grapheme_pattern, graphemes
from foci.scripts.normal_forms import NormalForm, folded, lowered, normalized
from foci.scripts.sentences import sentence_texts

__all__ = [
    "ATTACHED",
    "IGNORABLE",
    "SPACELESS",
    "NormalForm",
    "begins_spaceless",
    "dominant_script",
    "ends_spaceless",
    "folded",
    "grapheme_pattern",
    "graphemes",
    "is_mark",
    "join_texts",
    "letter_run",
    "lowered",
    "marks",
    "normalized",
    "sentence_texts",
    "stands_alone",
    "without_spaces",
]
