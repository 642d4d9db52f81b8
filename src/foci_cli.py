"""The program `foci`: the table of its commands, and how their errors are shown.

Nothing is imported before a command runs, and torch only by commands that need it, so that help and version are fast
and the environment variables that torch reads on import are set first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TextIO

# torch reads it on import: without it, waiting threads spin and take processor time from one another.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

GROUPS = {
    "Learn": {
        "list": ("foci.cli.listing:show_list", "List every mechanism, or those of one family."),
        "explain": (
            "foci.cli.explain:explain",
            "Explain one mechanism: equation, paper, symbols, cost, code and numbers.",
        ),
        "gallery": ("foci.cli.gallery:gallery", "Draw a picture of every mechanism at work."),
    },
    "Train": {
        "tasks": ("foci.cli.tasks:show_tasks", "List what can be trained: translate, classify, …"),
        "demo": ("foci.cli.demo:main", "Train and try a task on built-in data, in a few minutes."),
        "train": ("foci.cli.train:main", "Train a model on your data."),
        "evaluate": ("foci.cli.evaluate:main", "Compute the metrics of a run on data it was not trained on."),
        "predict": ("foci.cli.predict:main", "Predict with a run: translate, classify, …"),
        "align": ("foci.cli.align:main", "Align the words of sentence pairs by the attention of a translation run."),
    },
    "See": {
        "show": (
            "foci.cli.show:main",
            "Show what a prediction attended to: in the terminal, as a page or as a picture.",
        ),
        "probe": ("foci.cli.probe:main", "Measure whether what a model attended to mattered for its answers."),
        "compare": ("foci.cli.compare:main", "Show two traces side by side, with their difference."),
        "curves": ("foci.cli.curves:curves", "Draw the training curves of one or more runs."),
    },
    "Machine": {
        "doctor": ("foci.cli.doctor:doctor", "Show which fast paths this machine uses, and why."),
        "build-kernels": ("foci.cli.doctor:build_kernels", "Build the C++ kernels now rather than on first use."),
    },
}
"""title -> name of a command -> (function, the line that help shows)"""

COMMANDS = {name: row for commands in GROUPS.values() for name, row in commands.items()}

OWN_ARGUMENTS = ("demo", "train", "evaluate", "predict", "align", "show", "probe", "compare")
"""Commands whose options depend on the task or the run that is named: they parse their own arguments."""

HELP = """Attention mechanisms, the models built on them, and views of what they attend to.

Start with `foci demo translate` or `foci tasks`; for mechanisms, with `foci list` and `foci explain additive`.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0, 1 if it failed, 2 if its arguments are wrong.

    `foci predict` returns 1 if some of its inputs failed, and 2 if all of them did.
    """
    try:
        from cyclopts import App, CycloptsError, Group
    except ImportError:
        return _fail("the command line needs cyclopts and rich. Install them with: pip install 'foci[cli]'", 1)
    from foci.printable import escape_unencodable

    for stream in (sys.stdout, sys.stderr):
        escape_unencodable(stream)
    app = App(name="foci", help=HELP, version=version("foci"), result_action="return_value")
    for number, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=number)
        for name, (function, summary) in commands.items():
            app.command(function, name=name, help=summary, group=group)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in OWN_ARGUMENTS:
            module, _, name = COMMANDS[given[0]][0].partition(":")
            return getattr(import_module(module), name)(given[1:]) or 0
        from foci.cli.commands import usage_error

        app(given, exit_on_error=False, error_formatter=usage_error)
    except CycloptsError:  # it has printed what is wrong
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from foci.errors import ConfigError, FociError

        if not isinstance(error, FociError | OSError):
            raise
        if isinstance(error, BrokenPipeError) and _is_gone(sys.stdout):  # the reader, such as `head`, is gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            return 0
        return _fail(str(error), 2 if isinstance(error, ConfigError) else 1)
    return 0


def _is_gone(stream: TextIO) -> bool:
    """Return whether the reading end of the pipe was closed."""
    try:
        stream.write(" ")
        stream.flush()
    except OSError:
        return True
    return False


def _fail(message: str, code: int) -> int:
    from foci.printable import printable

    print(f"foci: {printable(message, lines=True)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
