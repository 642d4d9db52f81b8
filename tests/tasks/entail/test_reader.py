"""Pairs from the files of common data sets, every mistake in them, and what the built-in pairs give away."""

import gzip
import json
from collections import Counter

import pytest

from foci.data.splits import pair_key
from foci.data.word_splitter import WordSplitter
from foci.errors import ConfigError, DataError, UnknownNameError
from foci.tasks.entail.builtin import _SLOTS, LABELS, hypernym_pairs
from foci.tasks.entail.config import EntailConfig
from foci.tasks.entail.reader import SentencePair, read_entailment
from foci.tasks.entail.task import Entail
from foci.tasks.frame.config import configure

PAIRS = [SentencePair("A man sleeps.", "A person sleeps.", "entailment"), SentencePair("狗在跑", "猫在跑", "neutral")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_the_files_of_snli_sick_and_ocnli(tmp_path):
    snli = "gold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1\n"
    snli += "".join(f"{pair.label}\t( x )\t{pair.premise}\t{pair.hypothesis}\tx\n" for pair in PAIRS)
    snli += "-\t( x )\tOne.\tTwo.\tneutral\n"
    found = read_entailment(write(tmp_path / "snli_1.0_dev.txt", snli))
    assert found.splits == {"": PAIRS}
    assert found.unlabeled == 1

    objects = [{"gold_label": pair.label, "sentence1": pair.premise, "sentence2": pair.hypothesis} for pair in PAIRS]
    text = "".join(json.dumps(one) + "\n" for one in [*objects, {**objects[0], "gold_label": "-"}])
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert read_entailment(tmp_path / "a.jsonl.gz") == found

    sick = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set\r\n"
    for split in ("TRAIN", "TRIAL", "TEST"):
        sick += f"1\t{split} a\tb\tNEUTRAL\t4.5\t{split}\r\n"
    splits = read_entailment(write(tmp_path / "SICK.txt", sick)).splits
    assert {name: [pair.premise for pair in pairs] for name, pairs in splits.items()} == {
        "train": ["TRAIN a"],
        "valid": ["TRIAL a"],
        "test": ["TEST a"],
    }

    ocnli = {"level": "easy", "sentence1": "狗在跑", "sentence2": "猫在跑", "label": "neutral", "label0": "neutral"}
    assert read_entailment(write(tmp_path / "o.json", json.dumps(ocnli))).splits == {"": PAIRS[1:]}


def test_columns_by_number_and_other_names_for_labels(tmp_path):
    path = write(tmp_path / "a.tsv", '0\tit said "no\tx\n1\tb\ty\n')
    found = read_entailment(path, columns=(1, 2, 0), names={"0": "entailment"}).splits[""]
    assert found == [SentencePair('it said "no', "x", "entailment"), SentencePair("b", "y", "1")]
    path = write(tmp_path / "a.csv", 'p,h,l\n"a, b",c,d\n')
    assert read_entailment(path, columns=("p", "h", "l")).splits[""] == [SentencePair("a, b", "c", "d")]
    with pytest.raises(ConfigError, match=r"columns 1 and .*expected three different names or numbers"):
        read_entailment(path, columns=(1, "h", "l"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "premise\thypothesis\tlabl\na\tb\tc\n", r"line 1: no column 'label' or 'gold_label'.* mean 'labl'"),
        ("a.tsv", "premise\thypothesis\tlabel\na\t \tc\n", "line 2: the hypothesis is empty"),
        ("a.tsv", "premise\thypothesis\tlabel\na\tb\n", r"line 2: no column 2 \(from 0\): the line has 2"),
        ("a.tsv", "premise\thypothesis\tlabel\n-\t-\t-\n", "line 1: all 1 rows have the label '-'"),
        ("a.tsv", "premise\thypothesis\tlabel\tSemEval_set\na\tb\tc\tmine\n", "SemEval_set is 'mine', expected one of"),
        ("a.jsonl", '{"premise": 3, "hypothesis": "b", "label": 1}\n', "field 'premise' is a int, expected a text"),
        (
            "a.jsonl",
            '{"premise": "a", "hypothesis": "b", "label": null}\n',
            "is a NoneType, expected a text or",
        ),
        ("a.jsonl", '{"premise": "a", "hypothesis": "b"}\n', "line 1: no field 'label' or"),
        ("a.csv", 'premise,hypothesis,label\n"a,b,c\n', "cannot be read further"),
        ("a.tsv", "", "line 1: no pairs, the file is empty"),
    ],
)
def test_faults_are_named_with_file_and_line(name, text, message, tmp_path):
    with pytest.raises(DataError, match=message) as caught:
        read_entailment(write(tmp_path / name, text))
    assert str(tmp_path / name) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_entailment(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"expected \.tsv"):
        read_entailment(write(tmp_path / "a.xml", "x"))


def split_pairs(pairs, seed):
    task = Entail(
        configure(
            EntailConfig, {"data": {"path": "given", "valid_share": 0.1, "test_share": 0.2, "split_seed": seed}}, "test"
        )
    )
    return task.split(pairs, lambda text: None)


def test_all_pairs_of_a_premise_are_in_one_split():
    pairs = [SentencePair(f"premise  {number // 3}", f"h {number}", "x") for number in range(90)]
    splits = split_pairs(pairs, seed=0)
    assert all(splits)
    assert sum(map(len, splits)) == 90
    premises = [{pair.premise for pair in split} for split in splits]
    assert not premises[0] & premises[1] | premises[0] & premises[2] | premises[1] & premises[2]
    assert split_pairs(pairs, seed=1) != splits


def test_a_pair_and_its_swap_are_on_one_side():
    pairs = [SentencePair(f"Premise {number}.", f"hypothesis {number}", "x") for number in range(90)]
    swaps = [SentencePair(pair.hypothesis.upper(), pair.premise, "y") for pair in pairs]
    train, valid, test = ({pair_key(*pair[:2]) for pair in part} for part in split_pairs([*pairs, *swaps], seed=0))
    assert not train & valid | train & test | valid & test
    assert len(train | valid | test) == 90


# ---- built-in pairs


def table_accuracy(feature, pairs, held_out):
    """The accuracy of the best guess from one feature, counted in the training pairs."""
    counts = {}
    for pair in pairs:
        counts.setdefault(feature(pair), Counter())[pair.label] += 1
    most = {value: max(sorted(count), key=count.__getitem__) for value, count in counts.items()}
    return sum(most.get(feature(pair)) == pair.label for pair in held_out) / len(held_out)


def overlap(pair):
    """How many words of the hypothesis the premise has, and how many each has."""
    premise, hypothesis = ([word.lower() for word in WordSplitter("unicode").words(text)] for text in pair[:2])
    return sum(word in premise for word in hypothesis), len(hypothesis), len(premise)


@pytest.mark.parametrize(("language", "most"), [("en", 0.40), ("zh", 0.45)])
def test_overlap_alone_does_not_decide(language, most):
    train = hypernym_pairs(6000, language=language)
    test = hypernym_pairs(1500, language=language, split="test")
    assert table_accuracy(overlap, train, test) < most
    assert table_accuracy(lambda pair: len(pair.premise) - len(pair.hypothesis), train, test) < 0.5


def test_no_word_of_the_hypothesis_tells_the_label():
    train, test = hypernym_pairs(6000), hypernym_pairs(1500, split="test")
    bayes = Counter(
        (word, pair.label) for pair in train for word in {*WordSplitter("unicode").words(pair.hypothesis.lower())}
    )
    totals = Counter(word for word, _ in bayes.elements())
    for word, total in totals.items():
        shares = [bayes[word, label] / total for label in LABELS]
        assert max(shares) < 1 / 3 + 4 * (2 / 9 / total) ** 0.5, word  # four standard deviations of chance
    assert table_accuracy(lambda pair: pair.hypothesis, train, test) < 0.4


def relation(before, after):
    """How a word of the premise and the one in its place are related, by the lexicon alone."""
    kinds = {}
    for entries in _SLOTS:
        for entry in entries:
            kinds.setdefault(entry.general[0], set()).add(entry.name[0])
            kinds[entry.name[0]] = {kind[0] for kind in entry.kinds}
    below = {word: some | {one for kind in some for one in kinds.get(kind, ())} for word, some in kinds.items()}
    if before == after or before in below.get(after, ()):
        return "entailment"
    return "neutral" if after in below.get(before, ()) else "contradiction"


def test_labels_follow_from_the_lexicon():
    nouns = {word for entries in _SLOTS for one in entries for word in (one.general[0], one.name[0])}
    nouns |= {kind[0] for entries in _SLOTS for entry in entries for kind in entry.kinds}
    pairs = hypernym_pairs(600)
    assert Counter(pair.label for pair in pairs) == dict.fromkeys(LABELS, 200)
    for pair in pairs:
        sides = [[word for word in WordSplitter("unicode").words(text.lower()) if word in nouns] for text in pair[:2]]
        assert [len(side) for side in sides] == [3, 3]
        relations = [relation(*words) for words in zip(*sides)]
        strongest = max(relations, key=["entailment", "neutral", "contradiction"].index)
        assert strongest == pair.label, pair
        assert 1 <= sum(before != after for before, after in zip(*sides)) <= 2


def test_built_in_pairs_are_reproducible_and_splits_are_disjoint():
    pairs = hypernym_pairs(300)
    assert pairs == hypernym_pairs(300) != hypernym_pairs(300, seed=1)
    held_out = {pair.premise for split in ("valid", "test") for pair in hypernym_pairs(300, split=split)}
    assert not held_out & {pair.premise for pair in hypernym_pairs(6000)}
    assert any("狗" in pair.premise for pair in hypernym_pairs(50, language="zh"))
    with pytest.raises(UnknownNameError, match="en, zh"):
        hypernym_pairs(3, language="de")
