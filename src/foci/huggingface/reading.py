"""What Hugging Face models attend to, as traces.

    encoder only, decoder only    one pass over the text: each token attends to the text, or to the tokens before it
    decoder that generates        each step is recorded as it runs, with the cache; prompt and answer are one text
    encoder and decoder           likewise: what each token of the answer read when it was produced

Of a beam search it is the attention of the hypothesis that won. Attentions are named as in foci: ``encoder.0.self``,
``decoder.0.self``, ``decoder.0.cross``.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foci.errors import ConfigError, DataError
from foci.huggingface.explained import explained
from foci.huggingface.images import encoded_with_images, mixed_axis, opened
from foci.huggingface.loading import Loaded, load
from foci.huggingface.names import AXES, kind_of, named, of_sequence
from foci.huggingface.options import ReadOptions
from foci.huggingface.steps import generate, layers_of, steps_together
from foci.huggingface.tokens import Encoded, axis_of, encoded, in_chat
from foci.recording import Edits, Recording, edit, record
from foci.settings import build
from foci.viz.axis import Axis
from foci.viz.heads.answers import UNEDITED, Answer, answers_without_heads, with_answers
from foci.viz.relevance import COMPUTED, SCORED
from foci.viz.trace import Trace, TracedAttention
from foci.weights import Weights

_Steps = dict[str, Sequence[Weights]]
"""An attention's name -> its calls."""


def read(
    name: str | Path,
    texts: Sequence[str],
    options: ReadOptions | Mapping[str, Any] | None = None,
    *,
    relevance: str | None = None,
    edits: Callable[[Edits], object] | None = None,
    without_heads: bool = False,
) -> Iterator[Trace]:
    """Return what a model attends to in each text.

    Args:
        name: a folder with a model and its tokenizer, or the name of one on the Hub whose files are in the local cache.
        texts: what it reads.
        options: see `ReadOptions`; a mapping such as ``{"generate": 40}`` will do.
        relevance: what `Trace.relevance` will be asked for; all but "rollout" are computed here.
        edits: changes what the model reads, as ``lambda edits: edits.knock_out("*", head=2)``: see `foci.edit`. The
            answer without edits is in the trace's metadata.
        without_heads: put the answers without each head into the metadata (`foci.viz.heads.answers`).
    """
    options = options if isinstance(options, ReadOptions) else build(ReadOptions, options or {}, "read")
    loaded = load(name, options, for_score=relevance in SCORED)
    if options.image and loaded.answers:
        raise ConfigError(f"{name}: image has no effect on a model with encoder and decoder. Name one that reads both.")
    if options.image and relevance in COMPUTED:
        raise ConfigError(f"relevance {relevance!r} is computed of texts alone, not with images. Take rollout.")
    if options.generate is not None and not (loaded.answers or loaded.is_causal):
        raise ConfigError(f"{name}: generates nothing: each of its tokens reads all others. Leave generate out.")
    if options.generate is None and not loaded.answers:
        _refuse_idle(options)
        if without_heads:
            fix = "Add generate, such as generate=20." if loaded.is_causal else "Measure its heads with foci probe."
            raise ConfigError(f"{name}: generates nothing here, so there is no answer without a head. {fix}")
    for text in texts:
        with nullcontext() if edits is None else record(loaded.model, detach=True) as tape:
            trace = _read(loaded, text, options, relevance)
        if without_heads:
            found = answers_without_heads(loaded.model, functools.partial(_answer, loaded, text, options))
            trace = with_answers(trace, Answer(trace.text), found)
        if edits is not None and tape is not None:
            unedited = trace.text
            with edit(loaded.model) as e:
                e.names = named(loaded, tape)
                edits(e)
                trace = _read(loaded, text, options, relevance)
            if loaded.answers or options.generate is not None:
                trace = replace(trace, metadata={**trace.metadata, UNEDITED: unedited})
        yield trace


def _answer(loaded: Loaded, text: str, options: ReadOptions) -> Answer:
    return Answer(_read(loaded, text, options).text)


def _read(loaded: Loaded, text: str, options: ReadOptions, relevance: str | None = None) -> Trace:
    prompt = _prompt(loaded, text, options)
    _check_length(loaded, prompt, 0 if loaded.answers else options.generate or 0)
    if relevance in COMPUTED:
        return explained(loaded, prompt, options, relevance, longest_answer(loaded.model, prompt.inputs))
    with torch.no_grad():
        if loaded.answers:
            return _answered(loaded, prompt, options)
        if options.generate is not None:
            return _continued(loaded, prompt, options)
        return _only_read(loaded, prompt, text)


def _prompt(loaded: Loaded, text: str, options: ReadOptions) -> Encoded:
    if not options.image:
        asked = in_chat(loaded.tokenizer, text, options.system) if options.chat else text
        return encoded(loaded.tokenizer, asked, is_chat=options.chat)
    said = [*({"type": "image"} for _ in options.image), {"type": "text", "text": text}]
    asked = in_chat(loaded.processor, said, options.system) if options.chat else text
    return encoded_with_images(loaded, asked, opened(options.image), is_chat=options.chat)


def _refuse_idle(options: ReadOptions) -> None:
    """Raise if there are options of generation where nothing is generated."""
    for name in ("beam_size", "temperature"):
        if getattr(options, name) is not None:
            raise ConfigError(f"{name} has no effect where nothing is generated. Add generate, such as generate=40.")


def _check_length(loaded: Loaded, prompt: Encoded, more: int) -> None:
    count, longest = prompt.inputs["input_ids"].shape[1], loaded.longest
    if count > longest:
        raise ConfigError(f"the text has {count} tokens, but the model reads at most {longest}. Shorten it.")
    if count + more > longest:
        raise ConfigError(
            f"the text has {count} tokens, and {more} more are to be generated, but the model reads at most {longest}. "
            f"Generate at most {longest - count}."
        )


def _only_read(loaded: Loaded, prompt: Encoded, text: str) -> Trace:
    with warnings.catch_warnings(), record(loaded.model, detach=True) as tape:
        warnings.simplefilter("ignore")  # of an empty tape: that is an error below
        loaded.model(**prompt.inputs)
    handles = {name: tape[path] for name, path in named(loaded, _seen(tape)).items()}
    ids = prompt.inputs["input_ids"][0]
    text_alone = axis_of(loaded.tokenizer, ids, "text", prompt)
    axes = {"source": mixed_axis(loaded, ids, prompt) if prompt.images else text_alone}
    return _trace(loaded, handles, axes, dict.fromkeys(handles, ("source", "source")), text)


def _continued(loaded: Loaded, prompt: Encoded, options: ReadOptions) -> Trace:
    made = generate(loaded.model, prompt.inputs, options, options.generate or 1)
    axes = {"source": mixed_axis(loaded, made.ids, prompt)}
    steps: _Steps = {}
    for path in of_sequence(loaded, _seen(made.tape).paths):
        for calls in layers_of(made.tape.calls(path), made.passes):
            steps[f"decoder.{len(steps)}.self"] = calls
    count = len(made.ids) - prompt.inputs["input_ids"].shape[1]
    text = loaded.tokenizer.decode(made.ids, skip_special_tokens=True)
    about = {"generated tokens": float(count)}
    return _of_steps(loaded, steps, axes, dict.fromkeys(steps, ("source", "source")), text, about)


def _answered(loaded: Loaded, prompt: Encoded, options: ReadOptions) -> Trace:
    model, inputs = loaded.model, prompt.inputs
    made = generate(model, inputs, options, options.generate or longest_answer(model, inputs))
    steps: _Steps = {}
    axes_of = {}
    counts = dict.fromkeys(AXES, 0)
    for path in _seen(made.tape).paths:
        kind = kind_of(loaded, path)
        for calls in layers_of(made.tape.calls(path), 1 if kind.startswith("encoder") else made.passes):
            name = kind.format(counts[kind])
            counts[kind] += 1
            steps[name], axes_of[name] = calls, AXES[kind]
    axes = {
        "source": axis_of(loaded.tokenizer, inputs["input_ids"][0], "source", prompt),
        "target": axis_of(loaded.tokenizer, made.ids[1:], "target"),
        # the decoder reads its own input, which is one token behind what it produces
        "input": axis_of(loaded.tokenizer, made.ids[:-1], "target so far"),
    }
    return _of_steps(loaded, steps, axes, axes_of, loaded.tokenizer.decode(made.ids, skip_special_tokens=True))


def _of_steps(
    loaded: Loaded,
    steps: _Steps,
    axes: Mapping[str, Axis],
    axes_of: Mapping[str, tuple[str, str]],
    text: str,
    metadata: Mapping[str, str | float] | None = None,
) -> Trace:
    """Return the trace of steps, one layer after the other: the rows of all of them together would be too many."""
    trace = _trace(loaded, {}, axes, {}, text)
    attentions: dict[str, TracedAttention] = {}
    for name, calls in steps.items():
        whole = steps_together(name, calls, of_itself=name.endswith(".self"))
        attentions |= Trace.from_handles({name: whole}, axes, {name: axes_of[name]}).attentions
    return replace(trace, attentions=attentions, metadata={**trace.metadata, **(metadata or {})})


def _trace(
    loaded: Loaded,
    handles: Mapping[str, Weights],
    axes: Mapping[str, Axis],
    axes_of: Mapping[str, tuple[str, str]],
    text: str,
) -> Trace:
    about = {"model": loaded.model.config.model_type}
    return Trace.from_handles(handles, axes, axes_of, text=text, metadata=about)


def _seen(tape: Recording) -> Recording:
    """Return the tape, and say what is not on it."""
    if not tape:
        raise DataError(f"of this model nothing can be shown. {tape.why_empty}")
    if missed := tape.missed:
        path, reason = next(iter(missed.items()))
        more = f", and {len(missed) - 1} more" if len(missed) > 1 else ""
        print(f"foci: not shown: {path} ({reason}){more}.", file=sys.stderr)
    return tape


def longest_answer(model: Any, inputs: dict[str, Tensor]) -> int:
    """Return the length limit of foci's own search, twice the source plus 20, within the decoder's positions."""
    positions = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
    return int(min(2 * inputs["input_ids"].shape[1] + 20, positions - 1))
