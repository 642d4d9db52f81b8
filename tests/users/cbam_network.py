"""A residual network with CBAM: which kind of bar is in the noise? Its map is brighter where the bar is."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

SIZE = 12


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.attention = foci.CBAM(channels, reduction=4, kernel_size=5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.convolve(x)).output


class Network(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), Block(channels), Block(channels))
        self.output = nn.Linear(channels, 2)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.output(self.layers(images).mean(dim=(2, 3)))
        return scores


def pictures(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Noise with a bar of 5 pixels, whether it stands, and where it is."""
    images, stands, where = torch.randn(rows, 1, SIZE, SIZE) * 0.5, torch.randint(2, (rows,)), []
    for image, stand, (y, x) in zip(images, stands.tolist(), torch.randint(SIZE - 5, (rows, 2)).tolist()):
        bar = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        bar[y : y + 5, x] = bool(stand)
        bar[y, x : x + 5] |= not stand
        image[0, bar] += 2.0
        where.append(bar)
    return images, stands, torch.stack(where)


def main() -> None:
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(120):
        images, stands, _ = pictures(32)
        loss = F.cross_entropy(model(images), stands)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, stands, where = pictures(200)
    with torch.no_grad(), foci.record(model.eval()) as tape:
        right = (model(images).argmax(dim=-1) == stands).float().mean()
    places = tape["layers.1.attention.spatial"].dense()[:, 0]
    on_bar, elsewhere = places[where].mean(), places[~where].mean()
    print(f"bars: {right:.3f}; mean of the map on the bar {on_bar:.2f}, elsewhere {elsewhere:.2f}")
    assert right > 0.9
    assert places.min() >= 0
    assert places.max() <= 1
    assert on_bar > elsewhere + 0.01


if __name__ == "__main__":
    main()
