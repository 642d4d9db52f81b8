"""`foci show`: what a prediction looked at, in the terminal, as a page or as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foci.cli import huggingface
from foci.errors import CheckpointError, ConfigError, DataError, unknown_name
from foci.tasks import load
from foci.tasks.memorise import Memoriser
from foci.tasks.translate import Search, Translator
from foci.training import read_config
from foci.viz.labels import shown
from foci.viz.plots import VIEWS
from foci.viz.terminal import STYLES
from foci.viz.trace import Trace


def show(
    *what: str,
    hf: Path | None = None,
    html: Path | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    pdf: Path | None = None,
    save: Path | None = None,
    attention: str | None = None,
    head: int | None = None,
    view: str | None = None,
    checkpoint: str = "auto",
    beam: int | None = None,
) -> None:
    """Show what a prediction looked at: in the terminal, or as files of the kinds that are named.

    foci show RUN "a text" …       predict with a trained run
    foci show RUN 40 …             of memorise: the memory's tape of a sequence of this length, or of its training's
    foci show trace.json           what Trace.save has written
    foci show --hf DIR "a text" …  read with a Hugging Face model on this machine

    Of several texts each has files of its own: out-1.png, out-2.png.

    Parameters
    ----------
    what
        A run's folder and texts (of memorise: lengths); or a saved trace; or, with --hf, texts alone.
    hf
        The folder of a Hugging Face model with its tokeniser; nothing is downloaded.
    html
        Write a page to explore everything with; it needs no network.
    png
        Write a picture.
    svg
        Write a picture.
    pdf
        Write a picture.
    save
        Write the trace itself (.json, with a .safetensors beside it), to show it again later.
    attention
        Which attention, by its name; the one between source and target in the last layer unless given.
    head
        Which head, from 0 on; the mean of all unless given.
    view
        Of a picture: heatmap, heads, image, spectrogram, document, memory or marginals. In the terminal: heat,
        ranked or document. What fits unless given.
    checkpoint
        Of a run: auto (averaged, else best), best, last, averaged, or the name of one.
    beam
        Of a translator: hypotheses kept side by side, 5 unless given; 1 is greedy search.
    """
    pictures = [_ending(path, kind) for kind, path in (("png", png), ("svg", svg), ("pdf", pdf)) if path is not None]
    pages = [] if html is None else [_ending(html, "html")]
    saved = [] if save is None else [_ending(save, "json")]
    in_terminal = not (pictures or pages or saved)
    _check_view(view, pictures=bool(pictures), in_terminal=in_terminal)
    if not in_terminal and not pictures and (attention is not None or head is not None):
        raise ConfigError("--attention and --head choose what a picture shows; the page and the trace hold everything.")
    traces, several = _traces(what, hf, checkpoint, beam)
    for number, trace in enumerate(traces, start=1):
        name = attention or _shown_by_default(trace, view)
        if in_terminal:
            _print(trace, name, head, view, apart=number > 1)
        choice = {key: value for key, value in (("name", name), ("head", head)) if value is not None}
        for path in (_numbered(path, number, several) for path in pictures):
            trace.plot(path, view, **choice)
            print(path)
        for path in (_numbered(path, number, several) for path in pages):
            print(trace.save_html(path))
        for path in (_numbered(path, number, several) for path in saved):
            print(trace.save(path))


def _traces(what: tuple[str, ...], hf: Path | None, checkpoint: str, beam: int | None) -> tuple[Iterable[Trace], bool]:
    """The traces, and whether they are of several texts."""
    if beam is not None and (hf is not None or not what or not Path(what[0]).is_dir()):
        raise ConfigError("--beam is for runs of foci train translate.")
    if hf is not None:
        return huggingface.read(hf, _given(what, '--hf DIR "your text"')), len(what) > 1
    if not what:
        raise ConfigError('name a run and a text, or a saved trace: foci show RUN "your text", foci show trace.json.')
    origin, texts = Path(what[0]), what[1:]
    if not origin.is_dir():
        return [_saved(origin, texts)], False
    config = read_config(origin)
    if "task" not in config and "model_type" in config:
        raise CheckpointError(f'{origin}: looks like a Hugging Face model. Use: foci show --hf {origin} "your text"')
    if config.get("task") == "memorise":
        if beam is not None:
            raise ConfigError(f"{origin}: --beam means nothing for this kind of run.")
        return _tapes(origin, texts, checkpoint), len(texts) > 1
    return _predicted(origin, _given(texts, f'{origin} "your text"'), checkpoint, beam), len(texts) > 1


def _given(texts: tuple[str, ...], call: str) -> tuple[str, ...]:
    if not texts:
        raise ConfigError(f"the text is missing: foci show {call}")
    return texts


def _saved(path: Path, texts: tuple[str, ...]) -> Trace:
    if not any(file.is_file() for file in (path, path.with_name(f"{path.name}.json"))):
        raise DataError(f"{path}: there is no such run or saved trace.")
    if texts:
        raise ConfigError(f"{path} is a saved trace and takes no text; {texts[0]!r} was given too.")
    return Trace.load(path)


def _predicted(run: Path, texts: tuple[str, ...], checkpoint: str, beam: int | None) -> list[Trace]:
    loaded = load(run, checkpoint=checkpoint)
    options: dict[str, Any] = {}
    if beam is not None:
        if not isinstance(loaded, Translator):
            raise ConfigError(f"{run}: --beam means nothing for this kind of run.")
        options["search"] = Search(beam=beam)
    traces = [prediction.trace for prediction in loaded.predict(texts, trace=True, **options)]
    if None in traces:
        raise ConfigError(f"{run}: its model keeps no attention that could be shown.")
    return traces


def _tapes(run: Path, lengths: tuple[str, ...], checkpoint: str) -> list[Trace]:
    wrong = [length for length in lengths if not length.isdecimal()]
    if wrong:
        raise ConfigError(f"{run} is a run of memorise and takes lengths, as in foci show {run} 40; got {wrong[0]!r}.")
    memoriser: Memoriser = load(run, checkpoint=checkpoint)
    return [memoriser.trace(length=int(length)) for length in lengths] or [memoriser.trace()]


def _print(trace: Trace, name: str | None, head: int | None, style: str | None, *, apart: bool) -> None:
    chosen = trace.crossing()[0] if name is None else trace.attention(name)
    chosen.dense(head)  # a wrong name or head is told before anything is printed
    if apart:
        print()
    if trace.text:
        print(shown(trace.text))
    trace.print(name, head=head, style=style)


def _shown_by_default(trace: Trace, view: str | None) -> str | None:
    """Which attention must be named: where all are of one side, the last layer; and of which kind the heads are."""
    several = trace.attentions.values()
    if len(several) > 1 and all(attention.source == attention.target for attention in several):
        return max(several, key=lambda attention: attention.layer or 0).name
    return trace.crossing()[0].name if view == "heads" else None


def _check_view(view: str | None, *, pictures: bool, in_terminal: bool) -> None:
    if view is None:
        return
    if pictures and view not in VIEWS:
        raise unknown_name("view of a picture", view, VIEWS)
    if in_terminal and view not in STYLES:
        hint = " Name a file to draw it into, such as --png out.png." if view in VIEWS else ""
        raise ConfigError(f"the terminal shows {', '.join(STYLES[:-1])} or {STYLES[-1]}, not {view!r}.{hint}")
    if not pictures and not in_terminal:
        raise ConfigError("--view chooses what a picture shows; the page has all views.")


def _ending(path: Path, kind: str) -> Path:
    if path.suffix.lower() != f".{kind}":
        raise ConfigError(
            f"--{'save' if kind == 'json' else kind} is {str(path)!r}, expected a name that ends in .{kind}."
        )
    return path


def _numbered(path: Path, number: int, several: bool) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}") if several else path
