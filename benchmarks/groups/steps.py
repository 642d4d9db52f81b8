"""Kernels in whole steps

Each C++ kernel switched on and off, against the same code without it: as an operator, forward and backward at the
sizes of the model, which is the gain of those who call it in a model of their own; and in a whole training step of the
model it serves (forward, loss, backward, AdamW), or a whole beam search, which is the gain of those who train and use
the application. Translators have 32 pairs of 20 tokens and a vocabulary of 4,000, the tagger 32 sentences of 5 to 40
words, the recognizer 8 utterances of 400 frames and 30 tokens, the entailer 32 pairs of 15 words; the beam of 5 has
8 sentences. `softmax_rows` serves views of the weights, and no training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.groups import ntm, tag
from benchmarks.harness import TRAIN, Call, Case, call, leaf
from foci.decoding import GenerationConstraints, beam, encode_source
from foci.functional import crf, kernels, scores, windows
from foci.functional.stepwise import over_steps
from foci.models.build import build_seq2seq
from foci.models.entailer import ConditionalEntailer
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions, Variant
from foci.models.options.seq2seq import Seq2SeqOptions, seq2seq_preset
from foci.models.options.speech import RecognizerOptions, recognizer_preset
from foci.models.options.text_encoders import RecurrentTextEncoderOptions
from foci.models.options.words import ENTAILER_PRESETS, ConditionalEntailerOptions
from foci.models.recognizer import Recognizer
from foci.options import from_tables
from foci.tasks.tag.decoding import chain_of

OPERATOR, STEP = "as an operator", "in a whole step"
COLUMNS = (OPERATOR, STEP)
"""The measures, which the report prints beside each other."""

VOCABULARY, TRANSLATORS = 4000, ((64, 128), (128, 256), (256, 512))
"""(size of the embeddings, of the states)"""

_KERNELS = {row.name: row.kernel for row in kernels.KERNELS if row.kernel is not None}

Loss = Callable[[], Tensor]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Both measures of each kernel; a quick run has the smallest model of each."""
    for embedding, hidden in TRANSLATORS[:1] if quick else TRANSLATORS:
        name = f"translator, {embedding} and {hidden}"
        additive = AttentionOptions(score="additive")
        yield _operator("additive", name, partial(_additive, hidden))
        yield _step("additive", name, partial(_translator, embedding, hidden, "bahdanau", additive))
    local = AttentionOptions(focus="local_p", radius=5, score="dot")
    for kernel, name, operator, model in (
        ("window", "translator, local_p", _windows, partial(_translator, 128, 256, "luong", local)),
        ("crf", "tagger", _chain, _tagger),
        ("location_aware", "recognizer, small", _location_aware, _recognizer),
        ("word_by_word", "entailer, base", _word_by_word, _entailer),
        ("ntm", "copy task", _memory, _copier),
    ):
        yield _operator(kernel, name, operator)
        yield _step(kernel, name, model)
    for preset in ("tiny",) if quick else ("tiny", "base"):
        yield _search(preset)


def _case(kernel: str, name: str, measure: str, inputs: Callable[[], tuple[Any, ...]], work: Any) -> Case:
    used = _KERNELS[kernel]

    def theirs(*given: Any) -> Call:
        inner = work(*given)

        def without() -> object:
            with used.off():
                return inner()

        return without

    return Case(
        name=f"{kernel}: {name}",
        against="without the kernel",
        measure=measure,
        inputs=inputs,
        ours=work,
        theirs=theirs,
        tolerance=1e-3,
    )


def _operator(kernel: str, name: str, inputs: Callable[[], tuple[Loss, list[Tensor]]]) -> Case:
    return _case(kernel, name, OPERATOR, inputs, lambda loss, leaves: call(TRAIN, loss, leaves))


def _step(kernel: str, name: str, inputs: Callable[[], tuple[nn.Module, Loss]]) -> Case:
    def work(model: nn.Module, loss: Loss) -> Call:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

        def step() -> object:
            torch.manual_seed(0)  # both sides drop the same numbers out
            optimizer.zero_grad(set_to_none=True)
            found = loss()
            found.backward()
            optimizer.step()
            return found.detach()

        return step

    return _case(kernel, name, STEP, inputs, work)


# Operators


def _additive(size: int) -> tuple[Loss, list[Tensor]]:
    query, key, vector = leaf(32, 20, size), leaf(32, 20, size), leaf(size)
    return lambda: scores.additive(query, key, vector), [query, key, vector]


def _windows() -> tuple[Loss, list[Tensor]]:
    query, key, value = (leaf(32, 20, 256) for _ in range(3))
    center = torch.arange(20.0).expand(32, -1)
    options: Any = {"radius": 5, "sigma": 2.5, "scale": 0.1}
    return lambda: windows.local(query, key, value, center, **options).output, [query, key, value]


def _chain() -> tuple[Loss, list[Tensor]]:
    emissions, transitions, start, end = leaf(32, 40, 19), leaf(19, 19), leaf(19), leaf(19)
    tags = torch.randint(19, (32, 40))
    given = [emissions, transitions, start, end]
    return lambda: crf.log_likelihood(emissions, transitions, start, end, None, tags), given


def _location_aware() -> tuple[Loss, list[Tensor]]:
    previous, query = torch.softmax(torch.randn(8, 100), dim=-1), leaf(8, 30, 128)
    shared = [leaf(8, 100, 128), leaf(128, scale=0.1), leaf(10, 1, 51), leaf(128, 10)]
    return lambda: over_steps("location_aware", previous, (query,), tuple(shared))[0], [query, *shared]


def _word_by_word() -> tuple[Loss, list[Tensor]]:
    given = [leaf(32, 15, 100) for _ in range(3)] + [leaf(100), leaf(100, 100, scale=0.1), leaf(100, 100, scale=0.1)]
    query, value, key, *weights = given
    exist, start = torch.ones(32, 15, dtype=torch.bool), torch.zeros(32, 1, 100)
    return lambda: over_steps("word_by_word", start, (query, exist), (value, key, exist, *weights))[0], given


def _memory() -> tuple[Loss, list[Tensor]]:
    commands, memory = leaf(16, 2 * (20 + 3 + 3) + 2 * 20), leaf(16, 128, 20)
    reading, writing = torch.softmax(torch.randn(2, 16, 1, 128), dim=-1)
    return lambda: kernels.ntm.step(commands, memory, reading, writing, 3)[3], [commands, memory]


# Models


def _translator(embedding: int, hidden: int, variant: Variant, attention: AttentionOptions) -> tuple[nn.Module, Loss]:
    options = Seq2SeqOptions(
        encoder=RecurrentTextEncoderOptions(embedding_dim=embedding, hidden_dim=hidden),
        decoder=RecurrentDecoderOptions(embedding_dim=embedding, hidden_dim=hidden, variant=variant),
        attention=attention,
    )
    model = build_seq2seq(VOCABULARY, VOCABULARY, options)
    source, target = torch.randint(4, VOCABULARY, (2, 32, 20))
    valid = source > 0
    return model, lambda: cross_entropy(model(source, valid, target[:, :-1]).logits.mT, target[:, 1:])


def _tagger() -> tuple[nn.Module, Loss]:
    _, _, model, (batch, *_) = tag._inputs()

    def loss() -> Tensor:
        found = model(batch.words, batch.letters, batch.spelt)
        return -crf.log_likelihood(*chain_of(found), batch.words > 0, batch.tags).sum()

    return model, loss


def _recognizer() -> tuple[nn.Module, Loss]:
    model = Recognizer(80, 40, from_tables(RecognizerOptions, recognizer_preset("small")))
    features, lengths = torch.randn(8, 400, 80), torch.full((8,), 400)
    target = torch.randint(4, 40, (8, 30))

    def loss() -> Tensor:
        attention, ctc = model(features, lengths, target)
        total: Tensor = attention.loss + ctc
        return total

    return model, loss


def _entailer() -> tuple[nn.Module, Loss]:
    options = ConditionalEntailerOptions(**ENTAILER_PRESETS["conditional"]["base"])
    model = ConditionalEntailer(VOCABULARY, VOCABULARY - 1, 0, 3, options)
    first, second = torch.randint(2, VOCABULARY, (2, 32, 15))
    labels = torch.randint(3, (32,))
    return model, lambda: cross_entropy(model(first, second).logits, labels)


def _copier() -> tuple[nn.Module, Loss]:
    model, vectors = ntm.Copier(), torch.randint(2, (ntm.LENGTH, 16, ntm.BITS)).float()
    return model, lambda: model(vectors, ntm._ours)


def _search(preset: str) -> Case:
    def inputs() -> tuple[nn.Module, Tensor]:
        tables = {**seq2seq_preset(preset, "transformer", "transformer"), "share_embeddings": True}
        model = build_seq2seq(VOCABULARY, VOCABULARY, from_tables(Seq2SeqOptions, tables)).eval()
        return model, torch.randint(4, VOCABULARY, (8, 20))

    def work(model: Any, source: Tensor) -> Call:
        constraints = GenerationConstraints(min_length=20, max_length=20, banned=())

        def search() -> object:
            start = encode_source(model, source, source > 0)
            found = beam(model, start, size=5, constraints=constraints)
            return torch.tensor([row[0].score for row in found])

        return call(STEP, search)

    return _case("decoder_step", f"beam search, {preset}", STEP, inputs, work)
