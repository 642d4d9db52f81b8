"""What evaluations compare with: counted by loops from the training data, kept in the run, and missing in old ones."""

from collections import Counter

import pytest

import foci
from foci.data.splits import text_key
from foci.errors import CheckpointError
from foci.tasks.frame import baselines
from foci.tasks.frame.task import find
from foci.tasks.tag.metrics import Gold
from foci.tasks.tag.schemes import to_spans

SILENT = {"log": lambda text: None}


@pytest.fixture
def trained(request, tmp_path):
    foci.train(request.param, find(request.param).Config.smallest, out=tmp_path / "run", **SILENT)
    return foci.load(tmp_path / "run")


def first(counts):
    """The most frequent one; of equally frequent ones the first by its letters."""
    return min(counts, key=lambda name: (-counts[name], name))


@pytest.mark.parametrize("trained", ["classify", "classify_images", "entail", "vqa"], indirect=True)
def test_the_most_frequent_label_is_compared_with(trained):
    splits, name = trained.task.read(lambda text: None), trained.task.targets[0].name
    counts = Counter(getattr(one, name) for one in splits.train)
    records = trained.held_out()
    evaluation = trained.evaluate(records)
    right = [record[name] == first(counts) for record in records]
    assert evaluation.metrics["majority"] == pytest.approx(sum(right) / len(right))
    if trained.task.name == "vqa":
        answers = {}
        for one in splits.train:
            answers.setdefault(text_key(one.question), Counter())[one.answer] += 1
        blind = [first(answers.get(text_key(one["question"]), counts)) == one["answer"] for one in records]
        assert evaluation.metrics["question_majority"] == pytest.approx(sum(blind) / len(blind))
    (trained.path / baselines.FILE).unlink()
    if trained.task.name != "entail":  # which has counted its own
        assert first(counts) in evaluation.notes["baselines"]
        assert "majority" not in foci.load(trained.path).evaluate(records).metrics


@pytest.mark.parametrize("trained", ["tag"], indirect=True)
def test_the_most_frequent_tag_of_each_word_is_compared_with(trained):
    scheme, counts, overall = trained.assets.scheme, {}, Counter()
    for one in trained.task.read(lambda text: None).train:
        for word, tag in zip(one.tokens, Gold.from_sentence(one, scheme).tags):
            counts.setdefault(word, Counter())[tag] += 1
            overall[tag] += 1
    records, right, total, hits, spans = trained.held_out(), 0, 0, 0, 0
    for number, record in enumerate(records):
        sentence = trained.task._sentence(record, number)
        gold = Gold.from_sentence(sentence, scheme)
        tags = [first(counts.get(word, overall)) for word in sentence.tokens]
        right, total = right + sum(map(str.__eq__, tags, gold.tags)), total + len(tags)
        found = {*to_spans(tags, scheme).spans}
        hits, spans = hits + len(found & {*gold.spans}), spans + len(found) + len(gold.spans)
    metrics = trained.evaluate(records).metrics
    assert metrics["majority_accuracy"] == pytest.approx(right / total)
    assert metrics["majority_f1"] == pytest.approx(2 * hits / spans)


def test_a_damaged_file_is_named(tmp_path):
    for text in ("[]", "{", '{"tag": 3}', '{"words": {"a": 3}}', '{"words": "a"}'):
        (tmp_path / baselines.FILE).write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"baselines.json: .* Restore the file, or remove it"):
            baselines.read(tmp_path, find("tag").baseline_types)
