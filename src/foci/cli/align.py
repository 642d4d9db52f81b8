"""`foci align`: the word alignments of sentence pairs, from the attention of one run or of two."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, require_run, run
from foci.names import Symmetrization
from foci.printable import printable

if TYPE_CHECKING:
    from foci.data import Pair
    from foci.metrics.attention import Links
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.translate.aligning import WordAlignment

_DOC = """Align the words of sentence pairs by the attention of a translation run.

foci align RUN pairs.tsv                     or two aligned files, as in training

foci align RUN a.en a.fr --reverse RUN2      with a run from French to English: both joined

Each pair is a line of links source-target such as 0-0 1-2, words counted from 0 between spaces (Pharaoh's form). A pair
that cannot be used is named and has an empty line: the exit code is 1 if there is one, and 2 if there is no other.
"""
_FLAGS = [
    Flag("reverse", "A run of the other direction; what its attention links is joined with the links of RUN.", Path),
    Flag(
        "symmetrize",
        f"How both directions are joined: {', '.join(get_args(Symmetrization))}. Default: grow-diag-final-and.",
    ),
    Flag(
        "gold",
        "Alignments by people, to print AER, precision and recall: lines such as 0-0 1p2 (p or ?: possible), or "
        "sentence source target S|P.",
        Path,
    ),
    Flag("gold-from", "The number of the first word in a file of lines such as 0-0: 0 or 1. Default: 0."),
    Flag("gold-reversed", "The links of the gold file have the target first.", bool),
    Flag("out", "Write the links to this file. Default: standard output.", Path),
    Flag("checkpoint", "auto (averaged, else best), best, last, averaged, or the name of one; of both runs."),
]
_RUN = argument("run", "The folder that training wrote.", Path)
_FILES = argument("files", "Sentence pairs: one file with both sides, or one of sources and one of targets.", many=True)


def main(tokens: Sequence[str]) -> int | None:
    """Run `foci align` with these arguments; return the exit code."""
    from foci.tasks.translate.config import AlignOptions

    if not {"--help", "-h"} & {*tokens}:
        require_run(tokens)

    def command(path: Path, *rest: Any) -> int:
        *files, given = rest
        return align(path, files, given)

    return run("align", make_command(command, _DOC, [_RUN, _FILES], [*_FLAGS, *option_flags(AlignOptions)]), tokens)


def align(path: Path, files: Sequence[str], given: Given) -> int:
    """Align and write; return the exit code: 1 if some pairs could not be used, 2 if none could."""
    from foci.data.lines import Fault, text_encoding
    from foci.errors import ConfigError
    from foci.metrics.attention import format_pharaoh
    from foci.tasks.frame.predictor import load
    from foci.tasks.translate.config import AlignOptions

    if not files:
        raise ConfigError("no files are given, expected sentence pairs: one file with both sides, or one of each.")
    if "symmetrize" in given and "reverse" not in given:
        raise ConfigError("--symmetrize is given without --reverse, expected both: it joins two directions.")
    if "gold" not in given and (lone := {"gold_from", "gold_reversed"} & {*given}):
        raise ConfigError(f"--{min(lone).replace('_', '-')} is given without --gold, expected both.")
    options = options_from(AlignOptions, given)
    runs = [load(one, checkpoint=given.get("checkpoint", "auto")) for one in (path, given.get("reverse")) if one]
    for one in runs:
        if one.task.AlignOptions is None:
            raise ConfigError(f"{one.path}: is a run of {one.task.name}, expected one of translate.")
    with text_encoding(runs[0].task.encoding):
        entries: list[Pair | Fault] = runs[0].task.pair_entries(files)  # type: ignore[attr-defined]
    pairs = [entry._asdict() for entry in entries if not isinstance(entry, Fault)]
    gold = _gold(given, entries) if "gold" in given else None  # before the long work
    found = _both(runs, pairs, options, given) if len(runs) == 2 else _one(runs[0], pairs, options)
    links, failed = _in_lines(entries, found)
    text = "".join(f"{line}\n" for line in (format_pharaoh([one]) for one in links))
    if "out" in given:
        from foci.files import write_text

        write_text(given["out"], text)
    else:
        print(text, end="")
    if gold is not None:
        _print_scores(links, gold)
    if failed:
        print(f"foci: {failed:,} of {len(entries):,} pair{'s' * (len(entries) > 1)} failed", file=sys.stderr)
    return 0 if not failed else 2 if failed == len(entries) else 1


def _one(predictor: Predictor, pairs: Sequence[Any], options: Any) -> list[WordAlignment]:
    """Return the alignments by one run, and say what is read."""
    from foci.cli.progress import counting

    with counting("aligning", len(pairs)) as progress:
        found: list[WordAlignment] = predictor.align(pairs, options=options, progress=progress)
    if read := next((one.read for one in found if one.read), None):
        print(f"reading {read}", file=sys.stderr)
    return found


def _both(runs: Sequence[Predictor], pairs: Sequence[Any], options: Any, given: Given) -> list[WordAlignment]:
    """Return the alignments by two runs, joined, and say what is read of each."""
    from foci.cli.progress import counting
    from foci.metrics.alignments import symmetrize
    from foci.tasks.translate.aligning import align_both

    with counting("aligning", 2 * len(pairs)) as progress:
        there, back, share = align_both(runs[0], runs[1], pairs, options, progress)
    for one, some in zip(runs, (there, back)):
        if read := next((each.read for each in some if each.read), None):
            print(f"reading {read} of {printable(one.path)}", file=sys.stderr)
    print(f"the directions agree in {share:.1%} of their links", file=sys.stderr)
    method = given.get("symmetrize", "grow-diag-final-and")
    return [
        one._replace(links=symmetrize(one.links, other.links, method), note=one.note or other.note)
        for one, other in zip(there, back)
    ]


def _gold(given: Given, entries: Sequence[Any]) -> list[Links]:
    """Return the gold alignments, source first, checked against the numbers of words."""
    from foci.data.lines import Fault, read_lines, strict
    from foci.errors import ConfigError
    from foci.metrics.alignments import parse_gold, transposed

    first = given.get("gold_from", "0")
    if first not in ("0", "1"):
        raise ConfigError(f"--gold-from is {first!r}, expected 0 or 1.")
    sizes = [
        (0, 0) if isinstance(one, Fault) else (len(one.source.split()), len(one.target.split())) for one in entries
    ]
    turned = "gold_reversed" in given
    sizes = [(target, source) if turned else (source, target) for source, target in sizes]
    gold = parse_gold(strict(read_lines(given["gold"])), sizes, str(given["gold"]), first=int(first))
    return [transposed(one) for one in gold] if turned else gold


def _in_lines(entries: Sequence[Any], found: Iterable[WordAlignment]) -> tuple[list[Links], int]:
    """Return the links of every line of the files, and how many lines could not be used, which are named."""
    from foci.data.lines import Fault
    from foci.metrics.attention import Links

    links, failed, rest = [], 0, iter(found)
    for number, entry in enumerate(entries, start=1):
        reason = f"{entry}" if isinstance(entry, Fault) else ""
        if not reason:
            one = next(rest)
            reason = f"pair {number}: {one.note}" if one.note else ""
        if reason:
            failed += 1
            print(f"foci: {printable(reason)}", file=sys.stderr)
        links.append(Links(frozenset()) if reason else one.links)
    return links, failed


def _print_scores(links: Sequence[Links], gold: Sequence[Links]) -> None:
    from foci.metrics.alignments import alignment_scores

    scores = alignment_scores(links, gold)
    shares = f"AER {scores.aer:.1%}, precision {scores.precision:.1%}, recall {scores.recall:.1%}"
    possible = sum(len(one.possible - one.sure) for one in gold)
    counts = f"{scores.predicted:,} links; gold: {scores.sure:,} sure, {possible:,} possible"
    print(f"{shares} ({counts})", file=sys.stderr)
