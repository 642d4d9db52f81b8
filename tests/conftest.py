"""Set-up for every test: one thread that sleeps when idle, fixed seeds, and the marker of the pass over the shapes."""

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported: its waiting threads otherwise spin

import hypothesis
import pytest
import torch

torch.set_num_threads(1)

# Tests are not timed: on a busy machine the first example, which fills caches, may take longer than a deadline.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

SHAPES = (
    "tests/contract/",
    "tests/data/",
    "tests/decoding/",
    "tests/functional/",
    "tests/layers/",
    "tests/mechanisms/",
    "tests/metrics/",
    "tests/models/",
    "tests/recording/",
    "tests/test_masks.py",
    "tests/weights/",
)
"""How the names of tests begin that call what has shapes in its signature. They get the marker ``shapes``."""

NO_OTHER_SHAPES = (
    "tests/contract/test_batch_of_one.py",
    "tests/contract/test_by_definition.py",
    "tests/contract/test_changed_in_place.py",
    "tests/contract/test_derivatives.py",
    "tests/contract/test_digests.py",
    "tests/contract/test_every_choice_trains.py",
    "tests/contract/test_every_row.py::test_every_argument_shows_in_the_repr",
    "tests/contract/test_every_task.py",
    "tests/contract/test_option_effects.py::test_an_option_has_an_effect_or_is_refused[multi_head-focus]",
    "tests/contract/test_padding.py",
    "tests/contract/test_training_of_every_task.py",
    "tests/contract/test_transforms.py",
    "tests/data/builtin/",
    "tests/functional/kernels/test_build.py",
    "tests/models/test_language_model.py::test_a_beam_slides_too",
    "tests/models/test_language_model.py::test_hypotheses_that_slid_several_times_keep_their_own_past",
    "tests/models/test_language_model.py::test_windows_predict_each_token_as_generation_does",
    "tests/models/test_source_free_decoders.py",
)
"""Those among them that do not: nearly all ranks of arguments that they pass, others pass too."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The pass over the shapes imports no file without tests for it: with checks, that takes as long as some tests."""
    if not config.getoption("markexpr").startswith("shapes") or collection_path.is_dir():
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return None if path.startswith(SHAPES) and not path.startswith(NO_OTHER_SHAPES) else True


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SHAPES) and not item.nodeid.startswith(NO_OTHER_SHAPES):
            item.add_marker("shapes")


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(20260)
