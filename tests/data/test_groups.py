"""Groups of a table's rows."""

import pytest

from foci.data.groups import joined, read_groups
from foci.errors import ConfigError, DataError


def test_groups_are_read_by_name_or_number(tmp_path):
    table = tmp_path / "a.tsv"
    table.write_text("text\twho\nA b\tx\na b\ty\nc\tx\n", encoding="utf-8")
    assert read_groups(table, "text", "who", str.lower) == {"a b": {"x", "y"}, "c": {"x"}}
    assert read_groups(table, 0, 1, str) == {"text": {"who"}, "A b": {"x"}, "a b": {"y"}, "c": {"x"}}
    with pytest.raises(DataError, match="no column 'whom' in the first line"):
        read_groups(table, "text", "whom", str)
    with pytest.raises(
        ConfigError, match=r"expected a .csv, .tsv or .jsonl file with the column 'who', since data\.group"
    ):
        read_groups(tmp_path, "text", "who", str)


def test_groups_that_share_a_key_are_one_by_brute_force():
    groups = {"a": {"1", "2"}, "b": {"3"}, "c": {"2", "4"}, "d": {"5", "3"}, "e": {"6"}}
    found = joined(groups)
    together = {frozenset(key for key in found if found[key] == name) for name in found.values()}
    assert together == {frozenset("ac"), frozenset("bd"), frozenset("e")}
