"""Batch norm over a stated number of images, whatever the number of processes that hold them.

The statistics of a recipe's batch norm are taken over `model.batch_norm_images` images. Where a process holds more, its batch is
taken in parts (ghost batch norm); where it holds fewer, neighbouring processes combine theirs, with PyTorch's own
SyncBatchNorm on devices it knows and with the one here on the others, such as the CPU.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from vernier.config import Config, Derived
from vernier.devices import Device
from vernier.engine.processes.world import World
from vernier.errors import ConfigError


def span_of(config: Config, derived: Derived) -> int:
    """Images over which statistics are taken: all of a micro-step for 0, those of one process when left out."""
    wanted, mine = config.recipe.model.batch_norm_images, derived.process_batch
    if wanted is None:
        return mine
    span = wanted or mine * derived.world
    fits = span <= mine * derived.world and (mine % span == 0 if span <= mine else span % mine == 0)
    if not fits or (span > mine and derived.world % (span // mine)):
        raise ConfigError(
            f"model.batch_norm_images = {wanted} images cannot be made of {derived.world} process(es) with {mine} images each: it must "
            "divide a process's batch, or be a number of whole processes that divides all of them. "
            "Change model.batch_norm_images, --procs or machine.process_batch."
        )
    return span


def with_span(model: nn.Module, config: Config, derived: Derived, world: World, device: Device) -> nn.Module:
    """The model with its batch norms over the span that the recipe asks for; state keeps its names."""
    span = span_of(config, derived)
    if span == derived.process_batch:
        return model
    if span < derived.process_batch:
        return _replaced(model, lambda norm: GhostBatchNorm(norm, span))
    if config.machine.mode != "eager":
        raise ConfigError(
            f"model.batch_norm_images = {span} needs statistics of several processes inside the network, which --mode "
            f"{config.machine.mode} cannot capture. Use --mode eager, or fewer processes."
        )
    group = world.subgroup(span // derived.process_batch)
    if device.native_sync_bn:
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model, group)  # type: ignore[no-untyped-call]
        return converted
    return _replaced(model, lambda norm: JointBatchNorm(norm, group))


def _replaced(model: nn.Module, make: Any) -> nn.Module:
    for name, child in list(model.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, make(child))
        else:
            _replaced(child, make)
    return model


class _Replacement(nn.BatchNorm2d):
    """Takes the place of a batch norm, with its tensors."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.training = norm.training

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        output, mean, var = self._normalized(input)
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        with torch.no_grad():
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(var, share)
        return output

    def _normalized(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The output, and the mean and unbiased variance to remember."""
        raise NotImplementedError


class GhostBatchNorm(_Replacement):
    """Every `span` images of a batch on their own; the mean of their statistics is remembered."""

    def __init__(self, norm: nn.BatchNorm2d, span: int) -> None:
        super().__init__(norm)
        self.span = span

    def _normalized(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = torch.split(input, self.span)
        means = torch.zeros(len(parts), self.num_features, device=input.device)
        variances = torch.zeros_like(means)
        outputs = [
            F.batch_norm(part, mean, var, self.weight, self.bias, True, 1.0, self.eps)
            for part, mean, var in zip(parts, means, variances, strict=True)
        ]
        return torch.cat(outputs), means.mean(0), variances.mean(0)


class JointBatchNorm(_Replacement):
    """The statistics of all processes of a group together; each must hold as many images."""

    def __init__(self, norm: nn.BatchNorm2d, group: Any) -> None:
        super().__init__(norm)
        self.group = group

    def _normalized(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        output, mean, var = _Joint.apply(input, self.weight, self.bias, self.eps, self.group)  # type: ignore[no-untyped-call]
        count = input.numel() // input.shape[1] * dist.get_world_size(self.group)
        return output, mean, var * (count / max(count - 1, 1))


_OVER = (0, 2, 3)


def _per_channel(values: torch.Tensor) -> torch.Tensor:
    return values[None, :, None, None]


class _Joint(torch.autograd.Function):
    """Normalisation by the statistics of a group of processes, with the gradient through those statistics."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, group: Any) -> Any:
        var, mean = torch.var_mean(x.float(), _OVER, correction=0)
        both = torch.stack([mean.double(), var.double() + mean.double().square()])
        dist.all_reduce(both, group=group)
        both /= dist.get_world_size(group)
        mean, var = both[0].float(), (both[1] - both[0].square()).clamp_(min=0).float()
        y = F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt())
        ctx.group = group
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        x, weight, mean, inverse = ctx.saved_tensors
        grad, normal = grad.float(), (x.float() - _per_channel(mean)) * _per_channel(inverse)
        bias_grad, weight_grad = grad.sum(_OVER), (grad * normal).sum(_OVER)
        sums = torch.stack([bias_grad, weight_grad]).double()
        dist.all_reduce(sums, group=ctx.group)
        sums /= grad.numel() // grad.shape[1] * dist.get_world_size(ctx.group)
        mean_grad, mean_product = sums[0].float(), sums[1].float()
        x_grad = (grad - _per_channel(mean_grad) - normal * _per_channel(mean_product)) * _per_channel(weight * inverse)
        return x_grad.to(x.dtype), weight_grad, bias_grad, None, None
