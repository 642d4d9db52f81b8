"""Language models

A decoder-only Transformer with the blocks of GPT-2 and the same weights on both sides. Training: one update of
nanoGPT's configuration for a CPU (4 layers, 4 heads, 128 features, 12 windows of 64 characters): forward, backward,
clipping and AdamW, against the plain PyTorch of `benchmarks/plain_gpt.py`; both sides must have the same loss. In the
rows with bfloat16 both sides run their forward pass under autocast. Generation: 128 tokens after a prompt of 16,
greedy, with the cache of keys and values on both sides, for one prompt and for 16 at once; both must give the same
tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import FORWARD, Call, Case, call
from benchmarks.plain_gpt import PlainGPT, Sizes, optimizer, train_step
from foci.decoding import DecoderInputs, GenerationConstraints, greedy
from foci.layers.token_loss import Targets
from foci.models.language_model import LanguageModel, build_language_model
from foci.models.options.decoders import LANGUAGE_MODEL_PRESETS, TransformerDecoderOptions

PROMPT, PRODUCED = 16, 128
SIZES = {
    "4 layers of 128, 65 characters": (Sizes(65, context=256), {}),
    "6 layers of 256, 8,000 subwords": (
        Sizes(8000, context=256, dim=256, layers=6),
        {"model_dim": 256, "hidden_dim": 1024, "num_layers": 6},
    ),
}
STEP = "training step"


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    if peer == "torch":
        for precision in ("float32", "bfloat16"):
            yield _training(12, 64, precision)
            yield _training(16, 128, precision)
        return
    for name in list(SIZES)[:1] if quick else SIZES:
        for batch in (1, 16):
            yield _generation(name, batch)


def _training(batch: int, context: int, precision: str) -> Case:
    sizes = Sizes(65, context=context)
    half = precision == "bfloat16"

    def inputs() -> tuple[PlainGPT, Tensor]:
        return PlainGPT(sizes), torch.randint(4, sizes.vocabulary, (batch, context + 1))

    def ours(plain: PlainGPT, tokens: Tensor) -> Call:
        model = _same(plain, {}).train()
        matrices = [one for one in model.parameters() if one.dim() > 1]
        vectors = [one for one in model.parameters() if one.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
        given, wanted = tokens[:, :-1], Targets(tokens[:, 1:])

        def step() -> Tensor:
            """What `foci.training.engine` does for a batch."""
            adam.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = model(given, wanted).loss
            loss.backward()
            gradients = [one.grad for one in model.parameters() if one.grad is not None]
            count = batch * context
            norm = float(torch.nn.utils.get_total_norm(gradients)) / count
            torch._foreach_mul_(gradients, min(1.0, 1.0 / (norm + 1e-6)) / count)
            adam.step()
            per_token: Tensor = loss.detach() / count
            return per_token

        return step

    def theirs(plain: PlainGPT, tokens: Tensor) -> Call:
        model = PlainGPT(sizes)
        model.load_state_dict(plain.state_dict())
        adam = optimizer(model)
        return lambda: train_step(model, adam, tokens[:, :-1], tokens[:, 1:], half)

    return Case(
        name=f"4 layers of 128, {batch} windows of {context}",
        against="GPT-2's blocks in plain PyTorch",
        measure=f"{STEP}, {precision}",
        tolerance=1e-2 if half else 1e-4,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1.2,
    )


def _generation(name: str, batch: int) -> Case:
    sizes, options = SIZES[name]

    def inputs() -> tuple[PlainGPT, Tensor]:
        return PlainGPT(sizes), torch.randint(4, sizes.vocabulary, (batch, PROMPT))

    def ours(plain: PlainGPT, prompts: Tensor) -> Call:
        model = _same(plain, options).eval()
        constraints = GenerationConstraints(min_length=PRODUCED, max_length=PRODUCED, banned=())

        def generate() -> Tensor:
            memory, _ = model.start(batch)
            state = model.read(prompts[:, :-1], memory)
            start = DecoderInputs(memory, state, batch, prompts.device, PRODUCED, last=prompts[:, -1])
            return torch.tensor([row[0].tokens for row in greedy(model, start, constraints=constraints)])

        return call(FORWARD, generate)

    def theirs(plain: PlainGPT, prompts: Tensor) -> Call:
        peer = _gpt2(plain)

        def generate() -> Tensor:
            produced = peer.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                do_sample=False,
                min_new_tokens=PRODUCED,
                max_new_tokens=PRODUCED,
                use_cache=True,
            )
            new: Tensor = produced[:, PROMPT:]
            return new

        return call(FORWARD, generate)

    return Case(
        name=f"{name}, {batch} {'prompt' if batch == 1 else 'prompts'}",
        against="GPT2LMHeadModel.generate",
        measure=f"{PRODUCED} tokens, greedy",
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=2.0,
    )


@torch.no_grad()
def _same(plain: PlainGPT, options: dict[str, int]) -> LanguageModel:
    """Our model with the weights of the plain one."""
    sizes = plain.sizes
    model = build_language_model(
        sizes.vocabulary,
        sizes.context,
        TransformerDecoderOptions(**{**LANGUAGE_MODEL_PRESETS["transformer"]["gpt2"], **options}),
    )
    decoder: Any = model.decoder
    decoder.embedding.table.weight.copy_(plain.tokens.weight)
    decoder.embedding.positions.table.copy_(plain.positions.weight)
    decoder.norm.load_state_dict(plain.norm.state_dict())
    blocks: Any = plain.blocks
    for our, their in zip(decoder.layers, blocks):
        itself = our.self_attention
        for part, weight, bias in zip(
            (itself.query_layer, itself.key_layer, itself.value_layer),
            their.attention.project.weight.chunk(3),
            their.attention.project.bias.chunk(3),
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        itself.output_layer.load_state_dict(their.attention.join.state_dict())
        our.around_self.norm.load_state_dict(their.attention_norm.state_dict())
        our.around_feed_forward.norm.load_state_dict(their.feed_forward_norm.state_dict())
        our.feed_forward.inner_layer.load_state_dict(their.inner.state_dict())
        our.feed_forward.outer_layer.load_state_dict(their.outer.state_dict())
    return model


@torch.no_grad()
def _gpt2(plain: PlainGPT) -> Any:
    """The same as a model of transformers; its layers keep their weights transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = plain.sizes
    config = GPT2Config(
        vocab_size=sizes.vocabulary,
        n_positions=sizes.context,
        n_embd=sizes.dim,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        activation_function="gelu",
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    make: Any = GPT2LMHeadModel
    peer = make(config).eval()
    blocks: Any = plain.blocks
    peer.transformer.wte.weight.copy_(plain.tokens.weight)
    peer.transformer.wpe.weight.copy_(plain.positions.weight)
    peer.transformer.ln_f.load_state_dict(plain.norm.state_dict())
    for our, their in zip(blocks, peer.transformer.h):
        their.ln_1.load_state_dict(our.attention_norm.state_dict())
        their.ln_2.load_state_dict(our.feed_forward_norm.state_dict())
        for source, target in (
            (our.attention.project, their.attn.c_attn),
            (our.attention.join, their.attn.c_proj),
            (our.inner, their.mlp.c_fc),
            (our.outer, their.mlp.c_proj),
        ):
            target.weight.copy_(source.weight.t())
            target.bias.copy_(source.bias)
    peer.tie_weights()
    return peer
