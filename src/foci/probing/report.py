"""What a probe found: for each attention and head how much it mattered, beside chance, with a verdict in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from foci.metrics.ranking import Estimate

if TYPE_CHECKING:
    from foci.probing.subject import Unit

SMALL = 0.05
"""A total variation below which an answer is said to stay."""

MATTERS, CHANCE, UNCLEAR, UNIFORM, REPLACEABLE = "matters", "chance", "unclear", "uniform", "replaceable"

VERDICTS = {
    "en": {
        MATTERS: "Removing the {read} most changes the answer more than chance.",
        CHANCE: "Removing the {read} most changes the answer no more than chance: do not read it as a reason.",
        UNCLEAR: "These inputs do not show whether removing the {read} most changes the answer more than chance: "
        "probe more.",
        UNIFORM: "With uniform weights the answer stays.",
        REPLACEABLE: "Quite different weights give the same answer.",
    },
    "zh": {
        MATTERS: "抹去它{read}，答案的变化超过随机水平。",
        CHANCE: "抹去它{read}，答案的变化不超过随机水平：不要把它当作理由。",
        UNCLEAR: "抹去它{read}，答案的变化是否超过随机水平，仅凭这些输入还看不出来：请用更多输入再测。",
        UNIFORM: "换成均匀的权重，答案不变。",
        REPLACEABLE: "换成很不一样的权重，答案也不变。",
    },
}
"""The verdicts, with a place for what was read."""

READ: dict[str, dict[Unit, str]] = {
    "en": {
        "words": "words it read",
        "regions": "regions it looked at",
        "sound": "stretches of sound it listened to",
    },
    "zh": {"words": "看得最多的词", "regions": "看得最多的区域", "sound": "听得最多的声音片段"},
}
"""What a verdict calls that which was read."""


MEASURES = {
    "comprehensiveness": ("without what it read", "抹去所关注的内容"),
    "sufficiency": ("with that alone", "只留所关注的内容"),
    "tau": ("τ with leave-one-out", "与逐一抹去结果的 τ"),
    "auprc": ("AUPRC of what people marked", "对照人工标注的 AUPRC"),
    "f1": ("F1 of what people marked", "对照人工标注的 F1"),
    "pointing": ("points at what they marked", "最大权重落在标注框内"),
    "uniform": ("uniform weights", "均匀的权重"),
    "permuted": ("permuted weights", "打乱的权重"),
    "adversarial": ("divergence at the same answer", "答案不变时的最大散度"),
}
"""What the measures are called, in English and in Chinese."""


@dataclass(frozen=True)
class Row:
    """What was found of an attention, of one of its heads, or of gradient × input.

    Attributes:
        name: of the attention; "gradient × input" for that.
        head: which of its heads; None for their mean.
        source: what it reads.
        measures: by name; a higher ``comprehensiveness`` and a lower ``sufficiency`` mean that what it read mattered.
        chance: what the same measures reach by chance, where that is known.
        verdicts: keys of `VERDICTS`.
        unit: what the parts of the source are.
    """

    name: str
    head: int | None
    source: str
    measures: Mapping[str, Estimate]
    chance: Mapping[str, float]
    verdicts: tuple[str, ...] = ()
    unit: Unit = "words"

    def words(self, language: str = "en") -> str:
        """Return the verdict in words."""
        between = "" if language == "zh" else " "
        return between.join(VERDICTS[language][key].format(read=READ[language][self.unit]) for key in self.verdicts)


@dataclass(frozen=True)
class Probe:
    """The result of `foci.probe`.

    Attributes:
        rows: each attention, each head, and gradient × input.
        inputs: how many were probed.
        notes: what was not measured, and why.
    """

    rows: tuple[Row, ...]
    inputs: int
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, key: str | tuple[str, int | None]) -> Row:
        name, head = key if isinstance(key, tuple) else (key, None)
        for row in self.rows:
            if (row.name, row.head) == (name, head):
                return row
        from foci.errors import unknown_name

        raise unknown_name("attention", name, dict.fromkeys(row.name for row in self.rows))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, verdicts in English and Chinese."""
        rows = [asdict(row) | {"words": {language: row.words(language) for language in VERDICTS}} for row in self.rows]
        for row in rows:
            row["measures"] = {name: [*one] for name, one in row["measures"].items()}
        return {"inputs": self.inputs, "rows": rows, "notes": [*self.notes], "said": dict(MEASURES)}

    @property
    def columns(self) -> list[str]:
        """The measures that any row has, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row.measures))

    def __repr__(self) -> str:
        names = [row.name + ("" if row.head is None else f", head {row.head}") for row in self.rows]
        width = max(map(len, names), default=0)
        lines = [f"Probe of {self.inputs} input{'s' * (self.inputs != 1)}"]
        for name, row in zip(names, self.rows):
            shown = "  ".join(f"{key} {shown_estimate(one, row.chance.get(key))}" for key, one in row.measures.items())
            lines.append(f"  {name:<{width}}  {shown}  {row.words()}".rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def shown_estimate(one: Estimate, chance: float | None = None) -> str:
    """Return a measure as text: its value, its interval, and chance."""
    text = f"{one.value:.3f}"
    if one.low is not None and one.high is not None:
        text += f" [{one.low:.3f}, {one.high:.3f}]"
    return text if chance is None else f"{text} (chance {chance:.3f})"
