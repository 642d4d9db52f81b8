"""TF-IDF with logistic regression: scikit-learn as a peer, files, and the share of its vote."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from foci.data.word_splitter import WordSplitter
from foci.errors import CheckpointError
from foci.metrics.calibration import fit_share
from foci.tasks.classify.builtin import planted
from foci.tasks.frame.labels.linear import INVERSE_PENALTY, LinearClassifier

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
    peer = linear_model.LogisticRegression(C=INVERSE_PENALTY, max_iter=2000, tol=1e-6)
    peer.fit(vectorizer.fit_transform(WORDS[:200]), TARGETS[:200])
    assert {*found.terms} == {*vectorizer.get_feature_names_out()}
    expected = peer.predict_log_proba(vectorizer.transform(WORDS[200:]))
    scores = found.scores(WORDS[200:])
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert logs == pytest.approx(expected, abs=0.02)
    assert (scores.argmax(axis=1) == np.array(TARGETS[200:])).mean() > 0.6


def test_files_and_texts_without_known_words():
    found = LinearClassifier.fit(WORDS[:60], TARGETS[:60], 3)
    again = LinearClassifier.from_text(found.to_text(), "linear.json")
    assert (again.scores(WORDS[:9]) == found.scores(WORDS[:9])).all()
    assert found.scores([[], ["never"]]) == pytest.approx(np.stack([found.bias, found.bias]))
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
