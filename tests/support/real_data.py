"""Real data, where it lies beside the checkout or in FOCI_DATA; elsewhere its tests are skipped."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("FOCI_DATA", Path(__file__).parents[3] / "shared" / "data"))


def real(name):
    """The file or folder of this name."""
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there; set FOCI_DATA")
    return DATA / name
