"""Export: a tagger that attends becomes a program of torch.export and one of ONNX, for any batch and any lengths."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

import foci


class Tagger(nn.Module):
    """A program returns tensors: the scores of the tags, and the position that each word attends to most."""

    def __init__(self, dim: int = 16, tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, dim)
        self.attention = foci.build("additive", query_dim=dim, key_dim=dim, hidden_dim=dim)
        self.output = nn.Linear(2 * dim, tags)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(words)
        read, weights, _ = self.attention(x, x, mask=mask)
        return self.output(torch.cat([x, read], dim=-1)), weights.argmax()


def inputs(rows: int, length: int) -> tuple[Tensor, Tensor]:
    valid = foci.masks.lengths(torch.randint(1, length + 1, (rows,)), length)
    return torch.randint(50, (rows, length)), foci.masks.keys(valid)


def main() -> None:
    torch.manual_seed(0)
    model = Tagger().eval()
    batch, length = Dim("batch", max=64), Dim("length", max=512)
    sizes = ({0: batch, 1: length}, {0: batch, 2: length})
    with torch.no_grad():
        program = torch.export.export(model, inputs(2, 5), dynamic_shapes=sizes)
        plain = program.run_decompositions(foci.decompositions())  # without operators of foci
        torch.onnx.export(plain, f="tagger.onnx", dynamo=True, verbose=False, input_names=["words", "mask"])
    assert not any("foci" in str(node.target) for node in plain.graph.nodes)

    words, mask = inputs(3, 11)
    scores, most = model(words, mask)
    for one in (program, plain):
        found = one.module()(words, mask)
        torch.testing.assert_close(found[0], scores, atol=1e-5, rtol=1e-5)
        assert torch.equal(found[1], most)

    import numpy as np
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession("tagger.onnx")
    of_onnx = [np.asarray(one) for one in session.run(None, {"words": words.numpy(), "mask": mask.numpy()})]
    np.testing.assert_allclose(of_onnx[0], scores.detach().numpy(), atol=1e-4, rtol=1e-4)
    assert of_onnx[1].tolist() == most.tolist()
    print(f"tagger.onnx, {Path('tagger.onnx').stat().st_size} bytes, agrees at sizes that it was not exported with")


if __name__ == "__main__":
    main()
