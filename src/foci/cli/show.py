"""`foci show`: what a prediction attended to, in the terminal, as a page or as a picture."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli import edits
from foci.cli.commands import SET, Flag, Given, argument, make_command, option_flags, options_from, run, task_of_run
from foci.printable import printable
from foci.viz.views import views_of

if TYPE_CHECKING:
    from foci.recording.head_search import HeadRanking, Wanted
    from foci.tasks.frame.predictor import Predictor
    from foci.viz.trace import Trace

_DOC = """Show what a prediction attended to: in the terminal, or as files of the given kinds.

foci show RUN "a text" …       predict with a trained run

foci show trace.json           a trace written by Trace.save

foci show --hf MODEL "a text" …  a Hugging Face model on this machine

Of several inputs each has files of its own: out-1.png, out-2.png.
"""


def _listed(form: str) -> str:
    *names, last = views_of(form)
    return f"{', '.join(names)} or {last}"


_FLAGS = [
    Flag(
        "hf",
        "A Hugging Face model: its folder, or its name on the Hub if the files are in the local cache. foci "
        "downloads nothing.",
    ),
    Flag("html", "Write an interactive page with all attentions; it needs no network.", Path),
    Flag("png", "Write a picture.", Path),
    Flag("svg", "Write a picture.", Path),
    Flag("pdf", "Write a picture.", Path),
    Flag("save", "Write the trace itself (.json, with a .safetensors beside it), to show it again later.", Path),
    Flag("layers", "Keep these layers alone, such as 0,2-4: files of large models become smaller."),
    Flag("heads", "Keep these heads alone, such as 0,2-4."),
    Flag("words", "Join the pieces of words: weights on them are summed, those of pieces that read averaged.", bool),
    Flag(
        "hide",
        "Leave positions out and scale the rest: special tokens by special, attention sinks (what nearly every row "
        "reads) by sinks, others by their labels; several with commas, such as special,sinks.",
    ),
    Flag(
        "relevance",
        "What mattered instead of what was read: rollout (all layers of self-attention), gradient (attention × "
        "gradient), chefer (gradients through all layers), norms (of weighted values) or value_zeroing (how far "
        "outputs turn without a value). Of a run of classify, entail, translate or summarize, of --hf, or of a trace "
        "that has it; rollout of any stack of self-attention. The page has it beside the weights.",
    ),
    Flag(
        "find",
        'Which heads read one word from another, such as "it -> animal"; of a repeated word "it#1" is the second, and '
        '"#7" a position. Pages open there.',
    ),
    Flag(
        "attention",
        "Which attention, by its name. Default: that of the head that says most, where the page opens, too.",
    ),
    Flag("head", "Which head, zero-based. Default: of an attention that was named the mean of all."),
    Flag(
        "view",
        f"Of a picture: {_listed('figure')}. In the terminal: {_listed('terminal')}. Default: the first that fits.",
    ),
    Flag("width", "Of a picture: its width in inches, such as 3.3 for a column of a paper."),
    Flag("scale", "Of a picture: all (the largest weight of all is the darkest) or row (the largest of each row is)."),
    Flag("gamma", "Of a picture: the exponent of its colors; 0.5 brings out small weights."),
    *edits.FLAGS,
    Flag("checkpoint", "Of a run: auto (averaged, else best), best, last, averaged, or the name of one."),
]
_WHAT = argument("what", "A run's folder and inputs; or a saved trace; or, with --hf, texts alone.", many=True)
_EPILOGUE = (
    "`foci show RUN --help` also lists the options of the run's task, such as --beam-size, and `foci show --hf MODEL "
    "--help` how such a model is read: --generate, --temperature, --chat, --image, …."
)


def main(tokens: Sequence[str]) -> None:
    """Run `foci show` with these arguments; the options are those of the run's task."""
    kind = task_of_run(tokens)

    def command(*rest: Any) -> None:
        *what, given = rest
        show(tuple(what), given)

    own = [] if kind is None else option_flags(kind.Options)
    of_hub = any(token.partition("=")[0] == "--hf" for token in tokens)
    if of_hub and kind is None:
        from foci.huggingface import ReadOptions

        own = option_flags(ReadOptions)
        own.remove(SET)
    run("show", make_command(command, _DOC, [_WHAT], [*_FLAGS, *own]), tokens, "" if own else _EPILOGUE)


def show(what: tuple[str, ...], given: Given) -> None:
    """Show, or write files."""
    from foci.errors import ConfigError

    pictures = [_ending(given[kind], kind) for kind in ("png", "svg", "pdf") if kind in given]
    pages = [_ending(given["html"], "html")] if "html" in given else []
    saved = [_ending(given["save"], "json")] if "save" in given else []
    attention, view, head = given.get("attention"), given.get("view"), _head(given)
    in_terminal = not (pictures or pages or saved)
    _check_view(view, pictures=bool(pictures), in_terminal=in_terminal)
    if not in_terminal and not pictures and (attention is not None or head is not None):
        raise ConfigError("--attention and --head choose what a picture shows; the page and the trace hold everything.")
    look = _look(given)
    if look and not pictures:
        raise ConfigError(f"--{next(iter(look))} is for pictures: name a file, such as --png out.png.")
    find = _find(given)
    traces, several = _traces(what, given)
    for number, (trace, shown) in enumerate(traces, start=1):
        choice = {key: value for key, value in (("name", attention), ("head", head)) if value is not None}
        found = None if find is None else trace.heads(*find)
        if in_terminal and found is None:
            _print(shown, attention, head, view, apart=number > 1)
        elif in_terminal and found is not None:
            _print_heads(trace, found, apart=number > 1)
        elif found:
            choice = {"name": found[0].path, "head": shown.attention(found[0].path).head_numbers.index(found[0].head)}
        for line in edits.lines(trace) if in_terminal else ():
            print(printable(line))
        for path in (_numbered(path, number, several) for path in pictures):
            shown.plot(path, view, **choice, **look)
            print(printable(path))
        for path in (_numbered(path, number, several) for path in pages):
            print(printable(trace.save_html(path, opening=found[0] if found else given.get("relevance"))))
        for path in (_numbered(path, number, several) for path in saved):
            print(printable(trace.save(path)))


def _look(given: Given) -> dict[str, Any]:
    """The options of a picture that were given; mistakes in them are reported before anything is predicted."""
    from foci.errors import ConfigError
    from foci.viz.figure.canvas import FigureStyle

    found: dict[str, Any] = {name: given[name] for name in ("width", "scale", "gamma") if name in given}
    for name in ("width", "gamma"):
        try:
            found |= {name: float(found[name])} if name in found else {}
        except ValueError as error:
            raise ConfigError(f"--{name} is {found[name]!r}, expected a number.") from error
    FigureStyle(**found)
    return found


def _head(given: Given) -> int | None:
    from foci.errors import ConfigError

    text = given.get("head")
    if text is not None and not text.isdecimal():
        raise ConfigError(f"--head is {text!r}, expected a zero-based number.")
    return None if text is None else int(text)


def _traces(what: tuple[str, ...], given: Given) -> tuple[Iterable[tuple[Trace, Trace]], bool]:
    """Return the traces with the layers, heads and positions asked for, and whether they are of several inputs.

    Beside each trace stands that of the relevance asked for, which is shown in its stead except on the page.
    """
    layers, heads = (edits.numbers(given[name], f"--{name}") if name in given else None for name in ("layers", "heads"))
    hidden = [part.strip() for part in given.get("hide", "").split(",") if part.strip()]
    kinds = {kind: kind in hidden for kind in ("special", "sinks")}
    tokens = [part for part in hidden if part not in kinds]
    traces, several = _all_traces(what, given)

    def changed(trace: Trace) -> Trace:
        trace = trace.hide(*tokens, **kinds) if hidden else trace
        trace = trace.join_words() if "words" in given else trace
        return trace.select(layers=layers, heads=heads)

    method = given.get("relevance")
    return (
        (changed(trace), changed(trace if method is None else trace.relevance(method))) for trace in traces
    ), several


def _all_traces(what: tuple[str, ...], given: Given) -> tuple[Iterable[Trace], bool]:
    """Return the traces as they are, and whether they are of several inputs."""
    from foci import huggingface
    from foci.errors import CheckpointError, ConfigError
    from foci.training.run_folder import read_config

    if "hf" in given:
        texts = _given(what, '--hf MODEL "your text"')
        options = options_from(huggingface.ReadOptions, given)
        change, each, relevance = edits.edits_from(given), edits.wants_each(given), given.get("relevance")
        read = huggingface.read(given["hf"], texts, options, relevance=relevance, edits=change, without_heads=each)
        return read, len(what) > 1
    if not what:
        raise ConfigError('name a run and a text, or a saved trace: foci show RUN "your text", foci show trace.json.')
    origin, inputs = Path(what[0]), what[1:]
    if not origin.is_dir():
        if edits.edits_from(given) is not None or edits.wants_each(given):
            raise ConfigError(f"{origin} is no run: edits change what a model reads, and a saved trace has no model.")
        return [_saved(origin, inputs)], False
    config = read_config(origin)
    if "task" not in config and "model_type" in config:
        folder = shlex.quote(str(origin))
        raise CheckpointError(f'{origin}: looks like a Hugging Face model. Use: foci show --hf {folder} "your text"')
    traces = _predicted(origin, inputs, given)
    return traces, len(traces) > 1


def _given(texts: tuple[str, ...], call: str) -> tuple[str, ...]:
    from foci.errors import ConfigError

    if not texts:
        raise ConfigError(f"the input is missing: foci show {call}")
    return texts


def _saved(path: Path, texts: tuple[str, ...]) -> Trace:
    from foci.errors import ConfigError, DataError
    from foci.viz.trace import Trace

    if not any(file.is_file() for file in (path, path.with_name(f"{path.name}.json"))):
        raise DataError(f"{path}: there is no such run or saved trace.")
    if texts:
        raise ConfigError(f"{path} is a saved trace and takes no text; {texts[0]!r} was given too.")
    return Trace.load(path)


def _predicted(path: Path, inputs: tuple[str, ...], given: Given) -> list[Trace]:
    from foci.cli.inputs import from_arguments
    from foci.cli.predict import print_notes
    from foci.cli.train import example_inputs
    from foci.errors import ConfigError
    from foci.tasks.frame.predictor import load
    from foci.viz import relevance

    predictor = load(path, checkpoint=given.get("checkpoint", "auto"))
    _given(inputs, f"{shlex.quote(str(path))} {example_inputs(type(predictor.task))}")
    options = options_from(predictor.task.Options, given)
    records = list(from_arguments(predictor.task.inputs, inputs))
    predictions = predictor.predict(records, options=options, trace=True)
    for number, prediction in enumerate(predictions, start=1):
        print_notes(prediction, f"input {number}")
    traces = edits.edited_traces(predictor, records, options, predictions, given)
    if given.get("relevance") in relevance.COMPUTED and None not in traces:
        traces = _explained(predictor, records, given)
    found = [trace for trace in traces if trace is not None and trace.attentions]
    if len(found) < len(traces):
        raise ConfigError(
            f"{path}: there is nothing to show: an empty input, a segment that does not exist, or a model without "
            "attention."
        )
    return found


def _explained(predictor: Predictor, records: list[Any], given: Given) -> list[Trace | None]:
    from foci.errors import ConfigError
    from foci.tasks.frame.probing.runs import traces_with_relevance

    if edits.edits_from(given) is not None or edits.wants_each(given):
        raise ConfigError(f"--relevance {given['relevance']} is of the model as it is. Leave the edits out.")
    return [*traces_with_relevance(predictor, records, given["relevance"])]


def _print(trace: Trace, name: str | None, head: int | None, view: str | None, *, apart: bool) -> None:
    chosen = trace.attention(trace.opening.attention if name is None else name)
    chosen.dense(head)  # a wrong name or head is reported before anything is printed
    if apart:
        print()
    if trace.text:
        print(printable(trace.text))
    trace.print(name, head=head, view=view)


def _print_heads(trace: Trace, found: HeadRanking, *, apart: bool) -> None:
    if apart:
        print()
    width = max((len(one.path) for one in found), default=0)
    for one in found:
        attention = trace.attention(one.path)
        sides = [(trace.axes[attention.target], one.query), (trace.axes[attention.source], one.key)]
        query, key = (f"{' '.join(axis.labels[at] for at in place)} ({place[0]})" for axis, place in sides)
        print(printable(f"{one.path:<{width}}  head {one.head:<3} {one.weight:.2f}  {query} → {key}"))


def _find(given: Given) -> tuple[Wanted, Wanted] | None:
    """Return what "it -> animal" asks for: who reads, and what is read."""
    from foci.errors import ConfigError

    if "find" not in given:
        return None
    for other in ("relevance", "attention", "head"):
        if other in given:
            raise ConfigError(f"--find looks through the weights of all heads. Leave --{other} out.")
    query, _, key = given["find"].replace("→", "->").partition("->")
    if not query.strip() or not key.strip():
        raise ConfigError(f'--find is {given["find"]!r}, expected who reads and what is read, as in "it -> animal".')
    return _wanted(query.strip()), _wanted(key.strip())


def _wanted(text: str) -> Wanted:
    """Return "it" as it is, "it#1" as the second one, and "#7" as a position."""
    word, mark, number = text.rpartition("#")
    if not mark or not number.isdecimal():
        return text
    return (word, int(number)) if word else int(number)


def _check_view(view: str | None, *, pictures: bool, in_terminal: bool) -> None:
    if view is None:
        return
    from foci.errors import ConfigError, unknown_name

    if pictures and view not in (known := views_of("figure")):
        raise unknown_name("view of a picture", view, known)
    if in_terminal and view not in views_of("terminal"):
        hint = " Name a file to draw it into, such as --png out.png." if view in views_of("figure") else ""
        raise ConfigError(f"the terminal shows {_listed('terminal')}, not {view!r}.{hint}")
    if not pictures and not in_terminal:
        raise ConfigError("--view chooses what a picture shows; the page has all views.")


def _ending(path: Path, kind: str) -> Path:
    from foci.errors import ConfigError

    if path.suffix.lower() != f".{kind}":
        raise ConfigError(
            f"--{'save' if kind == 'json' else kind} is {str(path)!r}, expected a name that ends in .{kind}."
        )
    return path


def _numbered(path: Path, number: int, several: bool) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}") if several else path
