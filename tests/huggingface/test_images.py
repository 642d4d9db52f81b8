"""Text and images in one sequence: tiny models of four kinds with random weights, their processors and pages."""

from pathlib import Path

import numpy as np
import pytest
import torch

from foci import huggingface
from foci.errors import ConfigError, DataError
from foci.huggingface.grid_processor import GridProcessor
from foci.huggingface.images import encoded_with_images, mixed_axis, opened
from foci.huggingface.loading import Loaded
from foci_cli import main

pytestmark = pytest.mark.slow

TEXT = "what is in the picture?"
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 17,
    "vocab_size": 400,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
SEES = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 17}


@pytest.fixture(scope="module")
def transformers():
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    return found


@pytest.fixture
def photo(tmp_path):
    """A photograph wider than high, in which no two patches are alike."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def tokenizer_with(transformers, *special):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    known = ["<pad>", "</s>", "<s>", *special]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=known, initial_alphabet=alphabet, show_progress=False)
    pieces.train_from_iterator([TEXT + " a red house and a blue tree"] * 9, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", eos_token="</s>", bos_token="<s>", extra_special_tokens=[*special]
    )


def llava(transformers):
    """A grid of 4 × 4 patches."""
    tokenizer = tokenizer_with(transformers, "<image>")
    image = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    processor = transformers.LlavaProcessor(
        image, tokenizer, patch_size=7, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    vision = {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 7, "projection_dim": 8, **SEES}
    config = transformers.LlavaConfig(
        vision_config={**vision, "num_hidden_layers": 2},
        text_config={"model_type": "llama", **SMALL},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def idefics3(transformers):
    """Five tiles of 3 × 3 tokens, each of which is 2 × 2 patches."""
    places = [f"<row_{row}_col_{column}>" for row in (1, 2, 3) for column in (1, 2, 3)]
    tokenizer = tokenizer_with(transformers, "<image>", "<fake_token_around_image>", "<global-img>", *places)
    image = transformers.Idefics3ImageProcessor(size={"longest_edge": 48}, max_image_size={"longest_edge": 24})
    processor = transformers.Idefics3Processor(image, tokenizer, image_seq_len=9)
    config = transformers.Idefics3Config(
        vision_config={"image_size": 24, "patch_size": 4, "num_hidden_layers": 1, **SEES},
        text_config={"model_type": "llama", **SMALL},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    return transformers.Idefics3ForConditionalGeneration(config), processor


def paligemma(transformers):
    """Words of the prompt read each other both ways."""
    tokenizer = tokenizer_with(transformers, "<image>")
    image = transformers.SiglipImageProcessor(size={"height": 28, "width": 28})
    image.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(image, tokenizer)
    vision = {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 7, "projection_dim": 16, **SEES}
    config = transformers.PaliGemmaConfig(
        vision_config={**vision, "num_hidden_layers": 1, "num_image_tokens": 16},
        text_config={"model_type": "gemma", "head_dim": 8, **SMALL},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=16,
        hidden_size=16,
    )
    return transformers.PaliGemmaForConditionalGeneration(config), processor


KINDS = {"llava": llava, "idefics3": idefics3, "paligemma": paligemma}
GRIDS = {"llava": [(4, 4)], "idefics3": [(3, 3)] * 5, "paligemma": [(4, 4)]}


def saved(transformers, kind, folder):
    torch.manual_seed(3)
    model, processor = KINDS[kind](transformers)
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("generate", [None, 3])
def test_words_and_patches_are_one_sequence(kind, generate, transformers, photo, tmp_path, capsys):
    model, processor = saved(transformers, kind, tmp_path / kind)
    capsys.readouterr()
    options = {"image": [str(photo)], "generate": generate}
    (trace,) = huggingface.read(tmp_path / kind, [TEXT], options)
    assert capsys.readouterr().err == ""
    axis = trace.axes["source"]
    assert [part.grid for part in axis.parts if part.kind == "regions"] == GRIDS[kind]
    words = [word.label for part in axis.parts if part.kind == "tokens" for word in part.joined_words]
    assert "picture" in words
    assert (axis.parts[-1].title == "answer") == bool(generate)
    # the weights are those of the library's own attention over the same inputs
    token = "" if kind == "paligemma" else "<image>"
    from PIL import Image

    inputs = processor(text=token + TEXT, images=[Image.open(photo)], return_tensors="pt")
    inputs.pop("labels", None)
    twin = type(model)._from_config(model.config, attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        if not generate:
            expected = [twin(**inputs, output_attentions=True).attentions]
        else:
            options = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True}
            expected = twin.generate(**inputs, **options, output_attentions=True).attentions
    assert len(trace.attentions) == len(expected[0]) == 2
    for number in range(2):
        got = trace.attention(f"decoder.{number}.self").weights
        for row, want in enumerate(each for step in expected for each in step[number][0].unbind(dim=1)):
            np.testing.assert_allclose(got[:, row, : want.shape[-1]], want.numpy(), atol=1e-5)
        assert got.shape[1] == row + 1 + bool(generate)  # the library does not read its last token


@pytest.mark.parametrize("kind", ["llava", "idefics3"])
def test_a_token_is_the_patch_that_its_axis_says(kind, transformers, photo):
    """Where no layer mixes them, only the token of that patch changes whose pixels do."""
    torch.manual_seed(3)
    model, processor = KINDS[kind](transformers)
    for name, parameter in model.named_parameters():
        if "vision" in name and "out_proj" in name:  # what its layers attend to is left out
            torch.nn.init.zeros_(parameter)
    loaded = Loaded(model.eval(), processor.tokenizer, processor)
    images = opened([photo])
    prompt = encoded_with_images(loaded, TEXT, images, is_chat=False)
    axis = mixed_axis(loaded, prompt.inputs["input_ids"][0], prompt)
    pictures = [part for part in axis.parts if part.grid]
    pixels = prompt.inputs["pixel_values"]

    def features(changed):
        found = model.get_image_features(changed, return_dict=True).pooler_output
        return torch.cat([each.flatten(0, -2) for each in found])

    with torch.no_grad():
        before = features(pixels)
        for number, (row, column) in ((0, (1, 2)), (len(pictures) - 1, (2, 0))):
            down, across = pictures[number].grid
            high, wide = pixels.shape[-2] // down, pixels.shape[-1] // across
            changed = pixels.clone()
            tiles = changed.view(-1, *changed.shape[-3:])
            tiles[number, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] += 1.0
            moved = (features(changed) - before).abs().sum(-1) > 1e-6
            assert moved.nonzero().flatten().tolist() == [number * down * across + row * across + column]


def test_the_picture_is_what_the_model_sees(transformers, photo):
    """Cut and scaled as its processor does, in the colors of the file."""
    model, processor = llava(transformers)
    loaded = Loaded(model, processor.tokenizer, processor)
    images = opened([photo])
    prompt = encoded_with_images(loaded, TEXT, images, is_chat=False)
    axis = mixed_axis(loaded, prompt.inputs["input_ids"][0], prompt)
    (picture,) = [part for part in axis.parts if part.grid]
    raw = processor.image_processor(images, do_normalize=False, do_rescale=False, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(picture.image, raw[0].transpose(1, 2, 0), atol=1)


def qwen(transformers):
    """Grids of any shape; its own processor needs torchvision."""
    around = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    inside = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    tokenizer = tokenizer_with(transformers, *around.values(), *inside.values())
    image = transformers.Qwen2VLImageProcessor(
        patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1600}
    )
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2VLConfig(
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2},
        text_config={"rope_parameters": rope, **SMALL},
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in {**around, **inside}.items()},
    )
    return transformers.Qwen2VLForConditionalGeneration(config), image, tokenizer


@pytest.mark.parametrize("generate", [None, 3])
def test_grids_that_need_torchvision_for_videos_alone(generate, transformers, photo, tmp_path):
    torch.manual_seed(3)
    model, image, tokenizer = qwen(transformers)
    for part in (model.eval(), image, tokenizer):
        part.save_pretrained(tmp_path)
    options = {"image": [str(photo)], "generate": generate}
    (trace,) = huggingface.read(tmp_path, [TEXT], options)
    parts = trace.axes["source"].parts
    assert [part.title for part in parts] == ["text", "image", "text"] + ["answer"] * bool(generate)
    inputs = GridProcessor(image, tokenizer, "<|image_pad|>")(
        f"<|vision_start|><|image_pad|><|vision_end|>{TEXT}", opened([photo]), "pt"
    )
    assert len(parts[1]) == int(inputs["image_grid_thw"].prod()) // 4
    twin = type(model)._from_config(model.config, attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = twin(**inputs, output_attentions=True).attentions
    size = inputs["input_ids"].shape[1]
    for number, want in enumerate(expected):
        got = trace.attention(f"decoder.{number}.self").weights
        np.testing.assert_allclose(got[:, :size, :size], want[0].numpy(), atol=1e-5)
        assert got.shape[1] == size + (generate or 0)


def test_grids_of_any_shape(transformers, photo):
    _, image, tokenizer = qwen(transformers)
    processor = GridProcessor(image, tokenizer, "<|image_pad|>")
    number = tokenizer.convert_tokens_to_ids

    class Model:
        class config:  # noqa: N801
            model_type, image_token_id = "qwen2_vl", number("<|image_pad|>")

        def modules(self):
            return []

    loaded = Loaded(Model(), processor.tokenizer, processor)
    images = opened([photo, photo])
    prompt = encoded_with_images(loaded, TEXT, images, is_chat=False)
    assert prompt.text == "<|vision_start|><|image_pad|><|vision_end|>" * 2 + TEXT
    axis = mixed_axis(loaded, prompt.inputs["input_ids"][0], prompt)
    _, down, across = prompt.inputs["image_grid_thw"][0].tolist()
    assert [part.grid for part in axis.parts if part.image is not None] == [(down // 2, across // 2)] * 2
    assert down != across
    assert [part.title for part in axis.parts] == ["text", "image 1", "text", "image 2", "text"]
    assert axis.parts[1].image.shape == (40, 60, 3)


def test_tokens_that_are_no_patches_have_numbers(transformers, photo, capsys):
    """A resampler mixes the patches; that its tokens could form a square means nothing."""
    model, processor = llava(transformers)
    model.resampler = type("TinyPerceiverResampler", (torch.nn.Module,), {})()
    loaded = Loaded(model, processor.tokenizer, processor)
    images = opened([photo])
    prompt = encoded_with_images(loaded, TEXT, images, is_chat=False)
    axis = mixed_axis(loaded, prompt.inputs["input_ids"][0], prompt)
    assert [part.grid for part in axis.parts if part.kind == "regions"] == [None]
    assert "llava: its image tokens are no grid of patches" in capsys.readouterr().err


def test_a_chat_about_an_image(transformers, photo, tmp_path):
    torch.manual_seed(3)
    model, processor = llava(transformers)
    processor.chat_template = (
        "{% for message in messages %}<s>{{ message['role'] }}:{% if message['content'] is string %}"
        "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
        "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}<s>assistant:"
    )
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    options = {"image": [str(photo)], "chat": True, "system": "see", "generate": 2}
    (trace,) = huggingface.read(tmp_path, [TEXT], options)
    kinds = [part.kind for part in trace.axes["source"].parts]
    assert kinds == ["tokens", "regions", "tokens", "tokens"]
    first = "".join(trace.axes["source"].parts[0].labels)
    assert first.startswith("<s>system:see<s>user:")


def test_what_cannot_be_read(transformers, photo, tmp_path, capsys):
    saved(transformers, "llava", tmp_path / "llava")
    with pytest.raises(DataError, match="is no image that can be read"):
        next(huggingface.read(tmp_path / "llava", [TEXT], {"image": [str(tmp_path / "none.png")]}))
    with pytest.raises(ConfigError, match="does not accept the input|puts no image"):
        next(huggingface.read(tmp_path / "llava", ["<image><image>" + TEXT], {"image": [str(photo)]}))
    config = transformers.GPT2Config(n_embd=12, n_layer=1, n_head=2, vocab_size=400)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    tokenizer_with(transformers).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ConfigError, match="gpt2 reads no images with its text"):
        next(huggingface.read(tmp_path / "gpt2", [TEXT], {"image": [str(photo)]}))


def test_a_text_alone_is_gone_on_with(transformers, tmp_path):
    saved(transformers, "llava", tmp_path)
    (trace,) = huggingface.read(tmp_path, [TEXT], {"generate": 2})
    assert [part.title for part in trace.axes["source"].parts] == ["prompt", "answer"]
    assert list(trace.attentions) == ["decoder.0.self", "decoder.1.self"]


def test_on_the_command_line(transformers, photo, tmp_path, capsys):
    saved(transformers, "llava", tmp_path / "llava")
    capsys.readouterr()
    page = tmp_path / "x.html"
    call = ["show", "--hf", str(tmp_path / "llava"), TEXT, "--image", str(photo), "--words", "--hide", "what"]
    assert main([*call, "--html", str(page)]) == 0, capsys.readouterr().err
    assert '"mixed"' in Path(page).read_text(encoding="utf-8")
    assert main(call) == 0
    assert "image" in capsys.readouterr().out
