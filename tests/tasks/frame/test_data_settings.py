import pytest

from foci.errors import ConfigError
from foci.tasks.frame.data_settings import HeldOutData


def test_nothing_is_split_off_for_a_part_that_has_a_file():
    whole = HeldOutData(valid_share=0.25, test_share=0.125, split_seed=7)
    assert whole.shares == {"valid_share": 0.25, "test_share": 0.125, "seed": 7}
    tested = HeldOutData(test="b.csv", valid_share=0.25, test_share=0.125, split_seed=7)
    assert tested.shares == {"valid_share": 0.25, "test_share": 0.0, "seed": 7}
    validated = HeldOutData(valid="b.csv", valid_share=0.25, test_share=0.125)
    assert validated.shares == {"valid_share": 0.0, "test_share": 0.125, "seed": 0}


def test_a_file_and_built_in_data_are_not_both_taken():
    with pytest.raises(ConfigError, match="path and builtin are both set, expected one of them"):
        HeldOutData(path="a.csv", builtin=9)
