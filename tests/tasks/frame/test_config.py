"""Settings: where their descriptions come from, how values are read, and what a mistake says."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from annotated_types import Ge
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from foci.errors import ConfigError
from foci.options import Options
from foci.settings import build, describe, settings, to_tables
from foci.tasks.frame import config as configs


@dataclass(frozen=True, kw_only=True)
class Near(Options):
    """One kind of a part."""

    kind: Literal["near"] = "near"
    """Near."""
    num_sizes: int = 3
    """How large
    it is."""


@dataclass(frozen=True, kw_only=True)
class Far(Options):
    """Another kind of a part."""

    kind: Literal["far"] = "far"
    """Far."""
    distance: float = 0.5
    """How far."""


@settings
class Inner:
    """A table."""

    name: str = "x"
    """What it is
    called."""
    count: Annotated[int, Ge(1)] | None = 5
    """How many."""
    pair: tuple[int | str, int | str] | None = None
    """Two columns."""
    shares: dict[str, float] = field(default_factory=dict)
    """By name."""


@settings
class Base:
    """What another builds on."""

    word: Literal["one", "two"] = "one"
    """A word."""


@settings
class Whole(Base, configs.TaskConfig):
    """Everything."""

    inner: Inner = Inner(name="y")
    part: Annotated[Near | Far, Field(discriminator="kind")] = Near()
    flag: bool = False
    """A switch."""

    def unused(self):  # it has no table of training
        return iter(())


def read(**tables):
    return configs.configure(Whole, tables, "a.toml")


def test_descriptions_are_the_texts_below_the_fields():
    found = {one.path: (one.doc, one.value) for one in describe(read())}
    assert found == {
        "word": ("A word. One of: one, two.", "one"),
        "inner.name": ("What it is called.", "y"),
        "inner.count": ("How many.", 5),
        "inner.pair": ("Two columns.", None),
        "inner.shares": ("By name.", {}),
        "part.kind": ("Near. One of: near, far.", "near"),
        "part.num_sizes": ("How large it is.", 3),
        "flag": ("A switch.", False),
    }


def test_what_is_not_given_comes_from_the_default_of_the_table():
    assert read(inner={"count": 7}).inner == Inner(name="y", count=7)
    assert read(part={"num_sizes": 9}).part == Near(num_sizes=9)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("inner.count=7", Inner(name="y", count=7)),
        ("inner.count=none", Inner(name="y", count=None)),
        ("inner.name=7", Inner(name="7")),
        ("inner.name=none", Inner(name="none")),
        ("inner.name=true", Inner(name="true")),
        ('inner.name="a b"', Inner(name="a b")),
        ('inner.pair=[0, "de"]', Inner(name="y", pair=(0, "de"))),
        ("inner.shares={a=0.5}", Inner(name="y", shares={"a": 0.5})),
    ],
)
def test_typed_values_are_read_as_the_setting_has_them(change, expected):
    assert read(**configs.apply_changes({}, [change])).inner == expected


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"iner": {}}, r"^a\.toml: iner is not known\. Did you mean 'inner'"),
        ({"inner": {"cuont": 1}}, r"^a\.toml: inner\.cuont is not known\. Did you mean 'count'"),
        ({"part": {"num_siez": 1}}, r"^a\.toml: part\.num_siez is not known\. Did you mean 'num_sizes'"),
        ({"part": {"num_sizes": 0}}, r"^a\.toml: part\.num_sizes is 0, expected a whole number above 0"),
        ({"part": {"kind": "fra"}}, r"^a\.toml: part\.kind is 'fra', which is not known\. Did you mean 'far'"),
        ({"inner": {"count": 0}}, r"^a\.toml: inner\.count is 0, expected greater than or equal to 1"),
        ({"inner": {"count": "many"}}, r"^a\.toml: inner\.count is 'many', expected a number, not a text"),
        ({"inner": {"count": "10"}}, r"^a\.toml: inner\.count is '10', expected a number, not a text"),
        (
            {"inner": {"shares": {"a": "0.5"}}},
            r"^a\.toml: inner\.shares is \{'a': '0.5'\}, expected a number, not a text",
        ),
        ({"part": {"num_sizes": "3"}}, r"^a\.toml: part\.num_sizes is '3', expected a number, not a text"),
        ({"inner": {"shares": {"a": float("nan")}}}, r"^a\.toml: inner\.shares .* finite number"),
        ({"word": "three"}, r"^a\.toml: word is 'three', which is not known. Known: one, two"),
        ({"inner": 5}, r"^a\.toml: inner is 5, expected a table"),
        ({"inner": "x" * 999}, r"^a\.toml: inner"),
        ({"inner": {"count": "x" * 999}}, r"^a\.toml: inner\.count is .{99}…, expected "),
    ],
)
def test_a_mistake_names_path_and_origin(tables, message):
    with pytest.raises(ConfigError, match=message):
        read(**tables)


def test_a_file_that_cannot_be_read(tmp_path):
    for name, content in (("a.toml", b"x = "), ("b.toml", b"\xff"), ("c.toml", b"x = " + b"[" * 5000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"{name}: is no TOML"):
            configs.read_toml(tmp_path / name)
    with pytest.raises(ConfigError, match="none.toml: the configuration cannot be read"):
        configs.read_toml(tmp_path / "none.toml")
    for change in ("x", "=3", "a..b=3"):
        with pytest.raises(ConfigError, match="expected a path and a value"):
            configs.apply_changes({}, [change])
    with pytest.raises(ConfigError, match="a.b: a is a value, expected a table"):
        configs.put({"a": 3}, {"a.b": 4})


@given(
    name=st.text(),
    count=st.none() | st.integers(1, 99),
    shares=st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
)
def test_any_configuration_comes_back_from_its_tables_and_its_file(name, count, shares):
    inner = Inner(name=name.encode("utf-8", "replace").decode(), count=count, shares={})
    made = Whole(inner=inner, part=Far(distance=0.25))
    assert build(Whole, to_tables(made), "again") == made
    import tomllib

    written = tomllib.loads(configs.commented_toml(made, "title", {}))
    again = configs.configure(Whole, written, "again")
    assert again.inner.name == inner.name
    assert again.part == made.part
    if count is not None:
        assert again == made


def test_changes_are_listed_by_path():
    before, after = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 1, "y": 5}, "c": 4}
    assert list(configs.changes(before, after)) == [("a.y", 2, 5), ("b", 3, None), ("c", None, 4)]
