"""Models in the format of Hugging Face, with random weights and made on the spot: read, generating, chatting.

Importing transformers takes seconds, hence all are slow.
"""

import copy
import json
import re

import numpy as np
import pytest
import torch

import foci
from foci import huggingface
from foci.errors import ConfigError
from foci.viz.trace import Trace
from foci.viz.words import words_of_labels
from foci_cli import main

pytestmark = pytest.mark.slow

TEXT = "one red tree"


def failed(capsys, *arguments, code=2):
    """The message of a wrong command, which must be one line, with no other output."""
    assert main(["show", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


PAD, END, START = 0, 1, 2
HF_TEXT = "the cat café 猫"
LABELS = ["the", "▁cat", "▁café", "▁猫"]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer(transformers):
    """Pieces of bytes, as GPT-2 has them; every word of the text is one piece."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    special = ["<pad>", "</s>", "<s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    pieces.train_from_iterator([HF_TEXT] * 9, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", eos_token="</s>", bos_token="<s>", model_max_length=19
    )


SMALL = {
    "bert": {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 17},
    "gpt2": {"n_embd": 12, "n_layer": 3, "n_head": 2, "n_positions": 23, "initializer_range": 0.2},
    "rwkv": {"hidden_size": 12, "attention_hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 17},
    "mistral": {
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 6,
        "intermediate_size": 17,
        "sliding_window": 4,
        "initializer_range": 0.5,
    },
    "t5": {"d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3},
    "marian": {
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 17,
        "decoder_ffn_dim": 17,
        "max_position_embeddings": 23,
        "forced_eos_token_id": None,
        "init_std": 0.5,
    },
}
CLASSES = {
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "rwkv": "RwkvModel",
    "mistral": "MistralForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "marian": "MarianMTModel",
}


def build(transformers, tokenizer, kind, folder):
    """A model with random weights, saved with its tokenizer."""
    torch.manual_seed(1)
    ids = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **ids, **SMALL[kind])
    model = getattr(transformers, CLASSES[kind])(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def eager(model):
    """The same model with attention written out, which can return its weights."""
    twin = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    return twin


def check_layers(trace, name, expected):
    assert len([found for found in trace.attentions if re.fullmatch(name.format(r"\d+"), found)]) == len(expected)
    for layer, want in enumerate(expected):
        got = trace.attention(name.format(layer)).weights
        np.testing.assert_allclose(got, want[0].detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(("kind", "stack"), [("bert", "encoder"), ("gpt2", "decoder")])
def test_models_of_one_side(kind, stack, transformers, tokenizer, tmp_path, capsys):
    model = build(transformers, tokenizer, kind, tmp_path / kind)
    arguments = ["show", "--hf", str(tmp_path / kind), HF_TEXT]
    capsys.readouterr()
    assert main([*arguments, "--save", str(tmp_path / "t.json")]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"{tmp_path / 't.json'}\n", "")
    trace = Trace.load(tmp_path / "t.json")
    assert list(trace.axes["source"].labels) == LABELS
    ids = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
    check_layers(trace, stack + ".{}.self", eager(model)(ids, output_attentions=True).attentions)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{HF_TEXT}\n")
    assert out.splitlines()[1].startswith(f"{trace.opening.attention} · ")


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_models_of_two_sides(kind, transformers, tokenizer, tmp_path, capsys):
    model = build(transformers, tokenizer, kind, tmp_path / kind)
    assert main(["show", "--hf", str(tmp_path / kind), HF_TEXT, "--save", str(tmp_path / "t.json")]) == 0
    trace = Trace.load(tmp_path / "t.json")
    ids = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
    produced = model.generate(ids, max_new_tokens=(22 if kind == "marian" else 28), do_sample=False)
    assert trace.text == tokenizer.decode(produced[0], skip_special_tokens=True)
    assert list(trace.axes["source"].labels) == LABELS
    assert len(trace.axes["target"]) == len(trace.axes["input"]) == produced.shape[1] - 1
    assert trace.axes["input"].labels == ("<s>", *trace.axes["target"].labels[:-1])
    expected = eager(model)(ids, decoder_input_ids=produced[:, :-1], output_attentions=True)
    sides = {
        (found.name.replace(str(found.layer), "*"), found.target, found.source) for found in trace.attentions.values()
    }
    assert sides == {
        ("encoder.*.self", "source", "source"),
        ("decoder.*.self", "target", "input"),
        ("decoder.*.cross", "target", "source"),
    }
    check_layers(trace, "encoder.{}.self", expected.encoder_attentions)
    check_layers(trace, "decoder.{}.self", expected.decoder_attentions)
    check_layers(trace, "decoder.{}.cross", expected.cross_attentions)
    assert [attention.name for attention in trace.cross_attentions()] == [
        f"decoder.{len(expected.cross_attentions) - 1}.cross"
    ]


def classifier(transformers, tokenizer, folder):
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(
        "bert", vocab_size=len(tokenizer), pad_token_id=PAD, num_labels=3, initializer_range=0.4, **SMALL["bert"]
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_classifier_is_probed_at_its_classes(transformers, tokenizer, tmp_path, capsys):
    classifier(transformers, tokenizer, tmp_path / "bert")
    few = ["--set", "steps=2", "--set", "permutations=1", "--trials", "3"]
    assert main(["probe", "--hf", str(tmp_path / "bert"), HF_TEXT, *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {row["name"] for row in found["rows"]}
    assert names == {"gradient × input", *(f"encoder.{n}.self" for n in range(3))}
    assert {row["head"] for row in found["rows"]} == {None, 0, 1}
    replaced = [row for row in found["rows"] if row["name"] != "gradient × input"]
    assert all(row["measures"]["uniform"][0] > 0 for row in replaced)


@pytest.mark.parametrize("kind", ["gpt2", "marian"])
def test_what_follows_a_text_is_an_answer(kind, transformers, tokenizer, tmp_path):
    build(transformers, tokenizer, kind, tmp_path / kind)
    (subject,) = huggingface.subjects(tmp_path / kind, [HF_TEXT], [[(4, 7)]])
    source = subject.sources["tokens"]
    assert [source.tokens[place] for place in source.gold] == ["▁cat"]
    with torch.no_grad():
        answer = subject.answer(2)
    assert answer.dim() == (2 if kind == "gpt2" else 3)
    found = foci.probe(subject.model, [subject], steps=0, trials=2, permutations=1)
    assert len([row for row in found.rows if "uniform" in row.measures and row.head is None]) >= 2


def test_a_model_without_answers_is_not_probed(transformers, tokenizer, tmp_path, capsys):
    build(transformers, tokenizer, "bert", tmp_path / "bert")
    capsys.readouterr()
    assert main(["probe", "--hf", str(tmp_path / "bert"), HF_TEXT]) == 2
    assert "which answers nothing" in capsys.readouterr().err


def test_folders_of_models_that_cannot_be_shown(transformers, tokenizer, tmp_path, capsys):
    for kind in ("rwkv", "bert"):
        build(transformers, tokenizer, kind, tmp_path / kind)
    capsys.readouterr()
    without = failed(capsys, TEXT, "--hf", tmp_path / "rwkv", code=1)
    assert "of this model nothing can be shown" in without
    hf = ("--hf", tmp_path / "bert")
    assert "the text '' has no tokens" in failed(capsys, "", *hf)
    assert "the text has 20 tokens, but the model reads at most 19" in failed(capsys, "the" + " cat" * 19, *hf)
    (tmp_path / "bert" / "tokenizer.json").unlink()
    (tmp_path / "bert" / "tokenizer_config.json").unlink()
    assert "has no tokenizer. Save it there too" in failed(capsys, TEXT, *hf, code=1)
    (tmp_path / "bert" / "tokenizer.json").write_text("{}")
    assert "AutoTokenizer of transformers cannot read it" in failed(capsys, TEXT, *hf, code=1)
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "no such"}')
    assert "AutoConfig of transformers cannot read it" in failed(capsys, TEXT, *hf, code=1)


def test_random_weights_are_owned_up_to(transformers, tokenizer, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    build(transformers, tokenizer, "gpt2", tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "model.safetensors"
    weights = {name: weight for name, weight in load_file(file).items() if "h.1.attn" not in name}
    save_file(weights, file, metadata={"format": "pt"})
    capsys.readouterr()
    assert main(["show", "--hf", str(tmp_path / "gpt2"), HF_TEXT]) == 0
    assert "lacks 4 weights of the model, such as h.1.attn" in capsys.readouterr().err


# ---- generating


def full_pass(model, ids):
    return eager(model)(ids, output_attentions=True).attentions


@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
@pytest.mark.parametrize("options", [{}, {"beam_size": 4}, {"temperature": 1.0, "seed": 5}])
def test_prompt_and_answer_are_one_text(kind, options, transformers, tokenizer, tmp_path):
    """Recorded with the cache, sliding or not, row by row: equal to one pass over the whole text."""
    model = build(transformers, tokenizer, kind, tmp_path / kind)
    prompt = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
    (trace,) = huggingface.read(tmp_path / kind, [HF_TEXT], {"generate": 7, **options})
    count = trace.metadata["generated tokens"]
    torch.manual_seed(options.get("seed", 0))
    search = {"num_beams": options.get("beam_size", 1), "do_sample": "temperature" in options, "top_k": 0}
    ids = model.generate(prompt, max_new_tokens=7, **search)
    assert ids.shape[1] == len(LABELS) + count == len(trace.axes["source"])
    assert trace.text == tokenizer.decode(ids[0], skip_special_tokens=True)
    assert trace.axes["source"].labels[: len(LABELS)] == tuple(LABELS)
    check_layers(trace, "decoder.{}.self", full_pass(model, ids))


@pytest.mark.parametrize("beams", [1, 3])
def test_an_answer_of_beams_is_that_of_the_winner(beams, transformers, tokenizer, tmp_path):
    model = build(transformers, tokenizer, "marian", tmp_path / "marian")
    ids = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
    produced = model.generate(ids, max_new_tokens=9, num_beams=beams)
    (trace,) = huggingface.read(tmp_path / "marian", [HF_TEXT], {"generate": 9, "beam_size": beams})
    assert len(trace.axes["target"]) == produced.shape[1] - 1
    expected = eager(model)(ids, decoder_input_ids=produced[:, :-1], output_attentions=True)
    check_layers(trace, "decoder.{}.self", expected.decoder_attentions)
    check_layers(trace, "decoder.{}.cross", expected.cross_attentions)


def test_sampling_has_a_seed(transformers, tokenizer, tmp_path):
    build(transformers, tokenizer, "gpt2", tmp_path / "gpt2")
    state = torch.get_rng_state()
    texts = [
        next(huggingface.read(tmp_path / "gpt2", [HF_TEXT], {"generate": 9, "temperature": 1.0, **seed})).text
        for seed in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 0}, {})
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4]
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_generated(transformers, tokenizer, tmp_path, capsys):
    for kind in ("bert", "gpt2"):
        build(transformers, tokenizer, kind, tmp_path / kind)
    capsys.readouterr()
    assert "generates nothing: each of its tokens reads all others" in failed(
        capsys, TEXT, "--hf", tmp_path / "bert", "--generate", "3"
    )
    gpt2 = ("--hf", tmp_path / "gpt2")
    tokens = len(tokenizer(TEXT)["input_ids"])
    assert f"Generate at most {19 - tokens}" in failed(capsys, TEXT, *gpt2, "--generate", "90")
    assert "beam_size has no effect where nothing is generated" in failed(capsys, TEXT, *gpt2, "--beam-size", "3")
    assert "need a temperature" in failed(capsys, TEXT, *gpt2, "--generate", "3", "--seed", "3")
    assert "samples instead of searching" in failed(capsys, TEXT, *gpt2, "--temperature", "1", "--beam-size", "3")
    assert "system is a part of a chat" in failed(capsys, TEXT, *gpt2, "--system", "Be brief.")


# ---- names on the Hub


def test_a_name_on_the_hub_is_found_in_the_local_cache(transformers, tokenizer, tmp_path, capsys, monkeypatch):
    import huggingface_hub

    cache, commit = tmp_path / "hub", "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    repository = cache / "models--acme--tiny"
    build(transformers, tokenizer, "gpt2", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.chdir(tmp_path)
    (trace,) = huggingface.read("acme/tiny", [HF_TEXT])
    assert trace.axes["source"].labels == tuple(LABELS)
    capsys.readouterr()
    missing = failed(capsys, TEXT, "--hf", "acme/other", code=1)
    assert f"the local cache {cache} has no model of this name" in missing
    assert "hf download acme/other" in missing
    assert "is no folder of a Hugging Face model" in failed(capsys, TEXT, "--hf", "./acme/other", code=1)


# ---- chats

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def test_a_chat(transformers, tokenizer, tmp_path, capsys):
    build(transformers, tokenizer, "gpt2", tmp_path / "gpt2")
    chat = tmp_path / "chat"
    talker = copy.deepcopy(tokenizer)
    talker.chat_template, talker.model_max_length = TEMPLATE, 99
    model = build(transformers, talker, "mistral", chat)
    options = {"chat": True, "system": "the", "generate": 3}
    (trace,) = huggingface.read(chat, ["cat"], options)
    text = "<s>system: the</s><s>user: cat</s><s>assistant: "
    ids = talker(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    ids = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert len(trace.axes["source"]) == ids.shape[1]
    check_layers(trace, "decoder.{}.self", full_pass(model, ids))
    special = [trace.axes["source"].labels[place] for place in trace.axes["source"].special_tokens]
    assert special[:5] == ["<s>", "</s>", "<s>", "</s>", "<s>"]
    with pytest.raises(ConfigError, match="no chat template"):
        next(huggingface.read(tmp_path / "gpt2", ["cat"], {"chat": True}))
    talker.chat_template = "{{ raise_exception('no system here') }}"
    talker.save_pretrained(chat)
    with pytest.raises(ConfigError, match="does not accept these messages: no system here"):
        next(huggingface.read(chat, ["cat"], options))


# ---- words


def test_words_of_bytes(transformers, tokenizer, tmp_path):
    """A character that is several bytes, in the prompt and in the answer, is one word; its bytes are readable."""
    build(transformers, tokenizer, "gpt2", tmp_path / "gpt2")
    text = "the 狗 cat"  # the tokenizer knows 猫, not 狗
    (trace,) = huggingface.read(tmp_path / "gpt2", [text])
    axis = trace.axes["source"]
    assert any("⟨" in label for label in axis.labels)
    assert [word.label for word in axis.words] == ["the", "狗", "cat"]
    assert sum(word.pieces for word in axis.words) == len(axis)
    assert words_of_labels(axis.labels) == axis.words


def test_an_edited_model_is_shown_beside_its_own_answer(transformers, tokenizer, tmp_path, capsys):
    build(transformers, tokenizer, "gpt2", tmp_path / "gpt2")
    hf = ("show", "--hf", str(tmp_path / "gpt2"), HF_TEXT)
    assert main([*hf, "--uniform", "h.1.attn:0", "--save", str(tmp_path / "read.json")]) == 0
    weights = Trace.load(tmp_path / "read.json").attention("decoder.1.self").weights
    np.testing.assert_allclose(weights[0], np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None], rtol=1e-6)
    assert np.abs(weights[1] - weights[0]).max() > 0.01
    for name in ("decoder.1.self:0", "*.1.self:0"):  # as it is shown
        assert main([*hf, "--uniform", name, "--save", str(tmp_path / "named.json")]) == 0
        again = Trace.load(tmp_path / "named.json").attention("decoder.1.self").weights
        np.testing.assert_array_equal(again, weights)
    capsys.readouterr()
    assert "Did you mean 'decoder.2.self'" in failed(capsys, *hf[1:], "--uniform", "decoder.7.self")
    generated = (*hf, "--generate", "5")
    assert main([*generated, "--block", "transformer.h.0.attn/*/0", "--save", str(tmp_path / "made.json")]) == 0
    trace = Trace.load(tmp_path / "made.json")
    assert not trace.attention("decoder.0.self").weights[:, :, 0].any()
    assert main([*generated, "--save", str(tmp_path / "plain.json")]) == 0
    assert trace.metadata["answer without edits"] == Trace.load(tmp_path / "plain.json").text
    capsys.readouterr()
    assert main([*generated, "--knock-out", "each"]) == 0
    assert capsys.readouterr().out.count("without transformer.h.") == 6
    each = failed(capsys, HF_TEXT, "--hf", tmp_path / "gpt2", "--knock-out", "each")
    assert "generates nothing here" in each
    assert "Add generate" in each


def test_a_missing_head_is_owned_up_to_where_it_speaks(transformers, tokenizer, tmp_path, capsys):
    model = build(transformers, tokenizer, "mistral", tmp_path / "mistral")
    model.model.save_pretrained(tmp_path / "mistral")
    capsys.readouterr()
    next(huggingface.read(tmp_path / "mistral", [HF_TEXT]))
    assert capsys.readouterr().err == ""
    next(huggingface.read(tmp_path / "mistral", [HF_TEXT], {"generate": 2}))
    assert "lacks 1 weights of the model, such as lm_head.weight" in capsys.readouterr().err


# ---- relevance


def maps_of(model, attentions, score):
    """Attention × gradient of each attention, from weights that the model computes itself."""
    gradients = torch.autograd.grad(score, attentions)
    return [(one * gradient).clamp_min(0).mean(1)[0] for one, gradient in zip(attentions, gradients)]


def test_a_decoder_explains_its_next_token_or_its_answer(transformers, tokenizer, tmp_path):
    model = eager(build(transformers, tokenizer, "gpt2", tmp_path / "gpt2"))
    for options in ({}, {"generate": 4}):
        (trace,) = huggingface.read(tmp_path / "gpt2", [HF_TEXT], options, relevance="chefer")
        ids = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
        count = ids.shape[1]
        if options:
            ids = model.generate(ids, max_new_tokens=4, do_sample=False)
        output = model(ids, output_attentions=True)
        logs = output.logits[0].log_softmax(-1)
        score = logs[count - 1 : -1].gather(1, ids[0, count:, None]).sum() if options else logs[-1].max()
        assert trace.metadata["score"] == pytest.approx(float(score), abs=1e-4)
        through = torch.eye(ids.shape[1])
        for layer, one in enumerate(maps_of(model, output.attentions, score)):
            through = through + one @ through
            extras = trace.attention(f"decoder.{layer}.self").extras
            np.testing.assert_allclose(extras["gradient"], one.detach(), rtol=1e-3, atol=1e-6)
            np.testing.assert_allclose(
                extras["chefer"], through.detach() - torch.eye(len(through)), rtol=1e-3, atol=1e-6
            )
    assert trace.metadata["explained"] == "log-probability of the answer"


def test_an_encoder_and_a_decoder_are_two_streams(transformers, tokenizer, tmp_path):
    from foci.metrics.relevance import chefer

    model = eager(build(transformers, tokenizer, "marian", tmp_path / "marian"))
    (trace,) = huggingface.read(tmp_path / "marian", [HF_TEXT], relevance="chefer")
    ids = tokenizer(HF_TEXT, return_tensors="pt")["input_ids"]
    produced = model.generate(ids, max_new_tokens=22, do_sample=False)
    output = model(ids, decoder_input_ids=produced[:, :-1], output_attentions=True)
    logs = output.logits[0].log_softmax(-1)
    score = logs.gather(1, produced[0, 1:, None]).sum()
    inside = [one for pair in zip(output.decoder_attentions, output.cross_attentions) for one in pair]
    attentions = [*output.encoder_attentions, *inside]
    streams = [("s", "s")] * 2 + [("t", "t"), ("t", "s")] * 3
    expected = chefer(maps_of(model, attentions, score), streams)[-1]
    np.testing.assert_allclose(
        trace.attention("decoder.2.cross").extras["chefer"], expected.detach(), rtol=2e-3, atol=1e-5
    )


def test_classes_and_masks_are_explained_and_what_says_nothing_is_refused(transformers, tokenizer, tmp_path, capsys):
    build(transformers, tokenizer, "bert", tmp_path / "bert")
    capsys.readouterr()  # saving shows its progress
    assert "fills masks" in failed(capsys, "--hf", tmp_path / "bert", HF_TEXT, "--relevance", "chefer")
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"mask_token": "<s>"})
    tokenizer.save_pretrained(tmp_path / "bert")
    (trace,) = huggingface.read(tmp_path / "bert", ["the cat <s>"], relevance="gradient")
    assert trace.metadata["explained"] == "log-probability at the masks"
    config = transformers.AutoConfig.for_model(
        "bert", vocab_size=len(tokenizer), id2label={0: "bad", 1: "good"}, **SMALL["bert"]
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "classes")
    tokenizer.save_pretrained(tmp_path / "classes")
    (trace,) = huggingface.read(tmp_path / "classes", [HF_TEXT], relevance="chefer")
    assert trace.metadata["explained"] == "log-probability of the likeliest class"
    assert trace.metadata["said"] in ("bad", "good")
    transformers.BertModel(config).save_pretrained(tmp_path / "classes")
    capsys.readouterr()
    assert "says nothing" in failed(capsys, "--hf", tmp_path / "classes", HF_TEXT, "--relevance", "chefer")


@pytest.mark.parametrize("kind", ["bert", "t5", "mistral"])
@pytest.mark.parametrize("method", ["norms", "value_zeroing"])
def test_what_needs_no_score_is_there_for_every_attention(kind, method, transformers, tokenizer, tmp_path, capsys):
    build(transformers, tokenizer, kind, tmp_path / kind)
    arguments = ["show", "--hf", str(tmp_path / kind), HF_TEXT, "--relevance", method]
    assert main([*arguments, "--save", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html")]) == 0
    trace = Trace.load(tmp_path / "t.json")
    assert all(method in one.extras for one in trace.attentions.values())
    if method == "value_zeroing":
        for one in trace.attentions.values():
            np.testing.assert_allclose(one.extras[method].sum(-1), 1.0, atol=1e-4)
    capsys.readouterr()
    assert main(arguments) == 0
    assert {"norms": "norm of weighted values", "value_zeroing": "value zeroing"}[method] in capsys.readouterr().out
    opening = re.search(r'"opening":\s*\{[^}]*"head":\s*(\d+)', (tmp_path / "t.html").read_text())
    assert int(opening[1]) == trace.cross_attentions()[0].heads  # the first after the heads
