"""`foci.probe`: of any model or run, whether what its attentions read mattered for its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.probing.modules import of_module
from foci.probing.options import Options
from foci.probing.probe import probe_subjects
from foci.probing.report import Probe
from foci.probing.subject import Subject
from foci.settings import build
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.probing.traces import TracedPass, explained_trace, subject_of_trace, subjects_of_tokens
from foci.tasks.frame.task import Progress, as_records, is_empty
from foci.viz.trace import Trace


def probe(
    model: Predictor | nn.Module,
    inputs: Iterable[Any],
    *,
    answer: Callable[[Any], Tensor] | None = None,
    causal: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Probe:
    """Measure whether what each attention and head read mattered for the answers.

    Tokens, regions of images or stretches of sound are erased in the order of the weights, of gradient × input and at
    random; weights are made uniform, permuted, and as different as they can be with the same answer; and they are
    compared with what people marked.

    Args:
        model: what `foci.load` returns, or any module in evaluation mode.
        inputs: as the run takes them, with what people marked as the reason, if they did: ``rationales``,
            ``[[begin, end], …]`` in characters of a text, or ``boxes``, ``[[left, top, right, bottom], …]`` in pixels
            of an image. Of a module, the arguments of each input, by name or in order, with a batch axis of 1, or a
            `foci.probing.Subject`.
        answer: of a module, returns the probabilities of its answers from what it returns.
        causal: of a module, whether tokens see only those before them.
        progress: called with the number of inputs that were just done.
        options: those of `foci.probing.Options`.

    Example:
        >>> import foci
        >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
        >>> model = torch.nn.Sequential(torch.nn.Embedding(11, 8), layer).eval()
        >>> found = foci.probe(model, [[torch.tensor([[4, 7, 9]])]], steps=0)
        >>> sorted(found["1.self_attn"].measures)
        ['comprehensiveness', 'permuted', 'sufficiency', 'tau', 'uniform']
    """
    chosen = build(Options, options, "probe")
    if isinstance(model, Predictor):
        if answer is not None or causal:
            raise ConfigError("probe: answer and causal are for modules; a run knows its answers. Leave them out.")
        return probe_subjects(subjects_of_run(model, inputs, each_token=chosen.each_token), chosen, progress)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"probe: model is a {type(model).__name__}, expected a torch.nn.Module or a loaded run.")
    if chosen.each_token:
        raise ConfigError("probe: each_token is for runs, whose answers it knows. Leave it out.")
    subjects = (
        one if isinstance(one, Subject) else of_module(model, one, answer=answer, causal=causal) for one in inputs
    )
    return probe_subjects(subjects, chosen, progress)


def subjects_of_run(run: Predictor, inputs: Iterable[Any], *, each_token: bool = False) -> Iterator[Subject]:
    """Return inputs of a run as what can be probed; with ``each_token`` every token of their answers for itself."""
    task = run.task
    single = isinstance(inputs, str | bytes | Mapping)
    records = as_records("probe", inputs if single else map(task.as_input, inputs), task.inputs)
    for number, given in enumerate(records):
        if is_empty(given, task.inputs):
            raise ConfigError(f"probe: entry {number} is empty, expected text.")
        with torch.no_grad():
            one = _pass_of(run, given)
            subject = subject_of_trace(run.model, one, given)
        if each_token:
            yield from subjects_of_tokens(subject, one)
        else:
            yield subject


def probed_trace(run: Predictor, given: Any) -> Trace:
    """Return the trace of an input of a run as it is probed."""
    (record,) = as_records("probe", [run.task.as_input(given)], run.task.inputs)
    return _pass_of(run, record).trace


def _pass_of(run: Predictor, given: Mapping[str, Any]) -> TracedPass:
    with torch.no_grad():
        return run.task.traced_pass(run.model, run.assets, run.task.normal(given))


def traces_with_relevance(run: Predictor, inputs: Iterable[Any], method: str) -> Iterator[Trace]:
    """Return the traces of inputs of a run with a relevance that is computed with the model, beside their weights."""
    for given in as_records("relevance", inputs, run.task.inputs):
        yield explained_trace(run.model, _pass_of(run, given), method)
