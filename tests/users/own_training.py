"""One's own model in the training of foci: validation, checkpoints, resuming, and loading the run."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci
from foci.training.objective import Loss

Batch = tuple[Tensor, Tensor]


class Largest(nn.Module):
    """Reads the largest of some numbers by attention over them."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(1, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, hidden_dim))
        self.pool = foci.AttentionPool(hidden_dim)
        self.output = nn.Linear(hidden_dim, 1)

    def forward(self, numbers: Tensor, valid: Tensor) -> Tensor:
        pooled = self.pool(self.embed(numbers.unsqueeze(-1)), valid)
        found: Tensor = self.output(pooled.output).squeeze(-1)
        return found


def batch(rows: int) -> Batch:
    return torch.rand(rows, 7), foci.masks.lengths(torch.randint(2, 8, (rows,)), 7)


def largest(numbers: Tensor, valid: Tensor) -> Tensor:
    return numbers.masked_fill(~valid, -1.0).amax(dim=-1)


class Regression:
    def __init__(self, held_out: Batch) -> None:
        self.held_out = held_out

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        wrong = model(*batch) - largest(*batch)
        return Loss(wrong.square().sum(), len(wrong), {"absolute": wrong.detach().abs().sum()})

    def validate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": float(F.mse_loss(model(*self.held_out), largest(*self.held_out)))}


def main() -> None:
    torch.manual_seed(0)
    batches, objective = [batch(32) for _ in range(50)], Regression(batch(200))
    options = {"max_steps": 50, "learning_rate": 0.01, "eval_every": 50, "device": "cpu"}
    arguments = {"hidden_dim": 16}
    foci.fit(Largest(16), objective, batches, out="run", options=options, arguments=arguments)
    options["max_steps"] = 200  # a run goes on from its newest checkpoint, also after a kill
    result = foci.fit(Largest(16), objective, batches, out="run", options=options, arguments=arguments, resume=True)
    print(f"{result.reason} at step {result.step}, mean square error {result.best_value:.4f}")
    assert result.best_value is not None
    assert result.best_value < 0.01
    model = foci.load("run", model=Largest)
    with torch.no_grad(), foci.record(model) as tape:
        assert abs(objective.validate(model)["loss"] - result.best_value) < 1e-6
        model(torch.tensor([[0.1, 0.9, 0.3]]), torch.tensor([[True, True, True]]))
    assert int(tape["pool", 1].argmax()) == 1


if __name__ == "__main__":
    main()
