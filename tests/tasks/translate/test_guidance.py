"""Guided attention: the loss by plain loops, links of sub-words and in files, what is refused, and what is learned."""

import math

import numpy as np
import pytest
import torch
from halves import in_halves

import foci
from foci.data import Pair, PairExamples, Sequences
from foci.data.copy_ids import SourceRow
from foci.errors import CheckpointError, ConfigError, DataError, UnknownNameError
from foci.metrics.alignments import alignment_scores
from foci.metrics.attention import Links, format_pharaoh
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.task import Shard
from foci.tasks.translate.aligning import Reading, TokenPair, token_pairs
from foci.tasks.translate.guidance import GuidedExamples, TrainingLinks, guidance_loss, linked_tokens, links_of_file
from foci.tasks.translate.task import Tokenizers, Translate
from foci.training.run_folder import read_metrics
from foci.weights import Weights

WORDS = ["red", "blue", "green", "one", "two", "three", "house", "tree"]
FOREIGN = ["rot", "blau", "grün", "eins", "zwei", "drei", "haus", "baum"]


def turned_pairs(count):
    """Sentences of two to five words, and word by word in reverse order; with their links."""
    generator = torch.Generator().manual_seed(3)
    pairs, links = [], []
    for _ in range(count):
        size = int(torch.randint(2, 6, (1,), generator=generator))
        chosen = torch.randperm(len(WORDS), generator=generator)[:size].tolist()
        pairs.append(Pair(" ".join(WORDS[i] for i in chosen), " ".join(FOREIGN[i] for i in reversed(chosen))))
        links.append(Links(frozenset((size - 1 - i, i) for i in range(size))))
    return pairs, links


@pytest.fixture
def data(tmp_path):
    """Files of pairs and of their links."""
    pairs, links = turned_pairs(120)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    (tmp_path / "links").write_text("".join(f"{format_pharaoh([one])}\n" for one in links), encoding="utf-8")
    return tmp_path


RECURRENT = {
    "kind": "rnn",
    "encoder": {"embedding_dim": 12, "hidden_dim": 24, "dropout": 0.0},
    "decoder": {"embedding_dim": 12, "hidden_dim": 24, "input_feeding": False, "dropout": 0.0},
    "attention": {"score": "dot"},
}
TRANSFORMER = {
    "kind": "transformer",
    "encoder": {"model_dim": 12, "num_heads": 2, "hidden_dim": 16, "num_layers": 1, "dropout": 0.0},
    "decoder": {"model_dim": 12, "num_heads": 2, "hidden_dim": 16, "num_layers": 3, "dropout": 0.0},
}


def settings(folder, model=RECURRENT, **changes):
    tables = {
        "data": {"path": str(folder / "pairs.tsv"), "columns": (0, 1), "batch_tokens": 150, "valid_share": 0.1},
        "tokenizer": {"kind": "words", "size": 40},
        "model": model,
        "guidance": {"weight": 1.0},
        "training": {"max_steps": 3, "eval_every": None, "warmup": 1, "learning_rate": 0.02, "metrics_every": 1},
    }
    links = {} if changes.pop("own", False) else {"data.links": str(folder / "links")}
    return put(tables, {**links, **{name.replace("__", "."): value for name, value in changes.items()}})


def train(folder, name="run", **changes):
    logged = []
    foci.train("translate", settings(folder, **changes), out=folder / name, log=logged.append)
    return foci.load(folder / name), "\n".join(logged)


# ---- the loss


def test_the_loss_by_plain_loops_and_its_gradient():
    torch.manual_seed(0)
    scores = torch.randn(2, 5, 7, dtype=torch.double, requires_grad=True)
    guide = torch.zeros(2, 5, 7, dtype=torch.double)
    guide[0, 1, [2, 3]], guide[0, 4, 0], guide[1, 0, 6] = 0.5, 1.0, 1.0

    def loss(scores):
        return guidance_loss(Weights.from_tensor(scores.softmax(-1)), guide)

    weights = scores.detach().softmax(-1)
    expected = -sum(
        float(guide[b, t, s]) * math.log(weights[b, t, s]) for b in range(2) for t in range(5) for s in range(7)
    )
    assert float(loss(scores).detach()) == pytest.approx(expected)
    assert torch.autograd.gradcheck(loss, scores)
    loss(scores).backward()
    # Of softmax and cross-entropy: the weights minus the guide, where there is one.
    led = guide.sum(-1, keepdim=True)
    torch.testing.assert_close(scores.grad, led * weights - guide)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_of_zero_and_padding_leave_the_loss_finite(dtype):
    scores = torch.tensor([[[0.0, 90.0, -torch.inf], [1.0, 2.0, -torch.inf]]], dtype=dtype, requires_grad=True)
    guide = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    found = guidance_loss(Weights.from_tensor(scores.softmax(-1)), guide)
    found.backward()
    assert found.isfinite()
    assert found > 80
    assert scores.grad[0, :, :2].isfinite().all()
    assert scores.grad[0, 1].nan_to_num().eq(0).all()


def test_sampled_attention_is_led_by_its_probabilities():
    probabilities = torch.tensor([[[0.25, 0.75]]], requires_grad=True)
    drawn = Weights.from_tensor(torch.tensor([[[1.0, 0.0]]]), torch.zeros(1, 1), probabilities)
    assert guidance_loss(drawn, torch.tensor([[[0.0, 1.0]]])).item() == pytest.approx(-math.log(0.75))


# ---- links of tokens


def token_pair(source_words, target_words):
    sizes = tuple(1 + max(words) for words in (source_words, target_words))
    return TokenPair(
        SourceRow([5] * len(source_words), [], []), [6] * len(target_words), source_words, target_words, sizes
    )


def test_tokens_have_the_links_of_their_words():
    """Two words of two and one tokens with a space between, three words of one, two and one tokens."""
    pair = token_pair([0, 0, -1, 1], [0, 1, 1, 2])
    found = linked_tokens(pair, Links(frozenset({(0, 1), (1, 0)}), frozenset({(1, 1)})))
    assert set(found) == {(1, 0), (2, 0), (1, 1), (2, 1), (0, 3), (1, 3), (2, 3)}


@pytest.mark.parametrize("shift", [False, True])
def test_a_batch_has_a_distribution_for_each_linked_token(shift):
    pairs = [token_pair([0, 0, -1, 1], [0, 1, 1, 2]), token_pair([0, 1], [0])]
    links = [Links(frozenset({(0, 1), (1, 0), (1, 1)})), Links(frozenset({(1, 0)}))]
    examples = PairExamples(*(Sequences(ids, 9) for ids in ([p.source.ids for p in pairs], [p.target for p in pairs])))
    guided = GuidedExamples(examples, pairs, links, shift=shift)
    batch = guided.batch(np.array([1, 0]), guided.lengths.max(axis=0).tolist())
    assert batch.guide.shape == (2, 5, 4)
    expected = torch.zeros(2, 5, 4)
    expected[0, int(shift), 1] = 1.0
    expected[1, int(shift), 3] = 1.0
    for row in (1, 2):
        expected[1, row + shift, [0, 1, 3]] = 1 / 3
    torch.testing.assert_close(batch.guide, expected)
    assert batch.target.equal(examples.batch(np.array([1, 0]), [4, 6]).target)


def test_sub_words_inherit_the_links_of_words(data):
    """Characters: all letters of a word are led to all letters of its translation, spaces to nothing."""
    run, _ = train(data, tokenizer={"kind": "characters", "size": 60})
    (pair,) = token_pairs([Pair("red tree", "baum rot")], run.task.tokenizers(run.assets))
    assert set(linked_tokens(pair, Links(frozenset({(0, 1), (1, 0)})))) == {
        (t, s) for t in range(5, 8) for s in range(3)
    } | {(t, s) for t in range(4) for s in range(4, 8)}


# ---- files of links


def test_links_follow_their_pairs_also_where_pairs_are_equal(tmp_path):
    pairs = [Pair("a b", "x y"), Pair("c", "z"), Pair("a b", "x y"), Pair("d", "w")]
    (tmp_path / "links").write_text("0-0\n\n0-1 1p0\n0-0\n")
    found = links_of_file(str(tmp_path / "links"), pairs, [pairs[0], pairs[2], pairs[3]])
    assert [one.all for one in found] == [{(0, 0)}, {(0, 1), (1, 0)}, {(0, 0)}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-2], r"links, line 119: 118 lines, but 120 sentence pairs"),
        (
            lambda lines: [*lines[:6], "0-0 9-1", *lines[7:]],
            r"links, line 7: word 9 of the source, expected one of its",
        ),
        (lambda lines: [*lines[:4], "0-0 1:1", *lines[5:]], r"links, line 5: has '1:1', expected source-target"),
        (lambda lines: [""] * 120, r"links: no links in \d+ pairs to train on"),
    ],
)
def test_links_that_do_not_fit_are_refused_before_there_is_a_run(data, change, message):
    lines = (data / "links").read_text().splitlines()
    (data / "links").write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(DataError, match=message):
        train(data)
    assert not (data / "run").exists()


# ---- what is refused


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"guidance__weight": 0.0}, ConfigError, r"data.links has no effect without guidance.weight"),
        (
            {"own": True, "guidance": {"weight": 0.0, "shift": True}},
            ConfigError,
            r"guidance.shift has no effect without guidance.weight",
        ),
        ({"guidance__aligner_steps": 20}, ConfigError, r"aligner_steps has no effect without foci's own links"),
        ({"guidance__attention": "decoder.1.cross"}, UnknownNameError, r"attention to the source.*decoder.cross"),
        ({"guidance__head": 1}, ConfigError, r"guidance.head is 1, but 'decoder.cross' has 1"),
        (
            {"data": {"path": "a.tsv", "stream": True, "valid": "b.tsv"}, "own": True},
            ConfigError,
            r"guidance.weight is set with data.stream",
        ),
        (
            {"model": {"kind": "rnn", "decoder": {"variant": "cho"}}},
            ConfigError,
            r"the decoder's variant 'cho' has no attention to lead",
        ),
        (
            {"model": {**RECURRENT, "attention": {"score": "dot", "normalize": "hard"}}},
            ConfigError,
            r"the weights of the attention have no gradient",
        ),
        (
            {"data": {"builtin": 40, "links": "links"}, "own": True},
            ConfigError,
            r"links is '.*links', but no data is named",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_before_there_is_a_run(data, changes, error, message):
    with pytest.raises(error, match=message):
        train(data, **changes)
    assert not (data / "run").exists()


# ---- training


def losses(folder):
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]


@pytest.mark.parametrize(
    ("model", "changes", "reading"),
    [
        (RECURRENT, {}, Reading("decoder.cross")),
        (TRANSFORMER, {"guidance__head": 1, "guidance__shift": True}, Reading("decoder.1.cross", 1, True)),
        (TRANSFORMER, {"guidance__attention": "decoder.2.cross"}, Reading("decoder.2.cross", 0)),
        (
            {
                "kind": "conv",
                "encoder": {"embedding_dim": 12, "layers": [[12, 3]]},
                "decoder": {"layers": [[12, 3]] * 2},
            },
            {},
            Reading("decoder.0.cross"),
        ),
    ],
)
def test_attention_goes_to_the_links_and_is_read_where_it_was_led(data, model, changes, reading):
    pairs, links = turned_pairs(120)
    run, logged = train(data, model=model, training__max_steps=60, guidance__weight=5.0, **changes)
    assert "attention is led along" in logged
    found = run.align(pairs)
    assert found[0].read == reading
    plain, _ = train(data, "plain", model=model, own=True, guidance__weight=0.0, training__max_steps=60)
    led, free = (alignment_scores([one.links for one in some], links).aer for some in (found, plain.align(pairs)))
    assert led < 0.35
    assert free > 2 * led
    guidance = [line["guidance"] for line in read_metrics(data / "run" / "metrics.jsonl") if line["kind"] == "train"]
    assert guidance[-1] < 0.5 * guidance[0]
    (elsewhere,) = run.align(pairs[:1], options={"attention": reading.attention})
    assert elsewhere.read == Reading(reading.attention)


def test_the_loss_is_that_of_the_tokens_and_the_weighted_one(data):
    train(data, "one")
    train(data, "two", guidance__weight=3.0)
    train(data, "plain", own=True, guidance__weight=0.0)
    first = [next(iter(read_metrics(data / name / "metrics.jsonl"))) for name in ("one", "two", "plain")]
    assert first[0]["loss"] == pytest.approx(first[2]["loss"] + first[0]["guidance"], rel=1e-5)
    assert first[1]["loss"] == pytest.approx(first[2]["loss"] + 3 * first[0]["guidance"], rel=1e-5)
    assert not (data / "plain" / "links.json").exists()


def test_accumulated_halves_learn_what_whole_batches_do(data, monkeypatch):
    whole = train(data, "whole")[0]
    monkeypatch.setattr(Translate, "batches", in_halves(Translate))
    halved = train(data, "halves", training__gradient_accumulation_steps=2)[0]
    assert losses(data / "halves") == pytest.approx(losses(data / "whole"), rel=1e-4)
    for one, other in zip(whole.model.parameters(), halved.model.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("own", [False, True])
def test_a_resumed_run_is_one_that_never_stopped(data, own, monkeypatch):
    changes = {"own": own, **({"guidance__aligner_steps": 10} if own else {})}
    whole = train(data, "whole", training__max_steps=4, **changes)[0]
    train(data, "run", training__max_steps=2, **changes)
    (data / "links").unlink()  # the run keeps what it was led along
    monkeypatch.setattr("foci.tasks.translate.task.own_links", None)
    foci.train("translate", {"training": {"max_steps": 4}}, out=data / "run", resume=True, log=lambda text: None)
    for one, other in zip(whole.model.parameters(), foci.load(data / "run").model.parameters()):
        assert torch.equal(one, other)


def test_other_processes_get_the_links_and_runs_without_guidance_have_no_file(data):
    for weight in (1.0, 0.0):
        task = Translate(configure(Translate.Config, settings(data, own=not weight, guidance__weight=weight), "test"))
        splits = task.read(print)
        assets = task.assets(splits, print)
        files = assets.to_files()
        assert ("links.json" in files) == bool(weight)
        assert Tokenizers.from_files(files.__getitem__).links.lines == assets.links.lines
        assert len(assets.links.lines) == (len(splits.train) if weight else 0)


def test_links_of_a_run_are_checked(data):
    train(data)
    for damaged in ("[3]", "[", '"0-0"'):
        with pytest.raises(CheckpointError, match=r"links.json: is n"):
            TrainingLinks.from_text(damaged, "links.json")
    kept = TrainingLinks(["0-1 2p0", "", "1-1"])
    assert TrainingLinks.from_text(kept.to_text(), "links.json").lines == kept.lines
    assert [one.all for one in kept.of([2, 1, 0])] == [{(1, 1)}, set(), {(0, 1), (2, 0)}]
    (data / "run" / "links.json").write_text('["0-0"]')
    with pytest.raises(DataError, match=r"links.json: links of 1 pairs, but there are \d+ to train on"):
        foci.train("translate", {"training": {"max_steps": 4}}, out=data / "run", resume=True, log=lambda text: None)


def test_the_links_are_those_of_the_pairs_that_are_left(data):
    """Pairs of more than three words, five tokens with BOS and EOS, are left out."""
    task = Translate(configure(Translate.Config, settings(data, data__max_length=5), "test"))
    splits = task.read(print)
    assets = task.assets(splits, print)
    batches = task.batches(splits, assets, Shard(), print)
    source, target = task.tokenizers(assets)
    seen = 0
    for batch in batches.epoch(0):
        for row, guide in enumerate(batch.guide):
            read = source.decode(batch.source[row].tolist()).split()
            made = target.decode(batch.target[row].tolist()).split()
            seen += 1
            for t, word in enumerate(made):
                assert read[int(guide[t].argmax())] == WORDS[FOREIGN.index(word)]
            assert int((guide > 0).sum()) == len(made)
    assert 0 < seen == sum(len(pair.source.split()) <= 3 for pair in splits.train) < len(splits.train)
