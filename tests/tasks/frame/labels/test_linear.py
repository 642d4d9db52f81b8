"""Logistic regression on TF-IDF: scikit-learn as a peer, naive Bayes, character n-grams, files, shares of votes."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from foci.data.word_splitter import WordSplitter
from foci.errors import CheckpointError
from foci.metrics.calibration import fit_share
from foci.tasks.classify.builtin import planted
from foci.tasks.frame.labels import linear
from foci.tasks.frame.labels.linear import BASELINE, VOTER, LinearClassifier, Recipe

TEXTS = [entry.document for entry in planted(300, classes=3, seed=2)]
WORDS, TARGETS = [WordSplitter("unicode").words(one.text) for one in TEXTS], ["abc".index(one.label) for one in TEXTS]


def test_scores_are_those_of_scikit_learn():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear_model = pytest.importorskip("sklearn.linear_model")
    found = LinearClassifier.fit(WORDS[:200], TARGETS[:200], 3)
    vectorizer = text.TfidfVectorizer(
        analyzer=lambda words: [*map(str.lower, words), *(f"{a} {b}".lower() for a, b in itertools.pairwise(words))],
        sublinear_tf=True,
        min_df=2,
    )
    peer = linear_model.LogisticRegression(C=BASELINE.inverse_penalty, max_iter=2000, tol=1e-6)
    peer.fit(vectorizer.fit_transform(WORDS[:200]), TARGETS[:200])
    assert {*found.terms} == {*vectorizer.get_feature_names_out()}
    expected = peer.predict_log_proba(vectorizer.transform(WORDS[200:]))
    scores = found.scores(WORDS[200:])
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert logs == pytest.approx(expected, abs=0.02)
    assert (scores.argmax(axis=1) == np.array(TARGETS[200:])).mean() > 0.6


def right(found, documents, targets):
    return (found.scores(documents).argmax(axis=1) == np.array(targets)).mean()


def test_character_ngrams_decide_where_no_word_occurs_twice():
    chance = np.random.default_rng(0)
    targets = chance.integers(0, 2, 200).tolist()
    affix = {0: "zor", 1: "mip"}
    words = iter({"".join(chance.choice(list("aeioubdfgk"), 9)) for _ in range(2000)})
    texts = [[next(words), "and", next(words)[:4] + affix[target] + next(words)[:4]] for target in targets]
    # Chinese comes in characters; each of them and each pair is as frequent in both classes.
    chinese = [[*"天地玄黄", *("甲乙甲丙" if target else "甲丙甲乙")] for target in targets]
    triples = [[*chance.permutation([*"子丑寅卯"]).tolist(), "，", *document] for document in chinese]
    for documents, least in ((texts, 0.9), (triples, 0.95)):
        voter = LinearClassifier.fit(documents[:150], targets[:150], 2, VOTER)
        assert 0 < voter.characters < len(voter.terms)
        assert right(voter, documents[150:], targets[150:]) >= least
    assert right(LinearClassifier.fit(texts[:150], targets[:150], 2), texts[150:], targets[150:]) < 0.7
    terms = {*voter.terms}
    assert {"\n黄甲乙", "\n乙甲丙 "} <= terms
    assert not any("，" in term and len(term) > 4 for term in terms if term.startswith("\n"))


def test_weights_that_may_not_move_are_those_of_naive_bayes():
    documents, targets = [["a", "b"], ["a", "c", "a"], ["c", "b"], ["d", "c"], ["a", "d"]], [0, 0, 1, 2, 2]
    found = LinearClassifier.fit(documents, targets, 3, Recipe(inverse_penalty=1e-9, least=1, prior=0.5))
    assert {*found.terms} == {"a", "b", "c", "d", "a b", "a c", "c a", "c b", "d c", "a d"}
    logs = []
    for target in range(3):
        texts = [f" {' '.join(words)} " for words, label in zip(documents, targets) if label == target]
        counts = [1 + sum(f" {term} " in text for text in texts) for term in found.terms]
        logs.append([math.log(count / sum(counts)) for count in counts])
    for place, weights in enumerate(found.weights):
        mean = sum(row[place] for row in logs) / 3
        assert weights == pytest.approx([0.5 * (row[place] - mean) for row in logs], abs=1e-5)


def test_large_data_has_no_character_ngrams(monkeypatch):
    for most, few in ((10_000, True), (1_000, False)):
        monkeypatch.setattr(linear, "_MOST_WORDS", most)
        assert bool(LinearClassifier.fit(WORDS[:60], TARGETS[:60], 3, VOTER).characters) == few


def test_files_and_texts_without_known_words():
    found = LinearClassifier.fit(WORDS[:60], TARGETS[:60], 3, VOTER)
    again = LinearClassifier.from_text(found.to_text(), "linear.json")
    assert (again.scores(WORDS[:9]) == found.scores(WORDS[:9])).all()
    assert found.scores([[], ["零"]]) == pytest.approx(np.stack([found.bias, found.bias]))
    assert not LinearClassifier.from_text(LinearClassifier.empty().to_text(), "linear.json")
    for damaged in ("{", "{}", found.to_text().replace('"terms": [', '"terms": ["more", ')):
        with pytest.raises(CheckpointError, match="linear.json: is not what foci wrote"):
            LinearClassifier.from_text(damaged, "linear.json")


def test_words_are_lowered_as_those_of_the_network():
    found = LinearClassifier.fit([["İzmir", "is"], ["izmir", "not"], ["İZMİR"]] * 2, [0, 1, 0] * 2, 2)
    assert "izmir" in found.terms
    assert not any("\u0307" in term for term in found.terms)


def test_no_other_share_fits_better():
    chance = np.random.default_rng(0)
    truth = 2 * chance.normal(size=(400, 4))
    targets = (truth + chance.gumbel(size=truth.shape)).argmax(axis=1)
    first, second = truth + chance.normal(size=truth.shape), 0.3 * truth + 0.1 * chance.normal(size=truth.shape)

    def nats(share):
        losses = []
        for temperature in np.geomspace(0.2, 20, 120):
            scores = ((1 - share) * first + share * second) / temperature
            losses.append((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(400), targets]).sum())
        return min(losses)

    found = fit_share(first, second, targets)
    assert nats(found) <= min(nats(share) for share in np.linspace(0, 1, 60)) + 0.5
    assert fit_share(first, -second, targets) == 0


def test_memory_does_not_grow_with_the_steps_for_many_classes():
    code = """
import resource
import numpy as np
from foci.tasks.frame.labels.linear import LinearClassifier

chance = np.random.default_rng(0)
documents = [[f"w{number}" for number in chance.integers(0, 2000, 30)] for _ in range(600)]
targets = chance.integers(0, 300, 600).tolist()
LinearClassifier.fit(documents[:20], [target % 2 for target in targets[:20]], 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = LinearClassifier.fit(documents, targets, 300)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (8 * found.weights.size))
"""
    pytest.importorskip("resource")
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(made.stdout) < 50  # copies of the weights in double precision
