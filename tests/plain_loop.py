"""The training loop that one would write by hand in PyTorch, fed with the batches of a run: losses to compare with."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vernier.config import Config
from vernier.engine.training.setup import prepare

PlainLoss = Callable[[Tensor, Tensor], Tensor]


def plain_losses(
    config: Config,
    steps: range,
    rate: Callable[[int], float],
    loss_of: PlainLoss | None = None,
    checkpoint: Path | None = None,
) -> list[float]:
    """The loss of each step. Only images and labels, in their order, come from Vernier; the rest is PyTorch."""
    loss_of = loss_of or nn.CrossEntropyLoss()
    job = prepare(config)
    try:
        model = job.model.train()
        decayed = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        optim = config.recipe.optim
        optimizer = torch.optim.SGD(
            [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=1.0,
            momentum=optim.momentum,
            nesterov=getattr(optim, "nesterov", False),
        )
        if checkpoint is not None:
            model.load_state_dict(load_file(checkpoint / "model.safetensors"))
            momentum = load_file(checkpoint / "optimizer.safetensors")
            for name, p in model.named_parameters():
                optimizer.state[p]["momentum_buffer"] = momentum[f"{name}/momentum_buffer"].clone()
        batches: Iterable[object] = job.loader.batches(job.requests(steps.start, steps.stop))
        mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in (config.recipe.data.mean, config.recipe.data.std))
        losses = []
        for step, batch in zip(steps, batches, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            images = batch.images.float() * (1 / (255 * std)) - mean / std  # type: ignore[attr-defined]
            loss = loss_of(model(images.contiguous(memory_format=torch.channels_last)), batch.targets)  # type: ignore[attr-defined]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    finally:
        job.close()
