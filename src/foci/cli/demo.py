"""`foci demo`: the main job on built-in data, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

app = App(name="demo", help="See it work, on built-in data: train, predict, and look at what was attended to.")

_SHOWN = 3


@app.command
def translate(
    *,
    from_: Annotated[str, Parameter(name="--from")] = "en",
    to: str = "zh",
    out: Path = Path("demo"),
    steps: int = 3200,
    size: int = 20_000,
    seed: int = 0,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,
) -> None:
    """Train a translator of dates, amounts, units and lists, and show what each word was read from.

    Parameters
    ----------
    from_
        The language to translate from: any locale of CLDR, such as en, de, ja or pt-BR.
    to
        The language to translate to.
    out
        The folder for the run, a picture and a page; what an earlier demo left there is replaced.
    steps
        How long to train; 3,200 steps take some two minutes.
    size
        How many sentence pairs are made for training.
    seed
        Of the sentences and of the model.
    set
        Any other setting of the training, as in foci train.
    """
    import torch

    from foci.cli.progress import counting
    from foci.data.phrasebook import phrasebook
    from foci.metrics import monotonicity
    from foci.tasks import config as configs
    from foci.tasks import load
    from foci.tasks.translate import Search, TranslateConfig, train

    tables: dict[str, Any] = {
        "data": {"phrasebook": f"{from_}-{to}", "phrasebook_size": size, "max_tokens": 512},
        "tokeniser": {"kind": "words", "size": 4000},
        "model": {
            "kind": "rnn",
            "preset": "tiny",
            "embedding_dim": 64,
            "hidden_dim": 128,
            "input_feeding": False,
            "dropout": 0.05,
        },
        "label_smoothing": 0.0,
        "training": {
            "max_steps": steps,
            "learning_rate": 4e-3,
            "schedule": "cosine",
            "warmup": 100,
            "valid_every": 1000,
            "seed": seed,
        },
    }
    tables = configs.apply_changes(tables, set or [])
    config = TranslateConfig.from_table(tables, "foci demo", "")
    torch.set_num_threads(1)  # for so small a model a second thread costs more than it brings
    run = out / f"{from_}-{to}"
    print(f"1. Training a translator with attention, {from_} to {to}, for {steps} steps, on made-up phrases.")
    if (run / "config.json").exists():
        shutil.rmtree(run)  # an earlier demo's
    train(config, run)
    translator = load(run)

    print("\n2. Phrases it has never seen:")
    pairs = phrasebook(from_, to, split="test", size=300, seed=seed)
    with counting("translating", len(pairs)) as progress:
        figures = translator.evaluate(pairs, search=Search(beam=1), progress=progress)
    print(f"   {figures['exact']:.1%} of {len(pairs)} translated exactly; BLEU {figures['bleu']:.1f}\n")

    # Of phrases that are neither short nor long, those whose words change places most: there is something to see.
    some = sorted(pairs[:100], key=lambda pair: abs(len(pair.source) - 30))[:20]
    predictions = translator.predict([pair.source for pair in some], trace=True)
    order = sorted(range(len(some)), key=lambda number: monotonicity(predictions[number].trace.alignment()))
    for number in order[:_SHOWN]:
        pair, prediction = some[number], predictions[number]
        mark = "right" if prediction.text == pair.target else f"wrong, expected {pair.target}"
        print(f"{pair.source}  →  {prediction.text}   ({mark})")
        prediction.trace.print()
        print()
    best = predictions[order[0]].trace
    picture, page = out / "alignment.png", out / "alignment.html"
    best.plot(picture)
    best.save_html(page)
    print("3. What it looked at:")
    print(f"   the picture {picture.resolve()}")
    print(f"   the page    {page.resolve()}   (open it in a browser)")
    print(f'\nGo on with: foci translate {run} "{some[order[0]].source}" --show')
