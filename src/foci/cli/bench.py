"""`foci bench`: a benchmark of foci against its peers on this machine, implemented in benchmarks/ of the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def bench(
    *groups: str, quick: bool = False, threads: int | None = None, report_only: bool = False, reinstall: bool = False
) -> None:
    """Measure foci against its real peers and write docs/benchmarks.md.

    The first run installs the peers (Keras, x-transformers, transformers, CTranslate2, pytorch-crf and others) into an
    environment of their own, benchmarks/.venv. Results are checked for equality before anything is timed.

    Parameters
    ----------
    groups
        additive, heads, weights, window, alibi, crf, tag, ntm, word_by_word, location_aware, decode, language or
        curves; all unless given.
    quick
        Fewer and smaller cases, in two minutes; the report is written beside the results, in benchmarks/results/quick.
    threads
        Number of threads of both sides: 1 unless given, 2 in the group decode.
    report_only
        Rebuild the report from the results that are kept, without measuring.
    reinstall
        Try again to install the peers.
    """
    from foci.errors import FociError, check_positive, unknown_name

    root = _checkout()
    known = [path.stem for path in (root / "benchmarks" / "groups").glob("[a-z]*.py")]
    for group in groups:
        if group not in known:
            raise unknown_name("group", group, known)
    flags = {"--quick": quick, "--report-only": report_only, "--reinstall": reinstall}
    options = [flag for flag, wanted in flags.items() if wanted]
    if threads is not None:
        check_positive("bench", threads=threads)
        options += ["--threads", str(threads)]
    ended = subprocess.run([sys.executable, "-m", "benchmarks", *groups, *options], cwd=root, check=False)
    if ended.returncode:
        raise FociError(f"the bench ended with exit code {ended.returncode}; see its last lines.")


def _checkout() -> Path:
    """Return the folder that holds benchmarks/: the checkout that foci is installed from, or the current folder."""
    import foci
    from foci.errors import FociError

    for root in (Path(foci.__file__).parents[2], Path.cwd()):
        if (root / "benchmarks" / "__main__.py").exists():
            return root
    raise FociError(
        "the bench is part of the source checkout, not of the installed package. Clone the repository, and run "
        "`foci bench` or `make bench` there."
    )
