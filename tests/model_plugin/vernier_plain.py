"""Plain models for small images: a stem, three stages of convolutions and a linear classifier."""

from torch import Tensor, nn

from vernier.models.contract import Entry, Family, Layout, Options
from vernier.models.recomputing import Recomputing

WIDTH, STAGES = 16, 3


class Block(Recomputing):
    """Half the resolution, another number of channels. Its activations can be computed again."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.in_part(lambda x: self.norm(self.conv(x)).relu(), x)


class Plain(nn.Module):
    """Images [N, channels, H, W] to logits [N, classes]."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        width = options.width or WIDTH
        self.options = options
        self.layout = Layout(
            stem=("stem",),
            stages=(("stages.0",), ("stages.1",), ("stages.2",)),
            blocks=(1, 1, 1),
            classifier="head",
        )
        self.stem = nn.Conv2d(options.in_channels, width, 3, padding=1)
        self.stages = nn.ModuleList(nn.ModuleList([Block(width << n, width << n + 1)]) for n in range(STAGES))
        self.head = nn.Linear(width << STAGES, options.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return self.head(x.mean(dim=(2, 3)))


FAMILY = Family(
    models=(
        Entry(
            name="plain4",
            family="plain",
            summary="four convolutions for small images",
            input_px=32,
            classes=10,
            width=WIDTH,
            build=Plain,
        ),
    ),
    options=("width",),
)
