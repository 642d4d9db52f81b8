"""`foci train`: from the user's data to a run, for every task."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import SET, Flag, Given, argument, make_command, run_tasks, typed
from foci.printable import printable
from foci.tasks import row_of

if TYPE_CHECKING:
    from foci.tasks.frame.task import Task

_OUT = Flag("out", "The folder of the run, new or empty.", Path)
_RESUME = Flag("resume", "Continue the run in --out; limits, learning rate and validation may change.", bool)
_INIT = Flag("init-from", "A run of the same task whose weights are the start, words and labels by name.", Path)
_PRINT = Flag("print-config", "Print a TOML file with every setting, its value and its meaning, and stop.", bool)
_SCHEMA = Flag("print-schema", "Print the JSON Schema of the settings, and stop.", bool)


def main(tokens: Sequence[str]) -> None:
    """Run `foci train` with these arguments."""
    run_tasks("train", "Train a model on your data; the run is one folder.", _command, tokens)


def _command(name: str) -> Callable[..., int | None]:
    def command(config: Path | None, given: Given) -> None:
        train(name, config, given)

    doc = f"{row_of(name).summary}\n\nEvery setting with its default: foci train {name} --print-config."
    config = argument("config", "A TOML file with settings; flags and --set override it.", Path, required=False)
    return make_command(command, doc, [config], [_OUT, *task_flags(name), SET, _INIT, _RESUME, _PRINT, _SCHEMA])


def task_flags(name: str) -> list[Flag]:
    """Return the flags of a task's most used settings, with the settings' own descriptions."""
    from foci.settings import describe
    from foci.tasks.frame.config import find_config

    kind = find_config(name)
    listed = {one.path: one for one in describe(kind())}
    return [
        Flag(flag, f"{listed[path].doc} ({path})", bool if listed[path].is_flag else str)
        for flag, path in kind.flags.items()
    ]


def tables_from(name: str, tables: dict[str, Any], given: Given) -> dict[str, Any]:
    """Return the tables with the given flags of the task, then --set."""
    from foci.tasks.frame import config as configs

    flags = {flag.replace("-", "_"): path for flag, path in configs.find_config(name).flags.items()}
    tables = configs.put(tables, {path: typed(given[flag]) for flag, path in flags.items() if flag in given})
    return configs.apply_changes(tables, given.get("set", []))


def train(name: str, config: Path | None, given: Given) -> None:
    """Train, or print the configuration."""
    from foci.errors import ConfigError
    from foci.tasks.frame import config as configs

    kind = configs.find_config(name)
    origin = "the command line" if config is None else str(config)
    tables = tables_from(name, {} if config is None else configs.read_toml(config), given)
    if "init_from" in given:
        tables = configs.put(tables, {"training.init_from": str(given["init_from"])})
    if "print_schema" in given:
        from foci.settings import json_schema

        print(json.dumps(json_schema(kind), indent=1))
        return
    if "print_config" in given:
        tables.pop("task", None)
        made = configs.configure(kind, tables, origin)
        print(configs.commented_toml(made, f"Settings of foci train {name}: {row_of(name).summary}", tables), end="")
        return
    out = given.get("out")
    if out is None:
        raise ConfigError("--out is missing: the folder of the run.")
    import foci
    from foci.tasks.frame.task import find

    summary = foci.train(name, tables, out=out, resume="resume" in given, origin=origin)
    if summary.reason == "interrupted":
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process reports for all
        return
    folder = printable(shlex.quote(str(out)))
    print(f"trained ({summary.reason}) in {summary.seconds:.0f} s: {folder}")
    print(f"try: foci evaluate {folder}; foci show {folder} {example_inputs(find(name))}")


def example_inputs(kind: type[Task]) -> str:
    """Return placeholders for the inputs of a prediction, for hints."""
    return " ".join("20" if field.kind == "number" else f'"{field.name}"' for field in kind.inputs)
