"""Commands whose flags come from dataclasses: the description of a setting is also its flag's help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, CycloptsPanel, Parameter

from foci.printable import printable
from foci.tasks import every, row_of

if TYPE_CHECKING:
    from foci.tasks.frame.task import Task

Given = dict[str, Any]
"""The values that were given, by the names of their parameters."""


class Flag:
    """A parameter of a command.

    Args:
        name: as it is typed, without dashes.
        help: one or two sentences.
        kind: bool for a switch, list for one that may be given several times, Path or str otherwise.
    """

    def __init__(self, name: str, help: str, kind: type[Any] = str) -> None:
        self.name, self.help, self.kind = name, help, kind

    def parameter(self) -> inspect.Parameter:
        """Return the flag as a keyword-only parameter."""
        hints: dict[type[Any], Any] = {bool: bool, list: list[str] | None, Path: Path | None}
        note = Parameter(name=f"--{self.name}", help=self.help, negative=(), show_default=False)
        return inspect.Parameter(
            self.name.replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if self.kind is bool else None,
            annotation=Annotated[hints.get(self.kind, str | None), note],
        )


SET = Flag("set", "Any setting by its name and value, as in --set training.max_steps=5000; several times.", list)


def make_command(
    function: Callable[..., int | None], doc: str, positional: Sequence[inspect.Parameter], flags: Sequence[Flag]
) -> Callable[..., int | None]:
    """Return a command that calls ``function(*positional, given)`` with the given flags."""

    signature = inspect.Signature([*positional, *(flag.parameter() for flag in flags)])

    def command(*arguments: Any, **values: Any) -> int | None:
        bound = signature.bind(*arguments, **values)
        bound.apply_defaults()
        given = {name: value for name, value in bound.kwargs.items() if value not in (None, False)}
        return function(*bound.args, given)

    command.__doc__ = doc
    command.__signature__ = signature  # type: ignore[attr-defined]
    return command


def argument(name: str, help: str, kind: Any = str, *, many: bool = False, required: bool = True) -> inspect.Parameter:
    """Return a positional parameter."""
    default = inspect.Parameter.empty if many or required else None
    place = inspect.Parameter.VAR_POSITIONAL if many else inspect.Parameter.POSITIONAL_ONLY
    hint = kind if many or required else kind | None
    return inspect.Parameter(name, place, default=default, annotation=Annotated[hint, Parameter(help=help)])


def run(name: str, command: Callable[..., int | None], tokens: Sequence[str], epilogue: str = "") -> int | None:
    """Parse the tokens, and call the command; return what it returns, the exit code if not 0."""
    app = App(name=f"foci {name}", version_flags=[], help_epilogue=epilogue, result_action="return_value")
    app.default(command)
    code: int | None = app(list(tokens), exit_on_error=False, error_formatter=usage_error)
    return code


def usage_error(error: CycloptsError) -> Any:
    """Return a mistake in the arguments as it is shown: what a terminal would interpret is made visible."""
    return CycloptsPanel(printable(error, lines=True))


def run_tasks(name: str, help: str, make: Callable[[str], Callable[..., int | None]], tokens: Sequence[str]) -> None:
    """Parse the tokens of a command that has one subcommand per task; only the named one is made."""
    app = App(name=f"foci {name}", help=help, version_flags=[], result_action="return_value")
    named = {task: row_of(task) for task in tokens[:1] if not task.startswith("-")}
    for task, row in (named or every()).items():
        app.command(make(task) if task in tokens[:1] else lambda: None, name=task, help=row.summary)
    app(list(tokens), exit_on_error=False, error_formatter=usage_error)


def option_flags(options: type[Any]) -> list[Flag]:
    """Return a flag for each option of a call, and --set."""
    from foci.settings import describe

    flags = []
    for one in describe(options()):
        default = "" if one.value in (None, False, ()) or "Default:" in one.doc else f" Default: {one.value}."
        kind = bool if one.is_flag else list if one.is_texts else str
        flags.append(Flag(one.path.replace("_", "-"), one.doc + default, kind))
    return [*flags, SET]


def options_from(options: type[Any], given: Mapping[str, Any]) -> Any:
    """Return the options of a call from the given flags, then --set."""
    from foci.settings import build, describe
    from foci.tasks.frame.config import apply_changes

    names = {one.path for one in describe(options())}
    flags = {name: typed(value) for name, value in given.items() if name in names}
    return build(options, apply_changes(flags, given.get("set", [])), "the command line")


def typed(value: Any) -> Any:
    """Return the value of a flag; text may be TOML, and one of several texts may be a list in TOML."""
    from foci.settings import Text

    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return Text(value) if isinstance(value, str) else value


def task_of_run(tokens: Sequence[str]) -> type[Task] | None:
    """Return the task of the run that one of the tokens names, if one does."""
    for token in tokens:
        if not token.startswith("-") and (Path(token) / "config.json").is_file():
            from foci.tasks.frame.task import find
            from foci.training.run_folder import read_config

            name = read_config(Path(token)).get("task")
            return find(name) if isinstance(name, str) else None
    return None


def require_run(tokens: Sequence[str]) -> None:
    """Raise if a run is named, but there is none."""
    from foci.training.run_folder import read_config

    named = [token for token in tokens if not token.startswith("-")]
    if named:
        read_config(Path(named[0]))
