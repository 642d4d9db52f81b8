"""`foci train`: from the user's data to a run, for every task."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from foci.cli.commands import Flag, Given, argument, make_command
from foci.printable import printable
from foci.tasks import TASKS

if TYPE_CHECKING:
    from foci.tasks.frame.task import Task

app = App(name="train", help="Train a model on your data; the run is one folder.")
for _name, _row in TASKS.items():
    app.command(f"foci.cli.train:{_name}", name=_name, help=_row.summary)

_OUT = Flag("out", "The folder of the run, new or empty.", Path)
_SET = Flag("set", "Any setting, such as training.max_steps=5000; may be given several times.", list)
_RESUME = Flag("resume", "Continue the run in --out; limits, learning rate and validation may change.", bool)
_INIT = Flag("init-from", "A run of the same task whose weights are the start, words and labels by name.", Path)
_PRINT = Flag("print-config", "Print a TOML file with every setting, its value and its meaning, and stop.", bool)


_FLAGS = Path(__file__).with_name("task_flags.json")
"""`derive_flags` of every task, written by `make docs`, so that `foci train TASK --help` does not import torch."""


def __getattr__(name: str) -> Callable[..., None]:
    """Return the command of a task."""
    if name not in TASKS:
        raise AttributeError(name)

    def command(config: Path | None, given: Given) -> None:
        from foci.tasks.frame.task import find

        train(find(name), config, given)

    doc = f"{TASKS[name].summary}\n\nEvery setting with its default: foci train {name} --print-config."
    config = argument("config", "A TOML file with settings; flags and --set override it.", Path, required=False)
    return make_command(command, doc, [config], [_OUT, *task_flags(name), _SET, _INIT, _RESUME, _PRINT])


def task_flags(name: str) -> list[Flag]:
    """Return the flags of a task's most used settings."""
    written = json.loads(_FLAGS.read_text(encoding="utf-8"))
    rows = written[name] if name in written else derive_flags(name)
    return [Flag(row["name"], row["help"], bool if row["switch"] else str) for row in rows]


def derive_flags(name: str) -> list[dict[str, Any]]:
    """Return name and help of the flags of a task, with the settings' own descriptions, and which are switches."""
    from foci.tasks.frame import config as configs
    from foci.tasks.frame.task import find

    kind = find(name)
    found = {one.path: one for one in configs.settings(kind.Config())}
    return [
        {"name": flag, "help": f"{found[path].doc} ({path})", "switch": configs.is_flag(found[path].hint)}
        for flag, path in kind.Config.flags.items()
    ]


def tables_from(kind: type[Task], tables: dict[str, Any], given: Given) -> dict[str, Any]:
    """Return the tables with the given flags of the task, then --set."""
    from foci.tasks.frame import config as configs

    typed = {
        path: given[name.replace("-", "_")]
        for name, path in kind.Config.flags.items()
        if name.replace("-", "_") in given
    }
    texts = {path: configs.Text(value) if isinstance(value, str) else value for path, value in typed.items()}
    return configs.apply_changes(configs.put(tables, texts), given.get("set", []))


def train(kind: type[Task], config: Path | None, given: Given) -> None:
    """Train, or print the configuration."""
    import foci
    from foci.errors import ConfigError
    from foci.tasks.frame import config as configs

    origin = "the command line" if config is None else str(config)
    tables = tables_from(kind, {} if config is None else configs.read_toml(config), given)
    if "init_from" in given:
        tables = configs.put(tables, {"training.init_from": str(given["init_from"])})
    if "print_config" in given:
        tables.pop("task", None)
        made = configs.configure(kind.Config, tables, origin)
        print(configs.commented_toml(made, f"Settings of foci train {kind.name}: {TASKS[kind.name].summary}"), end="")
        return
    out = given.get("out")
    if out is None:
        raise ConfigError("--out is missing: the folder of the run.")
    summary = foci.train(kind.name, tables, out=out, resume="resume" in given, origin=origin)
    if summary.reason == "interrupted":
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process reports for all
        return
    folder = printable(shlex.quote(str(out)))
    print(f"trained ({summary.reason}) in {summary.seconds:.0f} s: {folder}")
    print(f"try: foci evaluate {folder}; foci show {folder} {example_inputs(kind)}")


def example_inputs(kind: type[Task]) -> str:
    """Return placeholders for the inputs of a prediction, for hints."""
    return " ".join("20" if field.kind == "number" else f'"{field.name}"' for field in kind.inputs)
