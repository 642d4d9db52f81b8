"""Relevance of Hugging Face models: what mattered for what they said, or what was added up.

    encoder and decoder           the log-probability of the answer that the model's own search gives
    decoder                       likewise with generate; without it that of the likeliest next token
    encoder with a classifier     the log-probability of the likeliest class
    encoder of masked tokens      those of the likeliest tokens at the masks

The score and the norms of weighted values come from one more pass over the whole text, without a cache; value zeroing
takes one for each position of each attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foci.errors import ConfigError
from foci.huggingface.loading import Loaded
from foci.huggingface.names import AXES, named
from foci.huggingface.options import ReadOptions
from foci.huggingface.steps import generate
from foci.huggingface.tokens import Encoded, axis_of, labels_of
from foci.metrics.relevance import value_zeroing
from foci.recording import record
from foci.viz.axis import Axis
from foci.viz.relevance import SCORED, with_maps, with_relevance
from foci.viz.trace import Trace


class Pass(NamedTuple):
    """One pass over a text.

    Attributes:
        inputs: of the model.
        answer: ids that were generated, None if nothing was.
        axes: as in a trace.
        text: what was read, or the answer.
    """

    inputs: dict[str, Any]
    answer: Tensor | None
    axes: dict[str, Axis]
    text: str


def explained(loaded: Loaded, prompt: Encoded, options: ReadOptions, method: str, longest_answer: int) -> Trace:
    """Return the trace of one text with this relevance of each attention.

    Args:
        loaded: the model.
        prompt: what it reads.
        options: how it generates.
        method: one of `COMPUTED`.
        longest_answer: of a model with encoder and decoder, if the options do not say.
    """
    model, scored = loaded.model, method in SCORED
    one = _pass(loaded, prompt, options, longest_answer)
    model.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(scored)  # where the graph begins: no other gradient is computed
    about: dict[str, str | float] = {"model": model.config.model_type}
    with torch.set_grad_enabled(scored):
        with record(model, gradients=scored, values=method == "norms") as tape:
            output = model(**one.inputs)
        if scored:
            score = _score(loaded, one, output)
            score.value.backward()
            about |= {"explained": score.explained, "score": float(score.value.detach())}
            about |= {"said": score.said} if score.said else {}
    paths = named(loaded, tape)
    handles = {name: tape[path] for name, path in paths.items()}
    axes_of = {name: next(pair for kind, pair in AXES.items() if _fits(name, kind)) for name in handles}
    if not loaded.answers:
        axes_of = dict.fromkeys(handles, ("source", "source"))
    trace = Trace.from_handles(handles, one.axes, axes_of, text=one.text, metadata=about)
    model.zero_grad(set_to_none=True)
    if method == "value_zeroing":
        turned = value_zeroing(model, lambda: model(**one.inputs), list(paths.values()))
        return with_maps(trace, method, {name: turned[path][0] for name, path in paths.items()})
    return with_relevance(trace, tape, 0, paths)


def _fits(name: str, kind: str) -> bool:
    before, after = kind.split("{}")
    return name.startswith(before) and name.endswith(after)


def _pass(loaded: Loaded, prompt: Encoded, options: ReadOptions, longest_answer: int) -> Pass:
    model, tokenizer, inputs = loaded.model, loaded.tokenizer, prompt.inputs
    if loaded.answers:
        ids = generate(model, inputs, options, options.generate or longest_answer).ids
        axes = {
            "source": axis_of(tokenizer, inputs["input_ids"][0], "source", prompt),
            "target": axis_of(tokenizer, ids[1:], "target"),
            "input": axis_of(tokenizer, ids[:-1], "target so far"),
        }
        given = {**inputs, "decoder_input_ids": ids[None, :-1], "use_cache": False}
        return Pass(given, ids[1:], axes, tokenizer.decode(ids, skip_special_tokens=True))
    if options.generate is None:
        axis = axis_of(tokenizer, inputs["input_ids"][0], "text", prompt)
        return Pass(dict(inputs), None, {"source": axis}, prompt.text)
    ids = generate(model, inputs, options, options.generate).ids
    axis = axis_of(tokenizer, ids, "prompt and answer", prompt)
    given = {"input_ids": ids[None], "use_cache": False}
    answer = ids[inputs["input_ids"].shape[1] :]
    return Pass(given, answer, {"source": axis}, tokenizer.decode(ids, skip_special_tokens=True))


class Score(NamedTuple):
    """What is explained, in words, and what the model said."""

    value: Tensor
    explained: str
    said: str = ""


def _score(loaded: Loaded, one: Pass, output: Any) -> Score:
    """Return the score of what the model said."""
    if not hasattr(output, "logits"):
        raise ConfigError(
            "chefer and gradient explain what a model says, and this one says nothing: its folder has no layer for "
            "tokens or classes. Take rollout, norms or value_zeroing."
        )
    logs = output.logits[0].log_softmax(-1)
    if one.answer is not None:
        places = slice(-len(one.answer), None) if loaded.answers else slice(-len(one.answer) - 1, -1)
        return Score(logs[places].gather(-1, one.answer[:, None]).sum(), "log-probability of the answer")
    if logs.dim() == 1:
        best = int(logs.argmax())
        names: Mapping[int, str] = loaded.model.config.id2label or {}
        return Score(logs[best], "log-probability of the likeliest class", str(names.get(best, best)))
    if loaded.is_causal:
        best = logs[-1].argmax()
        (said,) = labels_of(loaded.tokenizer, best[None])
        return Score(logs[-1, best], "log-probability of the next token", said)
    mask = loaded.tokenizer.mask_token_id
    masked = torch.tensor([number == mask for number in one.inputs["input_ids"][0].tolist()])
    if not masked.any():
        put = "" if mask is None else f" Put {loaded.tokenizer.mask_token} into the text, or take"
        raise ConfigError(
            "chefer and gradient explain what a model says, and this one fills masks, but there is none."
            f"{put or ' Take'} rollout, norms or value_zeroing."
        )
    found, best = logs[masked].max(-1)
    return Score(found.sum(), "log-probability at the masks", " ".join(labels_of(loaded.tokenizer, best)))
