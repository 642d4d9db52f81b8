"""Readers: pairs from every format, and each fault with its file and line."""

import gzip
import json
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real

from foci.data.pairs import AlignedFiles, Pair, TableFile, check, open_corpus, read_pairs
from foci.errors import ConfigError, DataError

PAIRS = [Pair("one house", "ein Haus"), Pair("two\u2028lines, no", "两座房子\u0085"), Pair("three", "drei Häuser")]
PAIRS = [Pair(*(side.strip() for side in pair)) for pair in PAIRS]
OPEN = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def write(path, content):
    with OPEN[path.suffix if path.suffix in OPEN else ""](path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def write_pairs(folder, pairs=PAIRS, packing=""):
    source = write(folder / f"a.en{packing}", "".join(f"{pair.source}\n" for pair in pairs))
    return source, write(folder / f"a.de{packing}", "".join(f"{pair.target}\n" for pair in pairs))


@pytest.mark.parametrize("packing", OPEN)
def test_every_format_gives_the_pairs_again_and_again(tmp_path, packing):
    tsv = "".join(f"{pair.source}\t{pair.target}\tlicense\n" for pair in PAIRS)
    jsonl = "".join(json.dumps({"t": {"en": pair.source, "de": pair.target}}) + "\n" for pair in PAIRS)
    named = "id\tde\ten\n" + "".join(f"7\t{pair.target}\t{pair.source}\n" for pair in PAIRS)
    corpora = [
        AlignedFiles(*write_pairs(tmp_path, packing=packing)),
        TableFile(write(tmp_path / f"a.tsv{packing}", tsv)),
        TableFile(write(tmp_path / f"b.tsv{packing}", named), ("en", "de")),
        TableFile(write(tmp_path / f"a.jsonl{packing}", jsonl), ("t.en", "t.de")),
        open_corpus(tmp_path / f"a.tsv{packing}"),
        open_corpus(tmp_path / f"a.jsonl{packing}", columns=("t.en", "t.de")),
        open_corpus(tmp_path / f"a.en{packing}", tmp_path / f"a.de{packing}"),
    ]
    for corpus in corpora:
        assert list(corpus) == PAIRS
        assert list(corpus) == PAIRS
        assert check(corpus) == 3


def test_windows_line_ends_a_byte_order_mark_and_no_last_line_end(tmp_path):
    source = write(tmp_path / "a", b"\xef\xbb\xbf one \r\ntwo")
    target = write(tmp_path / "b", b"eins\r\nzwei\n")
    assert list(AlignedFiles(source, target)) == [Pair("one", "eins"), Pair("two", "zwei")]


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1).filter(
    lambda line: line.strip() and not line.startswith("\ufeff")
)


@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=5))
def test_any_lines_come_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("lines")
    expected = [Pair(source.strip(), target.strip()) for source, target in pairs]
    assert list(AlignedFiles(*write_pairs(folder, [Pair(*pair) for pair in pairs]))) == expected
    written = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
    assert list(TableFile(write(folder / "a.jsonl", written))) == expected


def faults(corpus):
    """The error while iterating and the error of the check, which begins with the same words."""
    with pytest.raises(DataError) as stopped:
        list(corpus)
    with pytest.raises(DataError) as checked:
        check(corpus)
    assert str(checked.value).startswith(str(stopped.value))
    return str(checked.value)


@pytest.mark.parametrize(("longer", "shorter"), [("a", "b"), ("b", "a")])
def test_misaligned_files(tmp_path, longer, shorter):
    files = {longer: write(tmp_path / longer, "1\n2\n3\n4\n5\n"), shorter: write(tmp_path / shorter, "1\n2\n")}
    assert faults(AlignedFiles(files["a"], files["b"])) == (
        f"{files[longer]}, line 3: no such line in {files[shorter]}: it has 2 lines, {longer} has 5. Line n of one "
        "file must translate line n of the other.\n1 fault beside 2 good pairs: 1 × line without a "
        "partner. Correct or remove these lines."
    )


def test_the_check_finds_all_faults_and_names_the_first(tmp_path):
    source = write(tmp_path / "a", b"1\n2\n\n4\n5\xff\n6\n7\n")
    target = write(tmp_path / "b", b"1\n \t\n3\n" + b"x" * 500 + b"\n5\n\xc3\n7\n")
    assert faults(AlignedFiles(source, target, max_characters=100)) == (
        f"{target}, line 2: the target is empty.\n5 faults beside 2 good pairs: 2 × empty side, 2 × undecodable bytes, "
        "1 × over-long line. Correct or remove these lines."
    )


def test_undecodable_bytes(tmp_path):
    path = write(tmp_path / "a.tsv", b"a\tb\ncaf\xe9\tx\n")
    assert f"{path}, line 2: byte 4 of the line is not UTF-8. As cp1251" in faults(TableFile(path))
    assert "as cp1252 it reads 'café\\tx'. Set data.encoding to the encoding of the file." in faults(TableFile(path))


@pytest.mark.parametrize("length", [11, 41, 42, 43, 44, 83, 84, 85, 1000])
def test_over_long_lines_are_skipped_whole(tmp_path, length):
    path = write(tmp_path / "a.tsv", "a\tb\n" + "x" * length + "\nc\td\n")
    corpus = TableFile(path, max_characters=10)
    assert f"{path}, line 2: longer than 10 characters." in faults(corpus)
    first, fault, last = corpus.entries()
    assert (first, last) == (Pair("a", "b"), Pair("c", "d"))
    assert fault.line == 2


def test_lines_of_just_the_allowed_length(tmp_path):
    assert list(TableFile(write(tmp_path / "a.tsv", "😀😀\t😀😀\r\n"), max_characters=5)) == [Pair("😀😀", "😀😀")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "target"', "line 2: not a JSON object (Expecting"),
        ("", "line 2: the line is empty, expected a JSON object. Remove the line."),
        ("[", "line 2: not a JSON object (Expecting value"),
        ("[1]", "line 2: a JSON list, expected an object."),
        ('{"source": "a", "targt": "b"}', "line 2: no field 'target'. Did you mean 'targt'"),
        ('{"x": "a"}', "line 2: no field 'source'. Known: x."),
        ('{"source": "a", "target": 5}', "line 2: field 'target' is a int, expected a text."),
        ('{"source": "\\ud800", "target": "b"}', "line 2: field 'source' holds half of a surrogate pair"),
        ('{"source": "a", "target": " "}', "line 2: field 'target' is empty."),
    ],
)
def test_faults_of_json(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    assert f"{path}, {message}" in faults(TableFile(path))


def test_faults_of_columns(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\nc\n")
    assert f"{path}, line 2: no column 1 (from 0): the line has 1, separated by tabs." in faults(TableFile(path))
    assert f"{path}, line 1: no column 'C' in the first line. Known: a, b." in faults(TableFile(path, ("a", "C")))
    path = write(tmp_path / "b.tsv", "a\tb\nc\td\te\n")
    assert f"{path}, line 2: the row has 3 cells, but the first line has 2." in faults(TableFile(path))
    path = write(tmp_path / "c.tsv", "Source\ttarget\nc\td\n")
    seems = f"{path}, line 1: the line seems to hold the names of columns"
    assert seems in faults(TableFile(path, (0, 1)))
    assert list(TableFile(path)) == [Pair("c", "d")]
    assert list(TableFile(path, ("Source", "target"))) == [Pair("c", "d")]


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_a_damaged_archive(tmp_path, packing):
    path = write(tmp_path / f"a.tsv{packing}", "".join(f"{n * n} x\t{n**7 % 977}\n" for n in range(3000)))
    path.write_bytes(path.read_bytes()[:-200])
    assert "the compressed file is damaged from here on" in faults(TableFile(path))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match=r"none.tsv: cannot be opened \(No such file or directory\)"):
        check(TableFile(tmp_path / "none.tsv"))
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(DataError, match=r"cannot be opened \(Is a directory\)"):
        check(TableFile(tmp_path / "folder.tsv"))
    with pytest.raises(DataError, match="no sentence pairs, the file is empty"):
        check(TableFile(write(tmp_path / "empty.tsv", "")))


def test_wrong_options(tmp_path):
    with pytest.raises(ConfigError, match="columns 0 and 'de', expected two different names or numbers"):
        TableFile("a.tsv", (0, "de"))
    with pytest.raises(ConfigError, match="columns 1 and 1, expected two different names or numbers"):
        TableFile("a.tsv", (1, 1))
    with pytest.raises(ConfigError, match="columns 0 and -1, expected two different names or numbers from 0"):
        TableFile("a.tsv", (0, -1))
    with pytest.raises(ConfigError, match="max_characters is 0, expected a number above 0"):
        AlignedFiles(tmp_path, tmp_path, max_characters=0)
    with pytest.raises(ConfigError, match=r"a.en: expected a .tsv, .* .csv or .jsonl file .*, or a second file"):
        open_corpus(write(tmp_path / "a.en", "a"))
    with pytest.raises(ConfigError, match="two aligned files have no columns"):
        open_corpus("a.en", "a.de", columns=(0, 1))


def test_multi30k():
    folder = real("multi30k")
    assert check(AlignedFiles(folder / "val.en.gz", folder / "val.de.gz")) == 1014
    with pytest.raises(DataError, match=r"line 1001: no such line in .*test_2016_flickr.de.gz: it has 1000 lines"):
        check(AlignedFiles(folder / "val.en.gz", folder / "test_2016_flickr.de.gz"))


def test_tatoeba():
    path = real("tatoeba-cmn-eng/cmn.txt.xz")
    assert next(iter(open_corpus(path))) == Pair("Hi.", "嗨。")
    assert check(open_corpus(path)) == 28447


NAMED = {
    "a.csv": 'en,zh\n"yes, sir",是的\nno,不\n',
    "b.csv": 'id,zh-CN,en\n1,是的,"yes, sir"\n2,不,no\n',
    "c.tsv": "src\ttgt\nyes, sir\t是的\nno\t不\n",
    "d.csv": '"yes, sir",是的\nno,不\n',
    "e.jsonl": '{"translation": {"en": "yes, sir", "zh": "是的"}}\n{"translation": {"zh": "不", "en": "no"}}\n',
    "f.jsonl": '{"en": "yes, sir", "zh": "是的"}\n{"en": "no", "zh": "不"}\n',
    "g.jsonl": '{"translation": {"x": "yes, sir", "y": "是的"}}\n{"translation": {"x": "no", "y": "不"}}\n',
    "h.jsonl": '{"id": "1", "source": "yes, sir", "target": "是的"}\n{"id": "2", "source": "no", "target": "不"}\n',
}


@pytest.mark.parametrize("name", NAMED)
def test_sides_are_found_by_the_names_in_the_first_line(tmp_path, name):
    path = write(tmp_path / name, NAMED[name])
    said = []
    pairs = read_pairs(open_corpus(path), said.append)
    if name == "b.csv":
        pairs = [Pair(target, source) for source, target in pairs]
    assert pairs == [Pair("yes, sir", "是的"), Pair("no", "不")]
    expected = {"a": ("en", "zh"), "b": ("zh-CN", "en"), "c": ("src", "tgt"), "e": ("translation.en", "translation.zh")}
    if name[0] in expected:
        source, target = expected[name[0]]
        assert said == [f"{path}: the source is {source!r}, the target {target!r}; data.columns names others"]
    swapped = {"a.csv": ("zh", "en"), "e.jsonl": ("translation.zh", "translation.en"), "f.jsonl": ("zh", "en")}
    if name in swapped:
        assert read_pairs(open_corpus(path, columns=swapped[name])) == [Pair("是的", "yes, sir"), Pair("不", "no")]


def test_names_that_leave_the_sides_open_are_errors(tmp_path):
    three = write(tmp_path / "a.jsonl", '{"en": "a", "de": "b", "zh": "c"}\n')
    with pytest.raises(DataError, match="no field 'source'"):
        read_pairs(open_corpus(three))
    header = write(tmp_path / "a.csv", "en,de,zh\na,b,c\n")
    with pytest.raises(DataError, match="the line seems to hold the names of columns. Name the columns"):
        read_pairs(open_corpus(header))


def test_a_missing_field_names_those_of_inner_objects(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"translation": {"en": "one", "de": "eins", "fr": "un"}}\n')
    with pytest.raises(DataError, match=r"no field 'de'\..*translation\.de"):
        read_pairs(TableFile(path, ("de", "en")))
    assert read_pairs(TableFile(path, ("translation.de", "translation.en"))) == [Pair("eins", "one")]
