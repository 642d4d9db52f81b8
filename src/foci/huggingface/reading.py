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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foci.errors import ConfigError, DataError
from foci.huggingface.explained import COMPUTED, SCORED, explained
from foci.huggingface.loading import Loaded, load
from foci.huggingface.names import AXES, kind_of, named
from foci.huggingface.options import ReadOptions
from foci.huggingface.steps import generate, layers_of, steps_together
from foci.huggingface.tokens import Encoded, axis_of, encoded, in_chat
from foci.recording import Edits, Recording, edit, record
from foci.settings import build
from foci.viz.axis import Axis
from foci.viz.head_answers import UNEDITED, Answer, answers_without_heads, with_answers
from foci.viz.trace import Trace, TracedAttention
from foci.weights import Weights

_Steps = dict[str, tuple[Sequence[Weights], Sequence[int]]]
"""An attention's name -> its calls, and of each the row of the batch that was kept."""


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
        without_heads: put the answers without each head into the metadata (`foci.viz.head_answers`).
    """
    options = options if isinstance(options, ReadOptions) else build(ReadOptions, options or {}, "read")
    loaded = load(name, options, for_score=relevance in SCORED)
    if options.generate is not None and not (loaded.answers or loaded.is_causal):
        raise ConfigError(f"{name}: generates nothing: each of its tokens reads all others. Leave generate out.")
    if options.generate is None and not loaded.answers:
        _refuse_idle(options)
        if without_heads:
            raise ConfigError(f"{name}: generates nothing here, so there is no answer without a head. Add generate.")
    for text in texts:
        trace = _read(loaded, text, options, relevance)
        if without_heads:
            found = answers_without_heads(loaded.model, functools.partial(_answer, loaded, text, options))
            trace = with_answers(trace, Answer(trace.text), found)
        if edits is not None:
            unedited = trace.text
            with edit(loaded.model) as e:
                edits(e)
                trace = _read(loaded, text, options, relevance)
            if loaded.answers or options.generate is not None:
                trace = replace(trace, metadata={**trace.metadata, UNEDITED: unedited})
        yield trace


def _answer(loaded: Loaded, text: str, options: ReadOptions) -> Answer:
    return Answer(_read(loaded, text, options).text)


def _read(loaded: Loaded, text: str, options: ReadOptions, relevance: str | None = None) -> Trace:
    asked = in_chat(loaded.tokenizer, text, options.system) if options.chat else text
    prompt = encoded(loaded.tokenizer, asked, is_chat=options.chat)
    _check_length(loaded, prompt, 0 if loaded.answers else options.generate or 0)
    if relevance in COMPUTED:
        return explained(loaded, prompt, options, relevance, longest_answer(loaded.model, prompt.inputs))
    with torch.no_grad():
        if loaded.answers:
            return _answered(loaded, prompt, options)
        if options.generate is not None:
            return _continued(loaded, prompt, options)
        return _only_read(loaded, prompt, text)


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
    with record(loaded.model, detach=True) as tape:
        loaded.model(**prompt.inputs)
    handles = {name: tape[path] for name, path in named(loaded, _seen(tape)).items()}
    axes = {"source": axis_of(loaded.tokenizer, prompt.inputs["input_ids"][0], "text", prompt)}
    return _trace(loaded, handles, axes, dict.fromkeys(handles, ("source", "source")), text)


def _continued(loaded: Loaded, prompt: Encoded, options: ReadOptions) -> Trace:
    model = loaded.model
    with record(model, detach=True) as tape:
        made = generate(model, prompt.inputs, options, options.generate or 1)
    # The last token was produced, but nothing was produced after it: what it reads takes one more pass.
    with record(model, detach=True) as last:
        model(**_longer(prompt.inputs, made.ids), use_cache=False)
    axes = {"source": axis_of(loaded.tokenizer, made.ids, "prompt and answer", prompt)}
    steps: _Steps = {}
    for path in _seen(tape).paths:
        for number, calls in enumerate(layers_of(tape.calls(path), made.passes)):
            final = last[path, number]
            calls = [*calls[: len(made.rows)], Weights.from_tensor(final.rows(slice(-1, None)))]
            steps[f"decoder.{len(steps)}.self"] = (calls, [*made.rows, 0])
    count = len(made.rows)
    text = loaded.tokenizer.decode(made.ids, skip_special_tokens=True)
    about = {"generated": f"{count} token{'s' * (count > 1)}"}
    return _of_steps(loaded, steps, axes, dict.fromkeys(steps, ("source", "source")), text, about)


def _longer(inputs: Mapping[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
    """Return the inputs with the ids of prompt and answer; what is said of each token goes on as with the last one."""
    size, more = inputs["input_ids"].shape, len(ids) - inputs["input_ids"].shape[1]
    longer = {
        name: torch.cat([given, given[:, -1:].expand(-1, more)], dim=1) if given.shape == size else given
        for name, given in inputs.items()
    }
    return {**longer, "input_ids": ids[None]}


def _answered(loaded: Loaded, prompt: Encoded, options: ReadOptions) -> Trace:
    model, inputs = loaded.model, prompt.inputs
    with record(model, detach=True) as tape:
        made = generate(model, inputs, options, options.generate or longest_answer(model, inputs))
    steps: _Steps = {}
    axes_of = {}
    counts = dict.fromkeys(AXES, 0)
    for path in _seen(tape).paths:
        kind = kind_of(loaded, path)
        of_encoder = kind.startswith("encoder")
        for calls in layers_of(tape.calls(path), 1 if of_encoder else made.passes):
            name = kind.format(counts[kind])
            counts[kind] += 1
            steps[name], axes_of[name] = (calls, [0] if of_encoder else made.rows), AXES[kind]
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
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return the trace of steps, one layer after the other: the rows of all of them together would be too many."""
    trace = _trace(loaded, {}, axes, {}, text)
    attentions: dict[str, TracedAttention] = {}
    for name, (calls, rows) in steps.items():
        whole = steps_together(name, calls, rows, of_itself=name.endswith(".self"))
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
