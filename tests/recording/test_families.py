"""`foci.record` on families of Hugging Face: every attention, with the weights of their own eager code, or a reason.

The models are tiny, come from their configurations and have random weights; nothing is downloaded.
"""

from __future__ import annotations

import re

import pytest

pytest.importorskip("transformers")

import families
from families import FAMILIES, TOLERANCE

NONE_OF_ITS_OWN = {"autoformer", "led", "longformer", "mamba", "mamba2", "pegasus_x", "rwkv"}
"""What the library returns of these is no weights of positions, or they have none."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_attention_has_the_weights_of_the_familys_own_code_or_a_reason(name):
    family, found = FAMILIES[name], families.measure(name)
    assert found.is_unchanged
    assert len(found.tape) == len(found.eager_tape) == family.count
    reason, count = family.missed or ("", 0)
    assert list(found.tape.missed.values()) == list(found.eager_tape.missed.values()) == [reason] * count
    assert all(path in repr(found.tape) for path in found.tape.missed)
    if name not in NONE_OF_ITS_OWN:
        assert found.compared
        assert found.distance <= TOLERANCE


def test_the_page_has_every_family():
    rows = re.findall(r"^\| ([a-z0-9_-]+) \| \d", families.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(FAMILIES)
