"""The logic of the benchmarks: agreement, statistics, memory, the plan of processes and the report, without timing."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import foci
from foci.functional import kernels

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the bench stands beside the package, not in it

from benchmarks import baselines, groups, harness, interference, machine, peers, report, run, worker  # noqa: E402
from benchmarks.groups import steps  # noqa: E402
from benchmarks.interference import QUIET, Counters, Interference  # noqa: E402

FORWARD, TRAIN = harness.FORWARD, harness.TRAIN


def a_case(**changes: Any) -> harness.Case:
    side: Callable[..., Any] = lambda x: harness.call(FORWARD, lambda: x * 2)  # noqa: E731
    fields = {"name": "double (3,)", "measure": FORWARD, "inputs": lambda: (torch.ones(3),), "ours": side}
    return harness.Case(**{**fields, "theirs": side, "against": "another", **changes})


# Agreement


def test_results_that_agree_are_accepted() -> None:
    ours = (torch.tensor([1.0, -2.0]), [torch.zeros(3)])
    theirs = (torch.tensor([1.0, -2.0001]), torch.zeros(3))
    assert harness.disagreement(ours, theirs, 1e-4) is None
    assert harness.disagreement(torch.tensor([1, 2, 3]), [1, 2, 3], 0.0) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]), "result 0 is off by 4.8e-02 of its size (allowed: 1e-04)"),
        ((torch.ones(2), torch.ones(3)), (torch.ones(2), torch.ones(4)), "result 1 has shape (3,), theirs (4,)"),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), "result 0 is not finite"),
        (torch.ones(2), (torch.ones(2), torch.ones(2)), "ours has 1 results, theirs 2"),
        (torch.ones(2), (), "ours has 1 results, theirs 0"),
    ],
)
def test_results_that_differ_are_named(ours: object, theirs: object, said: str) -> None:
    assert harness.disagreement(ours, theirs, 1e-4) == said


def test_theirs_may_give_less_than_ours() -> None:
    assert harness.disagreement((torch.ones(2), torch.zeros(5)), torch.ones(2), 1e-4) is None


def test_a_trained_call_gives_the_gradients_of_its_inputs() -> None:
    x, weight = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    output, gradient = harness.call(TRAIN, lambda: x * weight, (x,), (weight,))()
    direction = torch.linspace(-1, 1, 4)
    assert torch.equal(output, (x * weight).detach())
    assert torch.allclose(gradient, direction * weight)


def test_a_forward_call_needs_no_autograd() -> None:
    x = torch.randn(4, requires_grad=True)
    assert not harness.call(FORWARD, lambda: x * 2)().requires_grad


# Statistics


def test_a_summary_has_the_ratio_of_the_minima_and_the_median_of_the_rounds() -> None:
    found = harness.Timing([2.0, 1.0, 4.0], [10.0, 6.0, 12.0]).summary()  # ratios 5, 6 and 3
    assert found["ratio_min"] == 6.0
    assert found["ratio_median"] == 5.0
    assert (found["ratio_low"], found["ratio_high"]) == (3.0, 6.0)


@pytest.mark.parametrize(
    ("count", "outside"),
    # By the table of the sign test: the k-th smallest and the k-th largest of n values bound the median with 95 %.
    [(3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5), (25, 7), (50, 17)],
)
def test_the_interval_of_a_median_is_that_of_the_sign_test(count: int, outside: int) -> None:
    values = [float(number) for number in range(count)]
    assert harness.interval(values[::-1]) == (outside, count - 1 - outside)


def test_the_interval_holds_the_median_in_95_of_100_samples() -> None:
    generator = torch.Generator().manual_seed(7)
    samples = (
        torch.empty(2000, 17).exponential_(generator=generator).tolist()
    )  # far from symmetric; its median is log 2
    inside = 0
    for sample in samples:
        low, high = harness.interval(sample)
        inside += low <= 0.6931 <= high
    assert 0.94 <= inside / len(samples) <= 0.99


def test_both_sides_take_turns_and_their_order_alternates() -> None:
    calls: list[str] = []
    timing = harness.in_turns(
        lambda: calls.append("ours"), lambda: calls.append("theirs"), seconds=0.0, estimates=(1.0, 1.0)
    )
    assert calls == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert len(timing.ours) == len(timing.theirs) == harness.LEAST_ROUNDS


def test_fast_calls_are_repeated_within_a_sample() -> None:
    calls: list[int] = []
    estimate = harness.SAMPLE_SECONDS / 7
    harness.in_turns(lambda: calls.append(0), None, seconds=0.0, estimates=(estimate, 0.0))
    assert len(calls) == 7 * harness.LEAST_ROUNDS


def rounds_of(monkeypatch: pytest.MonkeyPatch, ratios: list[float], **options: Any) -> int:
    """How many rounds are measured when the ratio of each round, the last one repeated, is as given."""
    sides: list[float] = []
    for number, ratio in enumerate([*ratios, *(ratios[-1:] * 500)]):
        sides += [1.0, ratio] if number % 2 == 0 else [ratio, 1.0]
    durations = iter(sides)
    monkeypatch.setattr(harness, "seconds_of", lambda work, repeats: next(durations))
    options = {"seconds": 1000.0, "least_seconds": 0.0, "estimates": (1.0, 1.0), **options}
    return len(harness.in_turns(lambda: None, lambda: None, **options).ours)


def test_rounds_end_when_the_ratio_is_as_precise_as_its_goal_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 % to either side: enough far from the goal, not near it.
    rough = [50 * factor for factor in (0.96, 1.04, 1.0)]
    assert rounds_of(monkeypatch, rough, goal=20.0) == 3
    assert rounds_of(monkeypatch, rough) == 3
    assert rounds_of(monkeypatch, rough, goal=49.0) > 6
    assert rounds_of(monkeypatch, [1.0, 1.001, 0.999], goal=1.0) == 6  # the fewest with a 95 % interval
    # 20 % to either side: rounds go on, wherever the goal is, but not for ever.
    wide = [50 * factor for factor in (0.8, 1.2, 1.0)]
    assert 3 < rounds_of(monkeypatch, wide, goal=20.0) < 30
    assert rounds_of(monkeypatch, [0.8, 1.2] * 1000) == harness.MOST_ROUNDS
    assert rounds_of(monkeypatch, wide, goal=20.0, seconds=0.0) == 3
    assert rounds_of(monkeypatch, wide, goal=50.0, seconds=0.0) == 6


# Other work on the machine

Window = tuple[float, float, float, float, float]
"""Seconds that passed, that our process ran, that it waited, that processors were idle, that were stolen."""

BUSY: tuple[Window, ...] = (
    # One thread multiplied matrices of 160² on the two processors of a virtual machine (AMD EPYC, Linux 6.18) while
    # tests and compilers of other sessions ran. The median of the products' times lay 1 to 21 % above their minimum.
    (1.0006, 0.9623, 0.0376, 0.01, 0.0),
    (0.3005, 0.2903, 0.0103, 0.0, 0.0),
    (0.3004, 0.1442, 0.1561, 0.0, 0.0),
    (1.0014, 0.5205, 0.4809, 0.0, 0.0),
    (2.0004, 1.9262, 0.0717, 0.0, 0.01),
    (2.0016, 0.9596, 1.0406, 0.0, 0.0),
    (2.0005, 1.1421, 0.8576, 0.0, 0.0),
)


def seen(window: Window, *, threads: int = 1, processors: int = 2) -> dict[str, float]:
    """The interference of a window that begins at arbitrary values of the counters."""
    start = (1234.5, 67.89, 12.34, 5678.9, 1.23)
    before, after = Counters(*start), Counters(*(a + b for a, b in zip(start, window)))
    return interference.between(before, after, threads, processors)._asdict()


@pytest.mark.parametrize("window", BUSY)
def test_recorded_work_of_others_is_noticed(window: Window) -> None:
    said = interference.disturbance(seen(window), QUIET._asdict())
    assert "other processes used" in said
    # Also when the machine was like this before the run: it does not become the measure of quiet.
    assert interference.disturbance(seen(window), seen(BUSY[-1]))


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ((1.0, 1.0, 0.0, 1.0, 0.0), ""),
        # A second process that is always busy, beside ours or in its place.
        ((1.0, 1.0, 0.0, 0.0, 0.0), "other processes used 98% of the free processors"),
        ((1.0, 0.5, 0.5, 0.5, 0.0), "other processes used 98% of the free processors, a thread of ours waited for 50%"),
        ((1.0, 1.0, 0.0, 0.85, 0.0), "other processes used 13%"),
        ((1.0, 0.9, 0.0, 1.0, 0.1), "the hypervisor took 5%"),
        # Sums that are cut off to whole ticks are not taken for other work, also in a short window.
        ((0.3, 0.3, 0.0, 0.28, 0.0), ""),
        ((0.3, 0.3, 0.0, 0.24, 0.0), "other processes used 13%"),
    ],
)
def test_what_is_noticed_and_how_it_is_said(window: Window, said: str) -> None:
    found = interference.disturbance(seen(window), QUIET._asdict())
    assert found.startswith(said) if said else not found


def test_what_the_idle_machine_does_is_allowed_up_to_a_bound() -> None:
    daemon = (2.0, 2.0, 0.0, 1.72, 0.0)  # 13 % of the free processor
    assert interference.disturbance(seen(daemon), QUIET._asdict())
    assert not interference.disturbance(seen(daemon), seen(daemon))
    half = (2.0, 2.0, 0.0, 1.0, 0.0)
    assert interference.disturbance(seen(half), seen(half))


def test_others_are_measured_by_what_we_leave_free() -> None:
    busy = (1.0, 1.0, 0.0, 61.0, 0.0)  # 2 of 63 free processors
    assert seen(busy, processors=64)["others"] == pytest.approx(2 / 63, abs=1e-3)
    both = (1.0, 1.9, 0.1, 0.0, 0.0)  # two threads leave nothing free: others can only take what is ours
    assert interference.disturbance(seen(both, threads=2), QUIET._asdict()) == (
        "a thread of ours waited for 5% of the time"
    )


def test_without_counters_a_thread_that_got_half_a_processor_is_disturbed() -> None:
    before, after = Counters(0.0, 0.0, None, None, None), Counters(1.0, 0.5, None, None, None)
    assert interference.between(before, after, 1) == Interference(0.0, 0.5, 0.0)
    assert interference.between(before, after, 2) == QUIET


BUSY_PROCESS = "print('ready', flush=True)\nwhile True: pass"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_busy_processes_are_noticed_while_a_case_is_measured() -> None:
    # As many as there are processors: more work of others can only add to what has to be noticed.
    busy = [
        subprocess.Popen([sys.executable, "-c", BUSY_PROCESS], stdout=subprocess.PIPE)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        for process in busy:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        x = torch.ones(64, 64)
        timing = harness.in_turns(lambda: x @ x, lambda: x @ x, seconds=0.5, estimates=(1e-4, 1e-4))
    finally:
        for process in busy:
            process.kill()
            process.communicate()
    found = timing.summary()["interference"]
    assert isinstance(found, dict)
    assert interference.disturbance(found, QUIET._asdict())
    assert interference.disturbance(found, found)


def test_the_idle_machine_is_measured_with_one_busy_thread() -> None:
    before = interference.counters()
    found = machine.idle(seconds=0.1)
    after = interference.counters()
    assert all(share >= 0 for share in found)
    assert after.own > before.own


def test_the_same_call_twice_shows_the_noise_of_the_method() -> None:
    found = machine.same(seconds=0.0)
    assert set(found) == {"product", "copy"}
    for ratio, low, high in found.values():
        assert 0 < low <= ratio <= high


# Memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_counts_what_is_kept_and_the_peak_of_a_call() -> None:
    million = 250_000  # float32 numbers in a MB

    def side(x: Tensor) -> Callable[[], Tensor]:
        kept = torch.ones(60 * million)
        return lambda: (torch.ones(100 * million) + x).sum() + kept[0]  # two more of 100 MB at once

    case = a_case(inputs=lambda: (torch.ones(100 * million),), ours=side)
    assert harness.peak_of(case, "ours") == pytest.approx(260, rel=0.1)


# One case, as a worker runs it


def run_case(case: harness.Case, too_slow: dict[Any, int] | None = None) -> dict[str, Any]:
    return worker._run("group", case, 0.0, {} if too_slow is None else too_slow)


def test_a_case_that_agrees_is_timed() -> None:
    found = run_case(a_case())
    assert found["ratio_min"] > 0
    assert found["rounds"] == 3
    assert found["remark"] is None


def test_a_case_whose_results_differ_is_refused_a_time() -> None:
    found = run_case(a_case(theirs=lambda x: lambda: x * 3))
    assert found == {"failed": "refused, the results differ: result 0 is off by 3.3e-01 of its size (allowed: 1e-04)"}


def test_results_can_be_brought_into_one_form_for_the_check() -> None:
    found = run_case(a_case(theirs=lambda x: lambda: [[2], [2, 2]], alike=lambda result: [result[:1], result[1:]]))
    assert "ratio_min" in found


def test_a_peer_that_fails_leaves_our_time() -> None:
    def broken(x: Tensor) -> Callable[[], Tensor]:
        raise ImportError("no module named peer")

    found = run_case(a_case(theirs=broken))
    assert found["remark"] == "theirs: ImportError: no module named peer"
    assert "ours" in found
    assert "theirs" not in found


def test_our_own_failure_is_said() -> None:
    assert run_case(a_case(ours=lambda x: lambda: x @ torch.ones(4)))["failed"].startswith("ours: RuntimeError")


def test_a_curve_is_not_followed_past_a_slow_point() -> None:
    case = a_case(series="line", length=2048)
    assert run_case(case, {("group", "line", FORWARD, "ours"): 1024}) == {
        "failed": "left out: length 1024 took too long"
    }
    found = run_case(case, {("group", "line", FORWARD, "theirs"): 1024})
    assert found["remark"] == "theirs left out: length 1024 took too long"
    slow = {("group", "line", FORWARD, side): 1024 for side in ("ours", "theirs")}
    assert "ratio_median" in run_case(a_case(series="line", length=2048, goal=1.0), slow)


# The plan


def test_every_group_has_its_file_and_its_text() -> None:
    files = {path.stem for path in (ROOT / "benchmarks" / "groups").glob("[a-z]*.py")}
    assert files == set(groups.PEERS)
    for name in groups.PEERS:
        title, _, text = (groups.load(name).__doc__ or "").partition("\n\n")
        assert title
        assert text.strip()
        assert set(groups.PEERS[name]) <= set(peers.PEERS)


@pytest.mark.parametrize("quick", [True, False])
def test_every_group_lists_cases_for_each_of_its_peers(quick: bool) -> None:
    for name, wanted in groups.PEERS.items():
        for peer in wanted:
            cases = list(groups.load(name).cases(peer, quick))
            assert cases
            assert len({(case.name, case.measure, case.against) for case in cases}) == len(cases)
            assert all(case.theirs is None or case.against for case in cases)


def test_one_process_per_peer_and_number_of_threads_and_the_curves_last() -> None:
    planned = list(run.jobs(tuple(groups.PEERS), quick=False, threads_of=lambda group: 2 if group == "decode" else 1))
    assert list(dict.fromkeys(peer for peer, _, _ in planned)) == list(peers.PEERS)
    assert ("keras", ("additive", "heads"), 1) in planned
    assert ("transformers", ("heads", "deformable", "record", "window", "language"), 1) in planned
    assert ("transformers", ("decode",), 2) in planned
    assert planned[-1] == ("torch", ("curves",), 1)
    assert [peer for peer, _, _ in run.jobs(["crf"], quick=False)] == ["pytorch-crf"]
    assert not {peer for peer, _, _ in run.jobs(tuple(groups.PEERS), quick=True)} & set(groups.FULL_RUN_ONLY)
    assert [peer for peer, _, _ in run.jobs(["decode"], quick=True)] == ["transformers", "ctranslate2"]
    all_alike = list(run.jobs(tuple(groups.PEERS), quick=False, threads_of=lambda group: 3))
    assert ("transformers", ("heads", "deformable", "record", "window", "decode", "language"), 3) in all_alike


def test_the_threads_of_the_command_count_for_every_group(tmp_path: Path) -> None:
    options = {"quick": True, "output": tmp_path / "page.md", "results": tmp_path, "command": "python -m benchmarks"}
    default = run.Options(groups=("crf", "decode"), threads=None, **options)
    assert [default.threads_of(group) for group in default.groups] == [1, min(2, os.cpu_count() or 1)]
    asked = run.Options(groups=("crf", "decode"), threads=3, **options)
    assert [asked.threads_of(group) for group in asked.groups] == [3, 3]


def test_a_process_that_dies_is_started_anew_after_the_case_it_died_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = run.Options(("crf",), True, 1, tmp_path / "page.md", tmp_path, "python -m benchmarks")
    started: list[str] = []

    def listen(options: run.Options, asked: list[str], threads: int, show: object, name: str) -> Any:
        skip = int(asked[asked.index("--skip") + 1])
        started.append(f"{name} from {skip}, threads {threads}")
        yield {"kind": "plan", "versions": {"torch": "2.13.0"}, "count": 3}
        for number in range(skip, 3):
            about = a_record(number=number)
            yield {**about, "kind": "start"}
            if number == 1:
                return
            yield about

    monkeypatch.setattr(run, "_listen", listen)
    versions, cases = run._run_peer(options, "pytorch-crf", ["crf"], 1, None, run.Display())
    assert started == ["pytorch-crf from 0, threads 1", "pytorch-crf from 2, threads 1"]
    assert versions == {"torch": "2.13.0"}
    assert [case.get("failed") for case in cases] == [None, "the process died or hung", None]


def test_the_plain_turing_machine_is_ours_row_by_row() -> None:
    module = foci.build("ntm", input_dim=5, num_slots=7, slot_dim=3, num_read_heads=2, num_write_heads=3)
    memory = torch.randn(2, 7, 3)
    reading, writing = (torch.softmax(torch.randn(2, heads, 7), dim=-1) for heads in (2, 3))
    state = type(module.initial_state(1))(memory, reading, writing, reading @ memory)
    ours, theirs = module(torch.ones(2, 5), state), baselines.ntm_step(module, torch.ones(2, 5), state)
    assert torch.allclose(ours[0], theirs[0], atol=1e-6)
    for mine, other in zip(ours[1], theirs[1]):
        assert torch.allclose(mine, other, atol=1e-6)


def test_every_kernel_is_measured_in_a_whole_step() -> None:
    measured = {case.name.partition(":")[0] for case in steps.cases("torch", False) if case.measure == steps.STEP}
    compiled = {row.name for row in kernels.KERNELS if row.kernel is not None}
    assert measured == compiled - {"softmax_rows"}  # it serves views


@pytest.mark.parametrize("number", range(3, 7))  # the cheapest: windows, and the tagger with its chain
def test_steps_with_a_kernel_and_without_agree(number: int) -> None:
    case = [*steps.cases("torch", True)][number]
    given = case.inputs()
    assert case.theirs is not None
    assert harness.disagreement(case.ours(*given)(), case.theirs(*given)(), case.tolerance) is None


# The report


def test_measures_of_one_case_stand_side_by_side() -> None:
    fields = {"group": "steps", "name": "crf: tagger", "against": "without the kernel", "goal": None}
    found = [a_record(**fields, measure=measure) for measure in steps.COLUMNS]
    alone = a_record(**{**fields, "name": "decoder_step: beam search"}, measure=steps.STEP)
    page = report.markdown({"steps": (a_run(), [*found, alone])}, {})
    assert "| what | as an operator | in a whole step |" in page
    assert "| crf: tagger | 52× (50× to 53×) | 52× (50× to 53×) |" in page
    assert "| decoder_step: beam search | – | 52× (50× to 53×) |" in page


def a_record(**changes: Any) -> dict[str, Any]:
    fields = {"kind": "case", "group": "additive", "peer": "torch", "number": 0, "name": "scores (2, 3)"}
    fields |= {"against": "broadcast form", "measure": FORWARD, "goal": 50.0, "memory_goal": 40.0}
    fields |= {"memory_limit": None, "work": ["cell", 1e9], "series": None, "length": None, "remark": None}
    fields |= {"ours": {"min": 0.5, "median": 0.6}, "theirs": {"min": 30.0, "median": 31.0}, "rounds": 5}
    fields |= {"ratio_min": 60.0, "ratio_median": 51.7, "ratio_low": 50.1, "ratio_high": 53.4}
    fields |= {"interference": QUIET._asdict()}
    return {**fields, "ours_megabytes": 25.0, "theirs_megabytes": 900.0, **changes}


def a_run(**changes: Any) -> dict[str, Any]:
    machine = {"processor": "a chip", "cores": 2, "memory_gb": 4, "system": "Linux", "python": "3.11"}
    limits = {"gemm": 5e10, "bandwidth": 1e10, "cell": 8e9}
    fields = {"kind": "run", "when": "2026-01-02 03:04", "took": 95, "command": "python -m benchmarks", "quick": False}
    fields |= {"threads": 1, "machine": machine, "idle": QUIET._asdict(), "limits": limits, "limits_threads": 1}
    fields |= {"same": {"product": [1.001, 0.998, 1.004], "copy": [0.99, 0.97, 1.02]}, "foci": "abc"}
    return {**fields, "versions": {"torch": "2.13.0"}, "failed": {}, **changes}


def test_the_report_shows_ratios_goals_memory_and_limits() -> None:
    page = report.markdown({"additive": (a_run(), [a_record()])}, {})
    assert (
        "| scores (2, 3) | torch: broadcast form | forward | 52× | 50× to 53× | 60× | ≥ 50× "
        "| 25 / 900 MB (36×), (≥ 40×) | 25% of cell |"
    ) in page
    assert "8 Gcells/s" in page
    assert "1 min 35 s" in page
    assert "came out as 1.00× (1.00× to 1.00×) for a product and 0.99× (0.97× to 1.02×) for a copy" in page
    assert "too busy" not in page


@pytest.mark.parametrize(
    ("low", "median", "high", "goal"),
    [
        (1.004, 1.02, 1.03, "≥ 1×"),
        (0.98, 1.01, 1.03, "≥ 1×?"),
        (0.97, 0.99, 1.01, "(≥ 1×?)"),
        (0.9, 0.95, 0.99, "(≥ 1×)"),
    ],
)
def test_a_goal_is_reached_or_missed_or_within_the_interval(low: float, median: float, high: float, goal: str) -> None:
    case = a_record(ratio_low=low, ratio_median=median, ratio_high=high, ratio_min=1.0, goal=1.0)
    page = report.markdown({"additive": (a_run(), [case])}, {})
    assert f"| {median:.2f}× | {low:.2f}× to {high:.2f}× | 1.00× | {goal} |" in page


def test_a_disturbed_case_is_marked() -> None:
    page = report.markdown({"additive": (a_run(), [a_record(interference={**QUIET._asdict(), "others": 1.0})])}, {})
    assert "| 52× ~ |" in page
    assert "~ |" not in report.markdown({"additive": (a_run(), [a_record()])}, {})


def test_a_page_keeps_the_sections_of_groups_that_were_not_measured() -> None:
    heads = a_record(group="heads", name="heads (2, 3)")
    both = {"additive": (a_run(), [a_record()]), "heads": (a_run(), [heads])}
    page = report.markdown(both, {})
    assert report.older_page(page, both) is None
    later = {"heads": (a_run(foci="later", when="2026-02-03 04:05"), [{**heads, "ratio_median": 1.23}])}
    older = report.older_page(page, later)
    assert older is not None
    assert [*older.sections] == ["additive"]
    found = report.markdown(later, {}, older)
    # The table of the other group and the head are as they were; the measured section is new and says of which run.
    head, additive, heads_section = found.split("\n## Additive attention\n")[0], *found.split("\n## ")[2:]
    assert head == page.split("\n## Additive attention\n")[0]
    assert f"## {additive}" in page
    assert "1.23×" in heads_section
    assert "2026-02-03 04:05" in heads_section
    assert "foci later; torch 2.13.0" in heads_section
    assert "later" not in head + additive
    # A group that the page did not have yet takes its place in the order of the groups.
    crf = {"alibi": (a_run(), [{**heads, "group": "alibi"}])}
    third = report.older_page(found, crf)
    titles = [part.partition("\n")[0] for part in report.markdown(crf, {}, third).split("\n## ")[1:]]
    assert titles[1:3] == ["Additive attention", "Multi-head attention"]
    assert titles[3].startswith("ALiBi")


def test_the_report_never_states_seconds_of_a_call() -> None:
    page = report.markdown({"additive": (a_run(), [a_record(ours={"min": 0.123456, "median": 0.2})])}, {})
    assert "0.123" not in page


def test_the_report_says_what_is_missing_and_why() -> None:
    lost = {"kind": "case", "group": "additive", "peer": "keras", "name": "step", "against": "Layer"}
    lost |= {"measure": FORWARD, "failed": "refused, the results differ: …", "series": None}
    page = report.markdown({"additive": (a_run(failed={"eole": "no wheel"}), [a_record(), lost])}, {})
    assert "refused, the results differ: …: step (forward against keras)" in page
    assert "eole could not be installed and is left out: no wheel" in page


def test_the_report_says_when_the_machine_was_too_busy() -> None:
    busy = {**QUIET._asdict(), "others": 0.97}
    disturbed = {"additive": (a_run(), [a_record(interference=busy), a_record()])}
    assert "too busy to trust these metrics: other work disturbed 1 of 2 cases" in report.markdown(disturbed, {})
    crowded = {"additive": (a_run(idle=busy), [a_record()])}
    assert "used 97% of the free processors before the run began" in report.markdown(crowded, {})
    one_of_five = {"additive": (a_run(), [a_record(interference=busy), *(a_record() for _ in range(4))])}
    assert "too busy" not in report.markdown(one_of_five, {})


def test_a_report_is_rebuilt_from_kept_results(tmp_path: Path) -> None:
    points = [
        a_record(group="curves", series=name, length=length, name=f"{name}, {length}", against="", goal=None)
        for name in ("scaled_dot", "additive")
        for length in (64, 256)
    ]
    for group, cases in (("additive", [a_record()]), ("curves", points)):
        lines = [json.dumps(record) for record in (a_run(), *cases)]
        (tmp_path / f"{group}.jsonl").write_text("\n".join(lines))
    page = tmp_path / "page" / "benchmarks.md"
    assert report.main([str(tmp_path), str(page)]) == 0
    assert "](images/bench-curves.png)" in page.read_text()
    assert (page.parent / "images" / "bench-curves.png").stat().st_size > 1000


def test_without_results_there_is_no_report(tmp_path: Path) -> None:
    assert report.main([str(tmp_path), str(tmp_path / "page.md")]) == 1


# The command


def test_the_command_refuses_an_unknown_group_or_no_threads(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["aditive"], "no group 'aditive', expected one of additive, "),
        (["--threads", "0"], "--threads is 0, expected 1 or more"),
    ):
        with pytest.raises(SystemExit):
            run.main(arguments)
        assert re.search(message, capsys.readouterr().err)


def test_the_command_that_is_shown_repeats_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[run.Options] = []
    monkeypatch.setattr(peers, "install", lambda *_, **__: {})
    monkeypatch.setattr(run, "_measure", lambda options, *_: None)
    monkeypatch.setattr(run, "_report", lambda options: asked.append(options) or 0)
    assert run.main(["crf", "ntm", "--quick", "--threads", "2"]) == 0
    assert run.main([]) == 0
    assert [options.command for options in asked] == [
        "python -m benchmarks crf ntm --quick --threads 2",
        "python -m benchmarks",
    ]
    assert asked[1].groups == tuple(groups.PEERS)
