"""How to train: every option of the training loop, in one frozen dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from foci.errors import ConfigError
from foci.files import FilePath
from foci.settings import settings

Optimizer = Literal["adam", "adamw", "muon"]
Schedule = Literal["constant", "noam", "inverse_sqrt", "cosine", "linear"]
Precision = Literal["float32", "bfloat16"]
Strategy = Literal["ddp", "fsdp"]
Count = Annotated[int, Ge(1)]
Seconds = Annotated[float, Gt(0), Le(1e9)]
Factor = Annotated[float, Gt(0), Le(1000)]
Decay = Annotated[float, Ge(0), Lt(1)]


@settings
class TrainingOptions:
    """The options of the training loop. At least one of the ways to stop must be set.

    Example:
        >>> TrainingOptions(max_steps=1000, schedule="inverse_sqrt", warmup=100).learning_rate
        0.001
    """

    max_steps: Count | None = None
    """Stop after this many steps (updates of the weights), counted from the start of the run."""
    max_epochs: Count | None = None
    """Stop after this many epochs."""
    time_limit: Seconds | None = None
    """Stop cleanly after this many seconds of training, counted over all sessions of the run, with all validations and
    checkpoints; once these have been measured, the time that the last of them take is left for them."""
    patience: Count | None = None
    """Stop after this many validations in a row that did not improve on the best one."""

    init_from: FilePath | None = None
    """The folder of another run of the same task, whose weights are the start: those of the same names and shapes, rows
    of words and labels by name."""

    optimizer: Optimizer = "adam"
    """adam adds weight decay to the gradient, adamw applies it to the weights directly, muon orthogonalizes the
    updates of matrices and leaves embeddings, vectors and the layers of adam_layers to adamw."""
    adam_layers: tuple[str, ...] = ("output.weight",)
    """With muon: the ends of the names of further parameters that adamw steps."""
    momentum: Decay = 0.95
    """Momentum of muon."""
    learning_rate: Factor = 1e-3
    """The highest learning rate of the schedule; for noam, the factor in front of it."""
    lr_multipliers: Mapping[str, Factor] = field(default_factory=dict)
    """Shares of the learning rate for some parameters, by the end of their names, for example {"score.weight": 0.1}. Of
    several ends of one name the longest counts."""
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    """Adam's decay rates of the moving averages of the gradient and of its square."""
    eps: Annotated[float, Gt(0), Le(1)] = 1e-9
    """Added to Adam's denominator."""
    weight_decay: Annotated[float, Ge(0), Le(100)] = 0.0
    """Weight decay of matrices; vectors (biases, gains of norms) have none."""
    schedule: Schedule = "constant"
    """How the learning rate changes after the warm-up. cosine and linear end with max_steps or time_limit, whichever
    comes first, and need one of them; runs that the time ends are not equal bit for bit."""
    warmup: Annotated[int, Ge(0)] = 0
    """Steps over which the learning rate rises linearly from 0."""
    model_dim: Count | None = None
    """Width of the model, which the noam schedule is scaled by."""
    min_lr_ratio: Annotated[float, Ge(0), Le(1)] = 0.0
    """Where cosine and linear end, as a share of the learning rate: what a step after the last one would have."""

    max_grad_norm: Annotated[float, Gt(0), Le(1e9)] | None = 1.0
    """Largest L2 norm of the gradient over all weights; longer gradients are scaled down to it. None never clips."""
    gradient_accumulation_steps: Count = 1
    """Batches whose gradients are accumulated per step."""
    precision: Precision = "float32"
    """bfloat16 runs the forward pass under autocast; weights and optimizer stay in float32."""
    compile: bool = False
    """Compile the model's forward pass with torch.compile."""
    device: str = "auto"
    """auto, cpu, cuda or another of Fabric's accelerators."""
    strategy: Strategy = "ddp"
    """Under torchrun: ddp copies the model to each process, fsdp shards it, for models too large for one device."""
    distributed_timeout: Annotated[float, Ge(1), Le(1e9)] = 600.0
    """Under torchrun: seconds that a process waits for the others before it ends with an error, for example when the
    network between two nodes is lost. What the first process does alone, such as a validation, may take longer."""
    find_unused_parameters: bool = False
    """For ddp: some parameters are unused in some steps. Costs a traversal of the graph per step."""
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
    """Seed of dropout and all other random numbers; each process adds its rank."""

    eval_every: Count | None = 1000
    """Steps between validations; there is one more at the end. None never validates."""
    metric_for_best_model: str | None = "loss"
    """The metric of the validation that decides which checkpoint is the best one, and on patience."""
    greater_is_better: bool = False
    """Whether higher values of that metric are better (accuracy, BLEU); tasks set it for their own metrics."""
    save_every: Count | None = None
    """Steps between checkpoints."""
    save_seconds: Seconds | None = 600.0
    """Seconds between checkpoints, in addition to save_every. One is always written at the end."""
    save_total_limit: Count = 1
    """Newest checkpoints to keep, in addition to the best one of each one's time."""
    average_last: Annotated[int, Ge(0)] = 0
    """Checkpoints whose weights are averaged at the end: the newest of those of every save_every steps, which are kept
    until then. Below 2: no average."""

    moving_average: Decay = 0.0
    """Decay rate of a moving average of the weights, about the mean of the last 1 / (1 − rate) steps, which is
    validated and saved instead of them. 0: none."""

    metrics_every: Count = 10
    """Steps between lines of metrics.jsonl; each line covers all steps since the previous one."""
    log_seconds: Seconds = 10.0
    """Seconds between log lines without a terminal."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too."""

    def __post_init__(self) -> None:
        owner = "TrainingOptions"
        if self.max_steps is self.max_epochs is self.time_limit is self.patience is None:
            raise ConfigError(f"{owner}: nothing ends the training. Set max_steps, max_epochs, time_limit or patience.")
        if self.schedule in ("cosine", "linear") and self.max_steps is None and self.time_limit is None:
            raise ConfigError(
                f"{owner}: schedule {self.schedule!r} ends with the training, so it needs max_steps or time_limit."
            )
        if self.schedule == "noam" and (self.model_dim is None or self.warmup < 1):
            raise ConfigError(
                f"{owner}: schedule 'noam' needs model_dim and a warmup of at least 1, "
                f"got model_dim={self.model_dim}, warmup={self.warmup}."
            )
        if self.moving_average > 0 and self.average_last > 1:
            raise ConfigError(
                f"{owner}: moving_average is {self.moving_average} with average_last = {self.average_last}, expected "
                "one of them: what is saved is an average already. Leave one out."
            )
        if self.patience is not None and (self.eval_every is None or self.metric_for_best_model is None):
            raise ConfigError(
                f"{owner}: patience counts validations, so it needs eval_every and metric_for_best_model."
            )


RESUMABLE = (
    *("max_steps", "max_epochs", "time_limit", "patience"),
    *("learning_rate", "lr_multipliers", "schedule", "warmup", "min_lr_ratio", "max_grad_norm"),
    *("weight_decay", "betas", "eps", "model_dim"),
    *("eval_every", "metric_for_best_model", "greater_is_better"),
    *("save_every", "save_seconds", "save_total_limit", "average_last"),
    *("metrics_every", "log_seconds", "tensorboard"),
    *("device", "strategy", "distributed_timeout", "find_unused_parameters", "compile"),
)
"""Options that may change when a run is resumed: limits, learning rate, validation, checkpoints, and where it runs."""
