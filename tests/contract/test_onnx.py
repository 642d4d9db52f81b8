"""Exported programs that leave foci: every mechanism in onnxruntime, and as a program of plain torch operators.

A program is exported once with dynamic sizes. Its outputs and weights are compared with the module's at other sizes:
more queries than keys, fewer, a batch of one, and rows that may read nothing.
"""

import subprocess
import sys
from functools import cache

import onnxruntime
import pytest
import torch
from cases import any_inputs, make, tensors
from sized_cases import BATCH, CASES, CELLS, QUERIES, ROWS, SHAPES, WORDS
from torch import nn
from torch.export import export

import foci

SIZES = ((3, 5, 7), (2, 11, 13), (5, 13, 6), (1, 1, 1))
"""Batch, queries and keys of what is exported, and of what is run."""


@pytest.fixture(scope="module", autouse=True)
def torch_reads_its_library_once():
    """For every program torch reads hundreds of functions anew, all the same ones: a sixth of the time."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # it is no public name: where it is gone, the tests take longer
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


class Plain(nn.Module):
    """A mechanism whose results are tensors: handles are made dense."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return tuple(tensors(self.module(*inputs)))


def in_onnxruntime(module, shapes, *cases):
    """Compare on every case the module with an ONNX program, made from the first case."""
    module = module.eval()
    with torch.no_grad():
        program = export(module, cases[0], dynamic_shapes=(shapes,))
        program = program.run_decompositions(foci.decompositions())
        onnx = torch.onnx.export(program, dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of what its own optimizer leaves behind
    session = onnxruntime.InferenceSession(onnx.model_proto.SerializeToString(), options)
    for case in cases:
        fed = {place.name: one.numpy() for place, one in zip(session.get_inputs(), case, strict=True)}
        for have, want in zip(session.run(None, fed), module(*case), strict=True):
            torch.testing.assert_close(torch.from_numpy(have), want, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), ROWS, ids=[name for _, name in ROWS])
def test_every_row(family, name):
    shapes = (WORDS, WORDS) if name == "hierarchical" else SHAPES[family]
    in_onnxruntime(Plain(make(name)), shapes, *(CASES[family](name, *sizes) for sizes in SIZES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["scaled_dot", "additive", "location_aware", "local_p", "sliding_window", "multi_head"]
)
def test_without_a_mask(name):
    in_onnxruntime(Plain(make(name)), SHAPES["attend"][:3], *(CASES["attend"](name, *sizes)[:3] for sizes in SIZES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"window": (2, 1)},
        {"window": (2, None), "keep_weights": True},
        {"alibi": True},
        {"rotary": True, "causal": True},
        {"num_key_heads": 2, "window": (1, 3)},
    ],
    ids=str,
)
def test_options_of_multi_head(options):
    module = foci.build("multi_head", model_dim=8, num_heads=4, **options)
    shapes = ({0: BATCH, 1: QUERIES}, CELLS)
    cases = [(torch.randn(batch, queries, 8), torch.randn(batch, keys, 8)) for batch, queries, keys in SIZES]
    in_onnxruntime(Plain(module), shapes, *cases)


@pytest.mark.slow
def test_a_step_of_memory():
    module = make("ntm")
    State = type(module.initial_state(1))

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            output, state = self.module(inputs[0], State(*inputs[1:]))
            return output, *state

    cases = [
        (*any_inputs("ntm", batch), *(torch.rand_like(one) for one in module.initial_state(batch)))
        for batch in (3, 5, 1)
    ]
    in_onnxruntime(Step(), ({0: BATCH},) * len(cases[0]), *cases)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "more"), [("log_partition", ()), ("viterbi", ()), ("viterbi", (3,))], ids=str)
def test_chains(method, more):
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.crf = make("crf")

        def forward(self, *inputs):
            found = getattr(self.crf, method)(*inputs, *more)
            return found if isinstance(found, tuple) else (found,)

    in_onnxruntime(Chain(), SHAPES["pool"], *(CASES["pool"]("crf", *sizes) for sizes in SIZES))


RUN = """
import sys
sys.modules["foci"] = None  # an import of it fails
import torch
for folder in sys.argv[1:]:
    program, case = torch.export.load(f"{folder}/program.pt2"), torch.load(f"{folder}/case.pt")
    torch.save(list(program.module()(*case)), f"{folder}/found.pt")
"""


@pytest.mark.slow
def test_programs_run_where_there_is_no_foci(tmp_path):
    wanted = {}
    for family, name in (("attend", "additive"), ("attend", "local_p"), ("attend", "sliding_window"), ("pool", "crf")):
        module = Plain(make(name)).eval()
        inputs, case, *_ = (CASES[family](name, *sizes) for sizes in SIZES)
        with torch.no_grad():
            program = export(module, inputs, dynamic_shapes=(SHAPES[family],)).run_decompositions(foci.decompositions())
        folder = tmp_path / name
        folder.mkdir()
        torch.export.save(program, folder / "program.pt2")
        torch.save(case, folder / "case.pt")
        wanted[folder] = module(*case)
    run = subprocess.run([sys.executable, "-c", RUN, *wanted], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for folder, results in wanted.items():
        for have, want in zip(torch.load(folder / "found.pt"), results, strict=True):
            torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-4, msg=lambda m, n=folder.name: f"{n}: {m}")


LOAD = """
import sys, torch
import foci.catalog
program, case = torch.export.load(sys.argv[1]), torch.load(sys.argv[2])
torch.save(program.module()(*case).weights.dense(), sys.argv[3])
"""


@pytest.mark.slow
def test_a_saved_program_with_operators_of_foci_loads_with_the_catalog(tmp_path):
    module, case = make("local_p").eval(), CASES["attend"]("local_p", *SIZES[0])
    files = [tmp_path / file for file in ("program.pt2", "case.pt", "found.pt")]
    program = export(module, case)
    assert any("foci" in str(node.target) for node in program.graph.nodes)
    torch.export.save(program, files[0])
    torch.save(case, files[1])
    run = subprocess.run([sys.executable, "-c", LOAD, *files], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    torch.testing.assert_close(torch.load(files[2]), module(*case).weights.dense())


@pytest.mark.slow
def test_a_file_with_names_for_inputs_and_outputs(tmp_path):
    module, file = Plain(make("additive")).eval(), tmp_path / "additive.onnx"
    cases = [CASES["attend"]("additive", *sizes) for sizes in SIZES]
    with torch.no_grad():
        program = export(module, cases[0], dynamic_shapes=(SHAPES["attend"],))
        torch.onnx.export(
            program.run_decompositions(foci.decompositions()),
            f=file,
            dynamo=True,
            verbose=False,
            input_names=["query", "key", "value", "mask"],
            output_names=["output", "weights"],
        )
    session = onnxruntime.InferenceSession(file)
    for case in cases:
        fed = dict(zip(("query", "key", "value", "mask"), (one.numpy() for one in case)))
        for have, want in zip(session.run(["output", "weights"], fed), module(*case)):
            torch.testing.assert_close(torch.from_numpy(have), want, atol=1e-5, rtol=1e-4)
