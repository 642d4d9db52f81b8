"""`foci compare`: two traces side by side on one page, with their difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, run, task_of_run
from foci.printable import printable

if TYPE_CHECKING:
    from foci.viz.trace import Trace

_DOC = """Put two traces side by side on one page, and where they have the same axes, their difference.

foci compare a.json b.json --html out.html           what Trace.save or foci show --save has written

foci compare RUN RUN "a text" --html out.html        two runs, or with --checkpoints two checkpoints of one

foci compare RUN RUN "a text" "another" --html …     two inputs
"""
_FLAGS = [
    Flag("html", "The page to write; it needs no network.", Path),
    Flag("titles", "What the two are called, with a comma between them."),
    Flag(
        "checkpoints", "Of runs: the checkpoint of each (auto, best, last, averaged, or a name), with a comma between."
    ),
]
_FIRST = argument("first", "A saved trace, or a run's folder.", Path)
_SECOND = argument("second", "Another one, of the same kind.", Path)
_INPUTS = argument("inputs", "Of runs: one input for both, or one for each.", many=True)


def main(tokens: Sequence[str]) -> None:
    """Run `foci compare` with these arguments; the options are those of the first run's task."""
    kind = task_of_run(tokens)

    def command(first: Path, second: Path, *rest: Any) -> None:
        *inputs, given = rest
        compare(first, second, tuple(inputs), given)

    own = [] if kind is None else option_flags(kind.Options)
    run("compare", make_command(command, _DOC, [_FIRST, _SECOND, _INPUTS], [*_FLAGS, *own]), tokens)


def compare(first: Path, second: Path, inputs: tuple[str, ...], given: Given) -> None:
    """Write the page, and print its path."""
    from foci.errors import ConfigError
    from foci.viz.comparison import compare as put_together

    if "html" not in given:
        raise ConfigError("--html is missing: name the page to write, such as --html out.html.")
    checkpoints = _two(given, "checkpoints") or ("auto", "auto")
    paths = (first, second)
    traces = [
        _trace(path, checkpoint, inputs, place, given)
        for place, (path, checkpoint) in enumerate(zip(paths, checkpoints))
    ]
    titles = _two(given, "titles") or _titles(paths, checkpoints, inputs)
    print(printable(put_together(traces[0], traces[1], titles).save_html(given["html"])))


def _two(given: Given, name: str) -> tuple[str, str] | None:
    from foci.errors import ConfigError

    if name not in given:
        return None
    parts = [part.strip() for part in given[name].split(",")]
    if len(parts) != 2:
        raise ConfigError(f"--{name} is {given[name]!r}, expected two with a comma between them.")
    return parts[0], parts[1]


def _titles(paths: tuple[Path, Path], checkpoints: tuple[str, str], inputs: tuple[str, ...]) -> tuple[str, str]:
    """Return names that distinguish the two: their files, their checkpoints, or their inputs."""
    if paths[0] != paths[1]:
        names = [path.stem if path.is_file() else path.name for path in paths]
        return (names[0], names[1]) if names[0] != names[1] else (str(paths[0]), str(paths[1]))
    if checkpoints[0] != checkpoints[1]:
        return checkpoints
    return (inputs[0], inputs[1]) if len(inputs) == 2 and inputs[0] != inputs[1] else ("first", "second")


def _trace(path: Path, checkpoint: str, inputs: tuple[str, ...], place: int, given: Given) -> Trace:
    from foci.cli.inputs import from_arguments
    from foci.errors import ConfigError
    from foci.tasks.frame.predictor import load
    from foci.viz.trace import Trace

    if not path.is_dir():
        return Trace.load(path)
    predictor = load(path, checkpoint=checkpoint)
    records = list(from_arguments(predictor.task.inputs, inputs))
    if len(records) not in (1, 2):
        raise ConfigError(f"compare: {len(records)} inputs were given, expected one for both runs, or one for each.")
    options = options_from(predictor.task.Options, given)
    (prediction,) = predictor.predict([records[min(place, len(records) - 1)]], options=options, trace=True)
    if prediction.trace is None or not prediction.trace.attentions:
        raise ConfigError(f"{path}: there is nothing to show: an empty input, or a model without attention.")
    return prediction.trace
