"""`foci.probe` of trained runs: every task whose words can be erased, and clear errors of all others."""

import numpy as np
import pytest
import torch

import foci
from foci.errors import ConfigError, FociError
from foci.functional import crf
from foci.probing.subject import Erasing
from foci.recording import record
from foci.tasks.frame import config as configs
from foci.tasks.frame.labels.task import LabelTask
from foci.tasks.frame.probing.runs import subjects_of_run, traces_with_relevance
from foci.tasks.frame.task import find
from foci.tasks.tag.batches import TagExamples

FEW = {"permutations": 1, "steps": 2, "trials": 3}
TWO_WAY = {"model.kind": "conditional", "model.attention": "two_way"}
RUNS = {"classify": {}, "entail": TWO_WAY, "translate": {}}
OTHERS = ("tag", "cloze", "generate", "classify_images", "vqa", "caption", "transcribe")


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
            made[name] = trained(name, tmp_path_factory.mktemp("probe") / name, **RUNS.get(name, {}))
        return made[name]

    return run


def inputs_of(run):
    return run.task.examples(run.held_out(), 2)


@pytest.mark.parametrize("name", [*RUNS, *OTHERS])
def test_attentions_of_a_run_are_probed(runs, name):
    run = runs(name)
    found = foci.probe(run, inputs_of(run), **FEW)
    assert found.inputs == 2
    for row in found.rows:
        assert {"comprehensiveness", "sufficiency", "tau"} <= {*row.measures}
        assert all(np.isfinite(one.value) for one in row.measures.values())
        assert row.words()
    if name != "classify_images":  # its maps are not made of weights and values
        assert any("uniform" in row.measures for row in found.rows)


def erasing_of(run, key, given=None):
    """An input as what can be erased, and the pass over it."""
    given = given or inputs_of(run)[0]
    (subject,) = subjects_of_run(run, [given])
    with torch.no_grad():
        one = run.task.traced_pass(run.model, run.assets, run.task.normal(given))
    return Erasing(subject, key, 4), one


def expected_changes(before, afters):
    """The changes of an answer of one or several tokens, as a loop."""
    before = before.reshape(-1, before.shape[-1]).double()
    for after in afters:
        after = after.reshape(before.shape).double()
        probability = np.mean([float(after[row, int(one.argmax())]) for row, one in enumerate(before)])
        yield probability, np.mean([float((after[row] - one).abs().sum() / 2) for row, one in enumerate(before)])


def check(erasing, sets, answer):
    """Compare with ``answer(set)``, computed by hand."""
    with torch.no_grad():
        expected = expected_changes(answer(()), [answer(gone) for gone in sets])
        for found, (probability, distance) in zip(erasing.changes(sets), expected, strict=True):
            assert found.probability == pytest.approx(probability, abs=1e-5)
            assert found.distance == pytest.approx(distance, abs=1e-5)
    assert max(one.distance for one in erasing.changes(sets)) > 1e-5  # erasing does something


def without_regions(pixels, grid, gone):
    """The image with the mean color in some regions, pixel by pixel."""
    numbers = pixels.float() / 127.5 - 1
    erased, (_, _, height, width) = numbers.clone(), numbers.shape
    for row in range(height):
        for column in range(width):
            if (row * grid[0] // height) * grid[1] + column * grid[1] // width in gone:
                erased[0, :, row, column] = numbers[0].mean(dim=(1, 2))
    return erased


def test_regions_of_a_classified_image_are_erased_as_by_hand(runs):
    run = runs("classify_images")
    erasing, one = erasing_of(run, "image")
    pixels = torch.from_numpy(one.trace.axes["image"].image.copy()).permute(2, 0, 1).unsqueeze(0)
    grid = one.trace.axes["image"].grid

    def answer(gone):
        return (run.model(without_regions(pixels, grid, gone)).logits / run.task.temperature()).softmax(dim=-1)

    check(erasing, [(0,), (3, 5, 6), tuple(range(len(one.trace.axes["image"])))], answer)
    assert {name for name in erasing.subject.attentions if name.endswith("places")}
    assert any("channels of block 0" in note for note in erasing.subject.notes)


def test_regions_and_words_of_a_question_are_erased_as_by_hand(runs):
    run = runs("vqa")
    erasing, one = erasing_of(run, "image")
    pixels = torch.from_numpy(one.trace.axes["image"].image.copy()).permute(2, 0, 1).unsqueeze(0)
    grid, words = one.trace.axes["image"].grid, one.inputs[1]

    def answer(gone):
        return (run.model(without_regions(pixels, grid, gone), words).logits / run.task.temperature()).softmax(dim=-1)

    check(erasing, [(0, 1), (2, 5)], answer)
    assert [*erasing.subject.attentions] == ["hop 1", "hop 2"]
    assert [one.paths for one in erasing.subject.attentions.values()] == [("hops.0",), ("hops.1",)]
    assert len(erasing.subject.sources["question"].tokens) == words.shape[1]


def test_regions_of_a_caption_are_erased_as_by_hand(runs):
    run = runs("caption")
    erasing, one = erasing_of(run, "image")
    pixels = torch.from_numpy(one.trace.axes["image"].image.copy()).permute(2, 0, 1).unsqueeze(0)
    grid, words = one.trace.axes["image"].grid, one.inputs[2]
    assert words.shape[1] == len(one.trace.axes["words"])

    def answer(gone):
        return run.model(without_regions(pixels, grid, gone), None, words).logits.softmax(dim=-1)

    check(erasing, [(0,), (1, 4, 9)], answer)


def test_words_of_a_tagged_sentence_are_erased_with_their_letters(runs):
    run = runs("tag")
    erasing, one = erasing_of(run, "words")
    vectors = run.model.embed(*_words_of(run, one.trace.axes["words"].labels))
    known = run.model.embed(*_words_of(run, run.assets.vocabulary.words[: run.assets.trained - 1]))
    neutral = known.mean(dim=1)[0]

    def answer(gone):
        erased = vectors.clone()
        erased[0, list(gone)] = neutral
        scores = run.model.score(erased, torch.ones(erased.shape[:2], dtype=torch.bool))
        return crf.marginals(scores.emissions, scores.transitions, scores.start, scores.end)

    check(erasing, [(0,), (1, 3)], answer)
    tags = [run.assets.tags[number] for number in erasing.best[0, :, 0].tolist()]
    assert len(tags) == len(one.trace.axes["words"])


def _words_of(run, words):
    batch = TagExamples([words], None, [-1], run.assets.vocabulary, run.assets.letters).batch(
        np.array([0]), [len(words)]
    )
    return batch.words, batch.letters, batch.spelt


def test_words_of_a_cloze_question_are_erased_as_by_hand(runs):
    run = runs("cloze")
    erasing, one = erasing_of(run, "document")
    table = run.model.embedding.weight[1:1001].mean(dim=0)
    neutral = torch.cat([table, table.new_zeros(one.inputs[0].shape[-1] - len(table))])
    words, *others = one.inputs

    def answer(gone):
        erased = words.clone()
        erased[0, list(gone)] = neutral
        scores = run.model.read(erased, *others).probabilities.clamp_min(1e-30).log() / run.task.temperature()
        return scores.softmax(dim=-1)

    check(erasing, [(0,), (4, 9, 11)], answer)
    prediction = run.predict([inputs_of(run)[0]])[0]
    assert float(erasing.before.max()) == pytest.approx(prediction.score, abs=1e-5)
    question = erasing.subject.sources["question"]
    assert [question.tokens[place] for place in question.fixed] == ["XXXXX"]


def test_the_past_of_a_generated_text_is_erased_as_by_hand(runs):
    run = runs("generate")
    erasing, one = erasing_of(run, "past")
    table = next(module for module in run.model.modules() if isinstance(module, torch.nn.Embedding))
    rows = len(one.trace.axes["target"]) - one.first
    assert erasing.source.fixed == {0}

    def answer(gone):
        def erase(module, args, output):
            changed = output.clone()
            changed[0, list(gone)] = table.weight.mean(dim=0)
            return changed

        with torch.no_grad():
            hook = table.register_forward_hook(erase)
            logits = run.model(one.inputs[0]).logits[:, -rows:]
            hook.remove()
        return logits.softmax(dim=-1)

    check(erasing, [(1,), (2, 4)], answer)
    produced = run.predict(inputs_of(run)[:1], options={"temperature": 0, "max_new_tokens": 20})[0]
    assert erasing.subject.title == produced.output


def test_stretches_of_sound_are_erased_as_by_hand(runs):
    run = runs("transcribe")
    erasing, one = erasing_of(run, "source")
    features, lengths, target = one.inputs
    groups, factor = one.groups["source"], run.model.subsampling_factor
    assert np.bincount(groups).max() * one.trace.axes["source"].seconds == pytest.approx(0.1, abs=0.05)

    def answer(gone):
        erased = features.clone()
        for frame in range(features.shape[1]):
            if groups[min(frame // factor, len(groups) - 1)] in gone:
                erased[0, frame] = features[0].mean(dim=0)
        return run.model.teach(run.model.encode(erased, lengths), target).logits.softmax(dim=-1)

    check(erasing, [(0,), (1, 3)], answer)
    weights = erasing.subject.attentions["decoder.cross"].weights
    whole = one.trace.attentions["decoder.cross"].dense().mean(axis=0)
    for number, found in enumerate(weights[0]):
        assert found == pytest.approx(whole[groups == number].sum(), abs=1e-6)
    assert erasing.source.tokens[0].startswith("0.00–")


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


def test_rows_that_are_calls_have_the_gradient_of_each(runs):
    run = runs("caption")
    (trace,) = traces_with_relevance(run, inputs_of(run)[:1], "gradient")
    with torch.no_grad():
        one = run.task.traced_pass(run.model, run.assets, run.task.normal(inputs_of(run)[0]))
    with record(run.model, gradients=True) as tape:
        logs = run.model(*one.inputs).logits.log_softmax(dim=-1)
    logs.max(dim=-1).values.sum().backward()
    found = trace.attentions["decoder.cross"].extras["gradient"]
    assert len(found) == len(trace.axes["words"]) == len(tape.calls("decoder.attention"))
    for row, expected in enumerate(found):
        gradient = tape.gradient("decoder.attention", row)
        product = 0 if gradient is None else tape["decoder.attention", row].dense() * gradient
        assert expected == pytest.approx(np.ravel((product * torch.ones(1)).clamp_min(0).detach()), rel=1e-3, abs=1e-9)
    assert found.any()


def test_relevance_of_maps_that_stand_apart_and_of_intents(runs):
    for name, attention in (("vqa", "hops"), ("tag", "intent"), ("transcribe", "decoder.cross")):
        run = runs(name)
        (trace,) = traces_with_relevance(run, inputs_of(run)[:1], "gradient")
        one = trace.attentions[attention]
        assert one.extras["gradient"].shape == one.shape[1:]
        assert one.extras["gradient"].any()


def test_relevance_that_no_attention_has_is_an_error(runs):
    run = runs("classify_images")
    with pytest.raises(ConfigError, match=r"gradient is not known of any attention of this input \(maps\.0, "):
        [*traces_with_relevance(run, inputs_of(run)[:1], "gradient")]
    with pytest.raises(ConfigError, match=r"norms is not known.*Take gradient"):
        [*traces_with_relevance(runs("vqa"), inputs_of(runs("vqa"))[:1], "norms")]


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


def test_each_token_of_an_answer_is_probed_for_itself(runs):
    attention = "decoder.cross"
    for name in ("caption", "transcribe"):
        run, given = runs(name), inputs_of(runs(name))[:1]
        (whole,) = subjects_of_run(run, given)
        subjects = [*subjects_of_run(run, given, each_token=True)]
        with torch.no_grad():
            answer = whole.answer()[0]
        assert len(subjects) == len(answer)
        mean = np.mean([one.attentions[attention].weights for one in subjects], axis=0)
        assert mean == pytest.approx(whole.attentions[attention].weights, abs=1e-6)
        key = whole.attentions[attention].source
        for number, (one, expected) in enumerate(zip(subjects, answer, strict=True)):
            erasing = Erasing(one, key, 4)
            assert erasing.before == pytest.approx(expected.unsqueeze(0).double(), abs=1e-6)
            if number == 1:
                changed = Erasing(whole, key, 4)
                with torch.no_grad():
                    after, _ = changed._run([(0, 2)])
                (found,) = erasing.changes([(0, 2)])
                assert found.probability == pytest.approx(float(after[0, 1, int(expected.argmax())]), abs=1e-6)


def test_tokens_of_generated_texts_and_tags_are_those_of_the_answer(runs):
    (subject,) = subjects_of_run(runs("generate"), inputs_of(runs("generate"))[:1])
    tokens = [*subjects_of_run(runs("generate"), inputs_of(runs("generate"))[:1], each_token=True)]
    name = "decoder.0.self"
    mean = np.mean([one.attentions[name].weights for one in tokens], axis=0)
    assert mean == pytest.approx(subject.attentions[name].weights, abs=1e-6)
    found = foci.probe(runs("caption"), inputs_of(runs("caption"))[:1], **FEW, each_token=True)
    assert found.inputs == len(subject_words(runs("caption")))
    assert "auprc" not in found.columns  # what is marked is the reason of the whole answer
    for name in ("classify", "tag"):  # one label; and a BiLSTM, whose only attention is that of the intent
        with pytest.raises(ConfigError, match="each_token is about what each token of an answer read"):
            foci.probe(runs(name), inputs_of(runs(name))[:1], **FEW, each_token=True)
    with pytest.raises(ConfigError, match="each_token is for runs"):
        foci.probe(torch.nn.Linear(1, 1).eval(), [[torch.tensor([[1]])]], each_token=True)


def subject_words(run):
    _, one = erasing_of(run, "image")
    return one.trace.axes["words"].labels


def test_marks_without_effect_are_refused(runs):
    given, box = inputs_of(runs("cloze"))[0], [[0, 0, 1, 1]]
    one_of_two = r"are given of an input with 2 texts, expected one. Name the text: .*\"document\""
    for run, marked, words in (
        (runs("cloze"), {**given, "rationales": [[0, 3]]}, one_of_two),
        (
            runs("cloze"),
            {**given, "rationales": {"documents": [[0, 3]]}},
            "of 'documents', expected document, question",
        ),
        (runs("classify"), {"text": "one two", "boxes": box}, "boxes are given, but no image is read"),
        (
            runs("classify"),
            {"text": "one  two", "rationales": [[3, 5]]},
            r"\[\[3, 5\]\], which covers none of its words",
        ),
        (
            runs("caption"),
            {**inputs_of(runs("caption"))[0], "rationales": [[0, 1]]},
            "an input with 0 texts, expected one. Leave them out",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            next(subjects_of_run(run, [marked]))
    (subject,) = subjects_of_run(runs("cloze"), [{**given, "rationales": {"document": [[0, 3]]}}])
    assert subject.sources["document"].gold == {0}
    assert subject.sources["question"].gold is None


def test_what_cannot_be_erased_is_said_with_what_to_do_instead():
    task = find("memorize")
    with pytest.raises(ConfigError, match=r"slots of a memory that the network itself wrote.*foci show RUN 20"):
        task.traced_pass(object.__new__(task), torch.nn.Linear(1, 1), None, {})
    labels = object.__new__(find("classify_images"))
    with pytest.raises(ConfigError, match=r"classify_images does not say which parts of its inputs can be erased"):
        LabelTask.erasable(labels, [], None, {})


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
