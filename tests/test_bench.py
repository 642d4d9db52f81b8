"""The bench's own logic: agreement, statistics, memory, the plan of processes and the report. Nothing is timed here."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import foci
from foci.cli.bench import bench
from foci.errors import ConfigError, FociError, UnknownNameError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the bench stands beside the package, not in it

from benchmarks import baselines, groups, harness, peers, report, run, worker  # noqa: E402

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


def test_ratios_of_minima_and_median_of_rounds() -> None:
    ours, theirs = [2.0, 1.0, 4.0], [10.0, 6.0, 12.0]
    by_minima, by_rounds = harness.ratios(ours, theirs)
    assert by_minima == 6.0
    assert by_rounds == 5.0  # 5, 6 and 3


def test_both_sides_take_turns_and_their_order_alternates() -> None:
    calls: list[str] = []
    timing = harness.in_turns(
        lambda: calls.append("ours"),
        lambda: calls.append("theirs"),
        harness.Calibration(),
        seconds=0.0,
        least_rounds=4,
        estimates=(1.0, 1.0),
    )
    assert calls == ["ours", "theirs", "theirs", "ours"] * 2
    assert len(timing.ours) == len(timing.theirs) == 4
    assert set(timing.summary()) >= {"ours", "theirs", "ratio_min", "ratio_median", "busy"}


def test_fast_calls_are_repeated_within_a_sample() -> None:
    calls: list[int] = []
    estimate = harness.SAMPLE_SECONDS / 7
    harness.in_turns(
        lambda: calls.append(0), None, harness.Calibration(), seconds=0.0, least_rounds=2, estimates=(estimate, 0.0)
    )
    assert len(calls) == 14


def test_a_disturbed_measurement_is_busy() -> None:
    assert not harness.Timing(dispersion=1.05, share=0.99).busy
    assert harness.Timing(dispersion=1.30, share=0.99).busy
    assert harness.Timing(dispersion=1.05, share=0.50).busy


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
    return worker._run("group", case, harness.Calibration(), 0.0, True, {} if too_slow is None else too_slow)


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


# The plan


def test_every_group_has_its_file_and_its_text() -> None:
    files = {path.stem for path in (ROOT / "benchmarks" / "groups").glob("[a-z]*.py")}
    assert files == set(groups.PEERS)
    assert f"{', '.join([*groups.PEERS][:-1])} or {[*groups.PEERS][-1]};" in (bench.__doc__ or "")
    for name in groups.PEERS:
        title, _, about = (groups.load(name).__doc__ or "").partition("\n\n")
        assert title
        assert about.strip()
        assert set(groups.PEERS[name]) <= set(peers.PEERS)


@pytest.mark.parametrize("quick", [True, False])
def test_every_group_lists_cases_for_each_of_its_peers(quick: bool) -> None:
    for name, wanted in groups.PEERS.items():
        for peer in wanted:
            cases = list(groups.load(name).cases(peer, quick))
            assert cases
            assert len({(case.name, case.measure, case.against) for case in cases}) == len(cases)
            assert all(case.theirs is None or case.against for case in cases)


def test_one_process_a_peer_and_the_curves_last() -> None:
    planned = list(run.jobs(tuple(groups.PEERS), quick=False))
    assert [peer for peer, _ in planned] == [*peers.PEERS, "torch"]
    assert dict(planned[:-1])["keras"] == ("additive", "heads")
    assert planned[-1] == ("torch", ("curves",))
    assert [peer for peer, _ in run.jobs(["crf"], quick=False)] == ["pytorch-crf"]
    assert not {peer for peer, _ in run.jobs(tuple(groups.PEERS), quick=True)} & set(groups.FULL_RUN_ONLY)
    assert [peer for peer, _ in run.jobs(["decode"], quick=True)] == ["transformers", "ctranslate2"]


def test_a_process_that_dies_is_started_anew_after_the_case_it_died_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = run.Options(("crf",), True, 1, tmp_path / "page.md", tmp_path, "foci bench")
    started: list[str] = []

    def listen(options: run.Options, asked: list[str], show: object, name: str) -> Any:
        skip = int(asked[asked.index("--skip") + 1])
        started.append(f"{name} from {skip}")
        yield {"kind": "plan", "versions": {"torch": "2.13.0"}, "count": 3}
        for number in range(skip, 3):
            about = a_record(number=number)
            yield {**about, "kind": "start"}
            if number == 1:
                return
            yield about

    monkeypatch.setattr(run, "_listen", listen)
    versions, cases = run._run_peer(options, "pytorch-crf", ["crf"], None, run.Progress())
    assert started == ["pytorch-crf from 0", "pytorch-crf from 2"]
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


# The report


def a_record(**changes: Any) -> dict[str, Any]:
    fields = {"kind": "case", "group": "additive", "peer": "torch", "number": 0, "name": "scores (2, 3)"}
    fields |= {"against": "broadcast form", "measure": FORWARD, "goal": 50.0, "memory": True, "memory_goal": 40.0}
    fields |= {"memory_limit": None, "work": ["cell", 1e9], "series": None, "length": None, "remark": None}
    fields |= {"ours": {"min": 0.5, "median": 0.6}, "theirs": {"min": 30.0, "median": 31.0}, "rounds": 5}
    fields |= {"ratio_min": 60.0, "ratio_median": 51.7, "dispersion": 1.0, "share": 1.0, "busy": False}
    return {**fields, "ours_megabytes": 25.0, "theirs_megabytes": 900.0, **changes}


def a_run(**changes: Any) -> dict[str, Any]:
    machine = {"processor": "a chip", "cores": 2, "memory_gb": 4, "system": "Linux", "python": "3.11"}
    limits = {"gemm": 5e10, "bandwidth": 1e10, "cell": 8e9}
    fields = {"kind": "run", "when": "2026-01-02 03:04", "took": 95, "command": "foci bench", "quick": False}
    fields |= {"threads": 1, "machine": machine, "load": 0.1, "limits": limits, "foci": "abc"}
    return {**fields, "versions": {"torch": "2.13.0"}, "failed": {}, **changes}


def test_the_report_shows_ratios_goals_memory_and_limits() -> None:
    page = report.markdown({"additive": (a_run(), [a_record()])}, {})
    assert (
        "| scores (2, 3) | torch: broadcast form | forward | 60× | 52× | ≥ 50× | 25 / 900 MB (36×), (≥ 40×) "
        "| 25% of cell |"
    ) in page
    assert "8 Gcells/s" in page
    assert "1 min 35 s" in page
    assert "too busy" not in page


def test_a_goal_that_was_missed_stands_in_brackets() -> None:
    page = report.markdown({"additive": (a_run(), [a_record(ratio_min=1.004, busy=True)])}, {})
    assert "| 1.00× ~ | 52× | (≥ 50×) |" in page


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
    disturbed = {"additive": (a_run(), [a_record(busy=True), a_record()])}
    assert "too busy to trust these figures: 1 of 2 cases" in report.markdown(disturbed, {})
    crowded = {"additive": (a_run(load=3.0), [a_record()])}
    assert "too busy" in report.markdown(crowded, {})


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


def test_the_command_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], Path]] = []

    def start(command: list[str], cwd: Path, check: bool) -> Any:
        started.append((command, cwd))
        return type("Ended", (), {"returncode": 0})

    monkeypatch.setattr("foci.cli.bench.subprocess.run", start)
    bench("crf", "ntm", quick=True, threads=2)
    assert started == [([sys.executable, "-m", "benchmarks", "crf", "ntm", "--quick", "--threads", "2"], ROOT)]


def test_the_command_refuses_an_unknown_group_or_no_threads() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown group 'aditive'\. Did you mean 'additive'"):
        bench("aditive")
    with pytest.raises(ConfigError, match="threads is 0"):
        bench(threads=0)


def test_the_command_says_that_it_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(foci, "__file__", str(tmp_path / "lib" / "foci" / "__init__.py"))
    with pytest.raises(FociError, match="part of the source checkout"):
        bench()
