"""Values and output projections of recorded attentions: summed up by definition they are the module's output."""

import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError
from foci.recording import record


def summed(tape, path, call=0):
    """The output of an attention, one head and one position after the other."""
    weights = tape[path, call].dense().detach()
    weights = weights.unsqueeze(1) if weights.dim() == 3 else weights
    values, weight, bias = tape.projected(path, call)
    batch, heads, rows, columns = weights.shape
    output = bias.expand(batch, rows, -1).clone()
    for b in range(batch):
        for head in range(heads):
            for i in range(rows):
                for j in range(columns):
                    output[b, i] += weights[b, head, i, j] * (values[b, head, j] @ weight[head])
    return output


class Fused(nn.Module):
    """One linear layer for queries, keys and values: one after the other, or those of each group side by side."""

    def __init__(self, heads=4, groups=2, dim=3, interleaved=False, gated=False):
        super().__init__()
        self.heads, self.groups, self.dim, self.interleaved, self.gated = heads, groups, dim, interleaved, gated
        self.everything = nn.Linear(11, (heads + 2 * groups) * dim)
        self.last = nn.Linear(heads * dim, 11)

    def forward(self, x):
        split = self.everything(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        if self.interleaved:
            split = split.unflatten(1, (self.groups, -1))
            query, key, value = split[:, :, :-2].flatten(1, 2), split[:, :, -2], split[:, :, -1]
        else:
            query, key, value = split.split([self.heads, self.groups, self.groups], dim=1)
        key, value = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (key, value))
        read = (query @ key.mT).softmax(-1) @ value
        read = read.transpose(1, 2).flatten(2)
        return self.last(read * read.sigmoid() if self.gated else read)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_fused_projections_in_every_layout(interleaved, groups):
    torch.manual_seed(0)
    model, x = Fused(groups=groups, interleaved=interleaved), torch.randn(2, 5, 11)
    with record(model, values=True) as tape:
        output = model(x)
    torch.testing.assert_close(summed(tape, "."), output.detach())


@pytest.mark.parametrize("options", [{}, {"num_key_heads": 1}, {"causal": True}])
def test_heads_of_foci(options):
    torch.manual_seed(0)
    model = foci.build("multi_head", model_dim=12, num_heads=3, **options)
    torch.nn.init.normal_(model.output_layer.bias)
    query, key = torch.randn(2, 5, 12), torch.randn(2, 5 if options.get("causal") else 7, 12)
    with record(model, values=True) as tape:
        output = model(query, key).output
    torch.testing.assert_close(summed(tape, "."), output.detach())


@pytest.mark.parametrize(
    "options", [{"batch_first": True}, {}, {"add_bias_kv": True, "add_zero_attn": True}, {"vdim": 5}]
)
def test_attention_of_torch(options):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(12, 3, **options).eval()
    nn.init.normal_(model.out_proj.bias)
    x, value = torch.randn(4, 5, 12), torch.randn(4, 5, options.get("vdim", 12))
    with record(model, values=True) as tape:
        output, _ = model(x, x, value, need_weights=False)
    output = output if model.batch_first else output.transpose(0, 1)
    torch.testing.assert_close(summed(tape, "self_attn" if "self_attn" in tape else "."), output.detach())


def test_calls_of_one_module_are_apart_and_a_fused_layer_is_seen():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 17, batch_first=True).eval()
    first, second = torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    with torch.no_grad(), record(layer, values=True) as tape:
        for x in (first, second):
            assert layer(x).shape == x.shape
    for call, x in enumerate((first, second)):
        expected, _ = layer.self_attn(x, x, x)
        torch.testing.assert_close(summed(tape, "self_attn", call), expected.detach())


def test_what_cannot_be_known_is_named():
    torch.manual_seed(0)
    model, x = nn.Sequential(Fused(gated=True)), torch.randn(2, 5, 11)
    with record(model, values=True) as tape:
        model(x)
    with pytest.raises(ConfigError, match="'0'.*are not known: no linear layer.*gate"):
        tape.projected("0")
    with record(model) as tape:
        model(x)
    with pytest.raises(ConfigError, match="values were not kept.*values=True"):
        tape.projected("0")


def test_results_stay_the_same():
    torch.manual_seed(0)
    model, x = Fused(), torch.randn(2, 5, 11)
    expected = model(x)
    with record(model, values=True):
        assert torch.equal(model(x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_neox", "phi3", "falcon", "t5", "vit", "distilbert"])
def test_families_of_transformers(family):
    library = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 17,
        "vocab_size": 31,
    }
    options = {
        "gpt2": {"n_embd": 12, "n_layer": 2, "n_head": 4, "vocab_size": 31},
        "llama": {**sizes, "num_key_value_heads": 2},
        "phi3": {**sizes, "num_key_value_heads": 2, "pad_token_id": 0},
        "falcon": {**sizes, "new_decoder_architecture": True, "num_kv_heads": 2},
        "t5": {"d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 4, "vocab_size": 31},
        "vit": {**sizes, "image_size": 8, "patch_size": 4},
        "distilbert": {"dim": 12, "n_layers": 2, "n_heads": 4, "hidden_dim": 17, "vocab_size": 31},
    }.get(family, sizes)
    model = library.AutoModel.from_config(library.AutoConfig.for_model(family, **options)).eval()
    ids = torch.randint(3, 31, (2, 5))
    inputs = {"pixel_values": torch.randn(2, 3, 8, 8)} if family == "vit" else {"input_ids": ids}
    inputs |= {"decoder_input_ids": torch.randint(3, 31, (2, 7))} if family == "t5" else {}
    outputs = {}
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, output, path=path: outputs.setdefault(path, output))
    with torch.no_grad(), record(model, values=True) as tape:
        model(**inputs)
    assert len(tape) == (6 if family == "t5" else 2)
    for path in tape.paths:
        # its output projection is the layer of its own, or beside it, that ends what it computes
        known = [output for one, output in outputs.items() if isinstance(output, torch.Tensor) and output.dim() == 3]
        result = summed(tape, path)
        assert any(one.shape == result.shape and torch.allclose(one, result, atol=1e-5) for one in known), path
