"""The settings of a training: a TOML file or a run, then flags, then --set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.errors import ConfigError
from foci.tasks import config as configs
from foci.training.run_folder import read_config


class Settings(NamedTuple):
    """The tables of a configuration, what to call their origin in errors, and the folder of the run."""

    tables: dict[str, Any]
    origin: str
    out: Path


def gather(
    config: Path | None, out: Path | None, flags: Mapping[str, Any], changes: Sequence[str], *, resume: bool
) -> Settings:
    """What was asked for. ``flags`` are values by their dotted paths, None where a flag was not given."""
    if out is None:
        raise ConfigError("--out is missing: the folder of the run.")
    tables: dict[str, Any] = {}
    origin = "the command line"
    if config is not None:
        tables, origin = configs.read_toml(config), str(config)
    elif resume:
        tables, origin = configs.without_none(read_config(out)), str(out / "config.json")
    given = {path: value for path, value in flags.items() if value is not None}
    return Settings(configs.apply_changes(configs.put(tables, given), changes), origin, out)
