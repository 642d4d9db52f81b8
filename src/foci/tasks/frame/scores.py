"""Scores of classes with the classes that are right: their temperature in validation, their calibration in evaluation.

The checkpoint is chosen by the loss at its own temperature: what a temperature mends is no reason to stop early, and
the loss tells checkpoints apart that give equally many right answers.

Paper: Rethinking Early Stopping: Refine, Then Calibrate (Berta, Holzmüller, Jordan, Bach, 2025), section 5
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from foci.metrics.calibration import Bin, calibration, expected_calibration_error, fit_temperature
from foci.tasks.frame.task import Table

UNTRAINED = -1
"""The number of a class that was not trained, or that an example does not have: such an example has no loss."""
_KEPT = 2**24
"""Scores that a temperature is fitted to: of more of them, the first examples."""


class Scores:
    """Counts batches of scores.

    Args:
        temperature: what the scores are divided by before they become probabilities.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature
        self.targets: list[int] = []
        self.best: list[int] = []
        self._probabilities: tuple[list[float], list[float]] = [], []
        self._nats, self._chance = np.zeros(2), 0.0
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, scores: Float[Tensor, "B C"], targets: Int[Tensor, " B"]) -> None:
        """Count a batch; −∞ is the score of a class that an example does not have."""
        scores, targets = scores.float().cpu(), targets.cpu()
        known = targets != UNTRAINED
        self.targets += targets.tolist()
        self.best += scores.argmax(dim=-1).tolist()
        self._chance += float(scores.isfinite().sum(dim=-1)[known].log().sum())
        for number, temperature in enumerate((self.temperature, 1.0)):
            logs = (scores / temperature).log_softmax(dim=-1)
            self._probabilities[number].extend(logs.max(dim=-1).values.exp().tolist())
            self._nats[number] -= float(logs[known].gather(1, targets[known].unsqueeze(1)).sum())
        if (len(self.targets) - len(targets)) * scores.shape[1] < _KEPT:
            self._kept.append((scores.numpy(), targets.numpy()))

    @property
    def right(self) -> list[bool]:
        """Which of the best classes are right."""
        return [best == target for best, target in zip(self.best, self.targets)]

    @property
    def known(self) -> int:
        """How many examples have a loss."""
        return len(self.targets) - self.targets.count(UNTRAINED)

    @property
    def chance(self) -> float:
        """Nats per example of equal probabilities."""
        return self._chance / max(self.known, 1)

    def loss(self, *, calibrated: bool = True) -> float:
        """Return the nats per example, at the temperature or without it."""
        return float(self._nats[0 if calibrated else 1]) / max(self.known, 1)

    def fit(self) -> dict[str, float]:
        """Return the loss, the temperature that fits best, and the loss with it."""
        width = max(scores.shape[1] for scores, _ in self._kept)
        padded = [np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=-np.inf) for one, _ in self._kept]
        scores, targets = np.concatenate(padded), np.concatenate([targets for _, targets in self._kept])
        temperature = fit_temperature(scores, targets)
        fitted = Scores(temperature)
        fitted.add(Tensor(scores), Tensor(targets).long())
        return {"loss": self.loss(), "calibrated_loss": fitted.loss(), "calibration/temperature": temperature}

    def bins(self, bins: int = 10, *, calibrated: bool = True) -> list[Bin]:
        """Return how often the best class is right, by its probability."""
        return calibration(self._probabilities[0 if calibrated else 1], self.right, bins)

    def metrics(self) -> dict[str, float]:
        """Return the loss and the expected calibration error; both also without the temperature."""
        return {
            "loss": self.loss(),
            "loss_uncalibrated": self.loss(calibrated=False),
            "ece": expected_calibration_error(self.bins()),
            "ece_uncalibrated": expected_calibration_error(self.bins(calibrated=False)),
            "temperature": self.temperature,
        }

    def notes(self) -> dict[str, str]:
        """Return the note on probabilities that are worse than equal ones."""
        worse = {"loss": self.loss(), "loss_uncalibrated": self.loss(calibrated=False)}
        said = [f"{name} {value:.3g}" for name, value in worse.items() if value > self.chance]
        if not said:
            return {}
        advice = "do not rely on the probabilities" if worse["loss"] > self.chance else "the temperature mends it"
        return {"chance": f"{' and '.join(said)}: worse than equal probabilities, {self.chance:.3g} nats; {advice}"}


def calibration_table(bins: list[Bin], unit: str) -> Table:
    """Return how many predictions have each probability, and which share of them is right."""
    rows = tuple((f"{one.low:.2f}–{one.high:.2f}", one.size, one.confidence, one.accuracy) for one in bins)
    return Table(("probability", unit, "expected", "observed"), rows)
