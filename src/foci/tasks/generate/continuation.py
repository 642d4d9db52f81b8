"""What a language model makes of one text: continuations, their pieces as they are produced, scores, and traces."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foci.data import BOS, EOS, PAD, UNK, Tokenizer
from foci.decoding import GenerationConstraints, Hypothesis, Sampler, SlidingContext, beam, generate, iterate, windows
from foci.errors import DataError
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.metrics.likelihood import Likelihood
from foci.models.language_model import LanguageModel
from foci.printable import printable
from foci.probing.subject import Source
from foci.tasks.frame.probing.traces import TracedPass
from foci.tasks.frame.task import Prediction, Record
from foci.tasks.generate.config import GenerateOptions
from foci.tasks.generate.windows import Ids, encode_text, size_of
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_TOKENS_AT_ONCE = 8192
"""Tokens that are scored at a time."""


class Prompt:
    """One text, and what a model makes of it.

    Args:
        model: in ``eval()``.
        tokenizer: that of the model.
        record: has the ``text``.
        options: how it is continued.
        trained: the context that the model was trained with.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, record: Record, options: GenerateOptions, trained: int
    ) -> None:
        self.model, self.tokenizer, self.record, self.options = model, tokenizer, record, options
        self.context, self.stride = options.sizes(model.max_length, trained)
        self.ids = encode_text(tokenizer, record["text"]).astype(np.int64)
        self.device = next(model.parameters()).device
        self.notes: list[str] = []
        unknown = self._unknown()
        if unknown:
            self.notes.append(
                f"{len(unknown)} tokens of the text are not in the vocabulary ({quoted(''.join(unknown))}) and are "
                "read as <unk>. Train with tokenizer.kind=bpe or bytes, which spell every text."
            )
        if len(self.ids) >= self.context and not options.score:
            self.notes.append(
                f"the prompt has {len(self.ids)} tokens, the context of the model {self.context}: only the end is read"
            )

    def _unknown(self) -> list[str]:
        if not (self.ids == UNK).any():
            return []
        encoding = self.tokenizer.encode(self.record["text"])
        return [
            self.record["text"][start:end]
            for number, (start, end) in zip(encoding.ids, encoding.offsets)
            if number == UNK
        ]

    def continued(self, trace: bool) -> Prediction:
        """Return the continuation, and further ones as its alternatives."""
        made = [self._prediction(one, trace) for one in self._hypotheses()]
        return replace(made[0], alternatives=tuple(made[1:]))

    def traced_pass(self) -> TracedPass:
        """Return how the model reads a text that it continues; the answer is the tokens it produces, one by one.

        Of a long text it is the last window of the context. Where nothing is produced, the answer is the text itself.
        """
        produced = self._hypotheses()[0].tokens
        tokens, first, inputs = self._window(produced)
        if len(tokens) < 2:
            raise DataError("probe: the text has too few tokens to erase one. Give a longer one.")
        trace = self._trace(produced, self.tokenizer.decode(produced), first=0)
        past = Source(0, trace.axes["past"].labels, fixed=frozenset((0,)))  # <bos>

        def probabilities(output: TokenLogits) -> Tensor:
            return output.logits[:, first:].float().softmax(dim=-1)

        return TracedPass((inputs,), {"past": past}, trace, probabilities, answer="target", first=first)

    def _hypotheses(self) -> list[Hypothesis]:
        options = self.options
        sliding, constraints = self._sliding, self._constraints
        if options.beam_size > 1:
            (hypotheses,) = beam(
                sliding,
                sliding.start(self._prompts(1), options.max_new_tokens),
                size=options.beam_size,
                n_best=options.n_best,
                length_penalty=options.length_penalty,
                constraints=constraints,
            )
        else:
            prompts = self._prompts(options.n_best)
            start = sliding.start(prompts, options.max_new_tokens)
            choose = _sampler(options).chooser(self._generator, prompts)
            rows = generate(sliding, start, constraints, choose, ends_here=_StopStrings(self.tokenizer, options.stop))
            hypotheses = [one for row in rows for one in row]
        return hypotheses

    def pieces(self) -> Generator[str, None, Prediction]:
        """Yield the pieces of the continuation as they are produced; return the prediction."""
        options, prompts = self.options, self._prompts(1)
        stop = _StopStrings(self.tokenizer, options.stop)
        steps = iterate(
            self._sliding,
            self._sliding.start(prompts, options.max_new_tokens),
            self._constraints,
            _sampler(options).chooser(self._generator, prompts),
            ends_here=stop,
        )
        given, stream, text = 0, self.tokenizer.text_stream(), ""
        while True:
            try:
                search = next(steps)
            except StopIteration as end:
                ((hypothesis,),) = end.value
                break
            text += stream(int(search.tokens[0, -1]))
            ready = len(text) - stop.held_back(text)
            if ready > given:
                yield text[given:ready]
                given = ready
        prediction = self._prediction(hypothesis, False)
        if len(prediction.output) > given:
            yield prediction.output[given:]
        return prediction

    @property
    def _sliding(self) -> SlidingContext:
        return SlidingContext(self.model, context=self.context, stride=self.stride, bos=BOS)

    @property
    def _constraints(self) -> GenerationConstraints:
        return GenerationConstraints(max_length=self.options.max_new_tokens, bos=BOS, eos=EOS, banned=(PAD, BOS, UNK))

    @property
    def _generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self.options.seed)

    def _prompts(self, rows: int) -> Tensor:
        return torch.from_numpy(self.ids).to(self.device).expand(rows, -1)

    def _prediction(self, hypothesis: Hypothesis, trace: bool) -> Prediction:
        whole = self.tokenizer.decode(hypothesis.tokens)
        text = _before_stop(whole, self.options.stop)
        ended = hypothesis.finished and text == whole
        details: dict[str, Any] = {
            "log_prob": hypothesis.log_prob,
            "tokens": len(hypothesis.tokens),
            "ended_by": "stop" if text != whole else "end of text" if ended else "max_new_tokens",
        }
        if self.notes:
            details["notes"] = list(self.notes)
        traced = self._trace(hypothesis.tokens, text) if trace else None
        return Prediction(self.record, text, hypothesis.score, details, traced)

    def scored(self, trace: bool) -> Prediction:
        """Return the log-probability of each token of the text."""
        logs = log_probs(self.model, self.ids, self.context, self.stride)
        labels = self.tokenizer.labels(self.ids.tolist())
        total = float(logs.sum())
        likelihood = Likelihood(total, len(logs), size_of(self.tokenizer, [self.record["text"]]))
        lines = [f"{log:9.4f}  {label}" for log, label in zip(logs.tolist(), labels)]
        details: dict[str, Any] = {
            "nats": likelihood.nats,
            "perplexity": likelihood.perplexity,
            "bits_per_byte": likelihood.bits_per_byte,
            "tokens": [[label, log] for label, log in zip(labels, logs.tolist())],
        }
        if self.notes:
            details["notes"] = list(self.notes)
        traced = self._trace([], self.record["text"]) if trace and len(self.ids) else None
        return Prediction(self.record, "\n".join(lines), total, details, traced)

    def _window(self, produced: list[int]) -> tuple[list[int], int, Tensor]:
        """The tokens of the last window, the first of them that is produced, and what the model reads to predict them.

        Without produced tokens these are the tokens of the text itself.
        """
        whole = [*self.ids.tolist(), *produced]
        begin = windows(len(whole), self.context, self.stride)[-1].begin if whole else 0
        tokens = whole[begin:]
        inputs = torch.tensor([[BOS, *tokens[:-1]]] if tokens else [[]], dtype=torch.long, device=self.device)
        return tokens, max(len(self.ids) - begin, 0) if produced else 0, inputs

    def _trace(self, produced: list[int], text: str, first: int | None = None) -> Trace:
        """What tokens of the last window read of those before them, and how surprising each was.

        Args:
            produced: the tokens after the text.
            text: of the trace.
            first: the token that the rows begin with. Default: the first that was produced.
        """
        tokens, begin, inputs = self._window(produced)
        first = begin if first is None else first
        predicted: TokenLogits = self.model(inputs)
        labels = self.tokenizer.labels(tokens)
        rows = torch.arange(first, len(tokens), device=self.device)
        surprise = -predicted.logits.float().log_softmax(dim=-1)[0, torch.arange(len(tokens)), tokens]
        axes = {
            "target": Axis("tokens", tuple(labels[first:]), "produced" if produced and first == begin else "text"),
            "past": Axis("tokens", ("<bos>", *labels[:-1])[: len(tokens)], "text so far"),
            "text": Axis.from_document(_lines_of(labels, tokens, self.tokenizer), "text"),
            "all": Axis("tokens", ("surprise",), "share of the nats"),
        }
        attentions = {name: Weights.from_tensor(weights.rows(rows)) for name, weights in predicted.attentions.items()}
        axes_of = dict.fromkeys(attentions, ("target", "past"))
        if tokens:
            attentions["surprise"] = Weights.from_tensor((surprise / surprise.sum().clamp_min(1e-9)).view(1, 1, -1))
            axes_of["surprise"] = ("all", "text")
        metadata: dict[str, str | float] = {"nats per token": float(surprise.mean()) if tokens else 0.0}
        return Trace.from_handles(attentions, axes, axes_of, text=text, metadata=metadata)


class _StopStrings:
    """Ends a row when its text holds one of some strings."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self.tokenizer, self.stop = tokenizer, stop
        self.streams: dict[int, Callable[[int], str]] = {}
        self.texts: dict[int, str] = {}

    def __call__(self, tokens: Tensor, sources: Sequence[int]) -> Tensor:
        ends = torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)
        if not self.stop:
            return ends
        for row, (source, token) in enumerate(zip(sources, tokens[:, -1].tolist())):
            stream = self.streams.setdefault(source, self.tokenizer.text_stream())
            self.texts[source] = self.texts.get(source, "") + stream(token)
            ends[row] = any(text in self.texts[source] for text in self.stop)
        return ends

    def held_back(self, text: str) -> int:
        """How many characters at the end may belong to a stop string, and must not be shown yet."""
        cut = len(text) - len(_before_stop(text, self.stop))
        begun = [size for stop in self.stop for size in range(1, len(stop)) if text.endswith(stop[:size])]
        return max([cut, *begun])


def _before_stop(text: str, stop: Sequence[str]) -> str:
    places = [place for place in map(text.find, stop) if place >= 0]
    return text[: min(places)] if places else text


def log_probs(model: LanguageModel, ids: Ids, context: int, stride: int) -> NDArray[np.float32]:
    """Return the log-probability of each token of a text, predicted from at most ``context`` tokens before it.

    Args:
        model: a language model, in ``eval()``.
        ids: the text.
        context: tokens of a window.
        stride: how far apart windows begin; see `foci.decoding.windows`.
    """
    plan = windows(len(ids), context, stride)
    found = np.zeros(len(ids), dtype=np.float32)
    device = next(model.parameters()).device
    rows = max(1, _TOKENS_AT_ONCE // context)
    for start in range(0, len(plan), rows):
        some = plan[start : start + rows]
        tokens = np.full((len(some), 1 + max(one.end - one.begin for one in some)), PAD, dtype=np.int64)
        tokens[:, 0] = BOS
        for row, one in zip(tokens, some):
            row[1 : 1 + one.end - one.begin] = ids[one.begin : one.end]
        given = torch.from_numpy(tokens).to(device)
        learned: TokenLoss = model(given[:, :-1], Targets(given[:, 1:], padding=PAD))
        logs = learned.log_probs.float().cpu().numpy()
        for row, one in zip(logs, some):
            found[one.new : one.end] = row[one.new - one.begin : one.end - one.begin]
    return found


def _lines_of(labels: Sequence[str], tokens: Sequence[int], tokenizer: Tokenizer) -> list[list[str]]:
    """The labels, line by line."""
    lines: list[list[str]] = [[]]
    for label, token in zip(labels, tokens):
        lines[-1].append(label)
        if "\n" in tokenizer.decode([token]):
            lines.append([])
    return [line for line in lines if line]


def quoted(text: str) -> str:
    """Return the beginning of a text, for messages."""
    return repr(printable(text if len(text) <= 60 else f"{text[:59]}…"))


def _sampler(options: GenerateOptions) -> Sampler:
    return Sampler(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
    )
