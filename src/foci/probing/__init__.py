"""Whether what a model attended to mattered for its answer: `foci.probe`, and what it is made of."""

from typing import TYPE_CHECKING

from foci.lazy import attach

if TYPE_CHECKING:
    from foci.probing.erasers import Cells as Cells
    from foci.probing.erasers import Embedded as Embedded
    from foci.probing.modules import of_module as of_module
    from foci.probing.options import Options as Options
    from foci.probing.probe import probe_subjects as probe_subjects
    from foci.probing.report import Probe as Probe
    from foci.probing.subject import Source as Source
    from foci.probing.subject import Subject as Subject

_HOMES = {
    "Cells": "foci.probing.erasers",
    "Embedded": "foci.probing.erasers",
    "Options": "foci.probing.options",
    "Probe": "foci.probing.report",
    "Source": "foci.probing.subject",
    "Subject": "foci.probing.subject",
    "of_module": "foci.probing.modules",
    "probe_subjects": "foci.probing.probe",
}

if not TYPE_CHECKING:
    __all__ = sorted(_HOMES)
    __getattr__, __dir__ = attach(__name__, _HOMES)
