"""`foci.probe` of trained runs: every task whose words can be erased, and clear errors of all others."""

import numpy as np
import pytest
import torch

import foci
from foci.errors import ConfigError, FociError
from foci.probing.subject import Erasing
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.probing.runs import subjects_of_run, traces_with_relevance
from foci.tasks.frame.task import find

FEW = {"permutations": 1, "steps": 2, "trials": 3}
TWO_WAY = {"model.kind": "conditional", "model.attention": "two_way"}
RUNS = {"classify": {}, "entail": TWO_WAY, "translate": {}, "summarize": {}}


def trained(name, folder, **changes):
    task = find(name)
    tables = configs.put(task.Config.smallest, {"training.max_steps": 3, "training.eval_every": 3, **changes})
    foci.train(name, tables, out=folder, log=lambda text: None)
    return foci.load(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    made = {}

    def run(name):
        if name not in made:
            made[name] = trained(name, tmp_path_factory.mktemp("probe") / name, **RUNS[name])
        return made[name]

    return run


def inputs_of(run):
    return run.task.examples(run.held_out(), 2)


@pytest.mark.parametrize("name", ["classify", "entail", "translate"])
def test_attentions_of_a_run_are_probed(runs, name):
    run = runs(name)
    found = foci.probe(run, inputs_of(run), **FEW)
    assert found.inputs == 2
    for row in found.rows:
        assert {"comprehensiveness", "sufficiency", "tau"} <= {*row.measures}
        assert all(np.isfinite(one.value) for one in row.measures.values())
        assert row.words()
    assert any("uniform" in row.measures for row in found.rows)


def test_the_answer_that_is_probed_is_that_of_the_run(runs):
    for name in ("classify", "entail"):
        run = runs(name)
        given = inputs_of(run)[0]
        (subject,) = subjects_of_run(run, [given])
        key = next(iter(subject.sources))
        prediction = run.predict([given])[0]
        with torch.no_grad():
            answer = Erasing(subject, key, 4).before[0].tolist()
        if run.task.mixture.get("linear", 0) == 0:
            assert answer == pytest.approx([*prediction.details["probabilities"].values()], abs=1e-4)


def test_a_translation_is_probed_token_by_token(runs):
    run = runs("translate")
    (subject,) = subjects_of_run(run, inputs_of(run)[:1])
    with torch.no_grad():
        answer = subject.answer(2)
    assert answer.dim() == 3
    assert answer.sum(dim=-1) == pytest.approx(torch.ones(answer.shape[:2]), abs=1e-4)
    assert {one.source for one in subject.attentions.values()} == {"source"}
    assert any(name.endswith("cross") and one.paths for name, one in subject.attentions.items())


def test_relevance_fits_the_weights_it_stands_beside(runs):
    (trace,) = traces_with_relevance(runs("classify"), ["one two three. four five six seven."], "gradient")
    for one in trace.attentions.values():  # a document's words are weighed by sentence, in maps of other shapes
        assert all(extra.shape == one.shape[1:] for extra in one.extras.values())


def test_what_people_marked_is_found_in_the_text(runs):
    run = runs("classify")
    text = inputs_of(run)[0]["text"]
    word = text.split()[3]
    begin = text.index(word)
    (subject,) = subjects_of_run(run, [{"text": text, "rationales": [[begin, begin + len(word)]]}])
    source = subject.sources["document"]
    assert [source.tokens[place] for place in source.gold] == [word]
    found = foci.probe(run, [{"text": text, "rationales": [[begin, begin + len(word)]]}], **FEW)
    assert found["words"].chance["auprc"] == pytest.approx(1 / len(source.tokens))


def test_rationales_of_a_wrong_form_are_refused(runs):
    run = runs("classify")
    for wrong in ([3, 4], [[1, 2, 3]], ["ab c"], [[4, 700]], [[-3, 2]], [[5, 4]], [[0.0, 1.0]]):
        with pytest.raises(ConfigError, match=r"expected \[\[begin, end\], …\] in characters"):
            foci.probe(run, [{"text": "one two three", "rationales": wrong}], **FEW)


@pytest.mark.parametrize("name", sorted({*TASKS} - {*RUNS}))
def test_other_tasks_say_that_they_cannot_be_probed(name):
    task = find(name)
    with pytest.raises(ConfigError, match=f"inputs of {name} are not read word by word"):
        task.traced_pass(object.__new__(task), torch.nn.Linear(1, 1), None, {})


def test_options_and_arguments_without_effect_are_refused(runs):
    run = runs("classify")
    with pytest.raises(FociError, match="trails.*trials"):
        foci.probe(run, ["a b"], trails=3)
    with pytest.raises(ConfigError, match="a run knows its answers"):
        foci.probe(run, ["a b"], causal=True)
    with pytest.raises(ConfigError, match="entry 1 is empty"):
        foci.probe(run, ["a b c", " "], **FEW)
    with pytest.raises(ConfigError, match="model is a str"):
        foci.probe("runs/x", ["a"])
