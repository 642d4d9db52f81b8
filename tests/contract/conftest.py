"""The contract is tried on the fused kernel though its inputs are short; test_short_sequences has the plain path."""

import pytest

from foci.functional import attend


@pytest.fixture(scope="module", autouse=True)
def fused_kernel_for_short_sequences():
    """Of the whole module, so that what its fixtures train is computed in the same way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attend, "_SHORT", 0)
        patch.setattr(attend, "_SHORT_ALONE", 0)
        yield
