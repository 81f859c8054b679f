"""Batch norm over a stated number of images, whatever the number of processes that hold them.

Statistics are taken over `model.batch_norm_images` images. Where a process holds more, its batch is split into parts
(ghost batch norm); where it holds fewer, neighbouring processes combine theirs: with PyTorch's SyncBatchNorm on the
devices it supports, and with the one here on others, such as the CPU.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from vernier.config import Config, Derived
from vernier.devices import Device
from vernier.errors import ConfigError
from vernier.references import given, use
from vernier.wording import plural

from .world import World


def _count_batch_norm_images(config: Config, derived: Derived) -> int:
    """Images per batch-norm statistic: all of a micro-step when set to 0, those of one process when not set."""
    setting, own = config.recipe.model.batch_norm_images, derived.process_batch
    if setting is None:
        return own
    if derived.virtual_shards is not None:
        return _count_in_shard(setting, own, derived.virtual_shards)
    images = setting or own * derived.world
    # Parts of one batch (ghost), or whole processes (joint); then the groups of processes must be equally large.
    fits = images <= own * derived.world and (own % images == 0 if images <= own else images % own == 0)
    if not fits or (images > own and derived.world % (images // own)):
        raise ConfigError(
            f"{given('model.batch_norm_images', setting)} does not fit {plural(derived.world, 'process')} with {own} "
            "images each: it must divide a process's batch, or be a number of whole processes that divides all of "
            f"them. Change {use('model.batch_norm_images')}, {use('machine.procs')} or {use('machine.process_batch')}."
        )
    return images


def _count_in_shard(setting: int, own: int, shards: int) -> int:
    """The same for exact reduction, where statistics are those of a virtual shard or of a part of it."""
    # 0, the whole batch, is refused on one process, too: what is refused must not depend on their number.
    images = setting or own * shards
    if images > own or own % images:
        raise ConfigError(
            f"model.batch_norm_images = {setting} does not fit machine.reduction = exact: each of {shards} virtual "
            f"shards is computed alone, so it must divide their {own} images. Leave it out, or set virtual_shards."
        )
    return images


def convert_batch_norms(model: nn.Module, config: Config, derived: Derived, world: World, device: Device) -> nn.Module:
    """The model with batch norms over as many images as the recipe sets; names in the state stay."""
    images = _count_batch_norm_images(config, derived)
    if images == derived.process_batch:
        return model
    if images < derived.process_batch:
        return _replace_norms(model, lambda norm: _GhostBatchNorm(norm, images))
    if config.machine.mode != "eager":
        raise ConfigError(
            f"{given('model.batch_norm_images', images)} needs statistics of several processes, which "
            f"{given('machine.mode', config.machine.mode)} cannot capture. Use {use('machine.mode', 'eager')}, or "
            "fewer processes."
        )
    processes = images // derived.process_batch
    if device.native_sync_bn:
        group = world.subgroup(processes)
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model, group)  # type: ignore[no-untyped-call]
        return converted
    # gloo, whatever the backend of the device: `_Joint` brings the statistics to host memory.
    host_group = world.subgroup(processes, backend="gloo")
    return _replace_norms(model, lambda norm: _JointBatchNorm(norm, host_group))


def _replace_norms(model: nn.Module, make: Any) -> nn.Module:
    for name, child in list(model.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            if type(child) is not nn.BatchNorm2d:  # it may do more than normalize, as timm's BatchNormAct2d does
                raise ConfigError(
                    f"{given('model.batch_norm_images')} cannot replace {name}, a {type(child).__name__}. Omit it."
                )
            setattr(model, name, make(child))
        else:
            _replace_norms(child, make)
    return model


class _Replacement(nn.BatchNorm2d):
    """A batch norm in place of another one, with its tensors."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        # The same tensors under the same names: checkpoints of the plain model fit, and the other way around.
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.training = norm.training

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        output, mean, var = self._normalize(input)
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        weight = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        with torch.no_grad():
            self.running_mean.lerp_(mean, weight)
            self.running_var.lerp_(var, weight)
        return output

    def _normalize(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The output, and the mean and unbiased variance for the running statistics."""
        raise NotImplementedError


class _GhostBatchNorm(_Replacement):
    """Ghost batch norm: every `images` images are normalised on their own; running statistics get their mean."""

    def __init__(self, norm: nn.BatchNorm2d, images: int) -> None:
        super().__init__(norm)
        self.images = images

    def _normalize(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = torch.split(input, self.images)
        means = torch.zeros(len(parts), self.num_features, device=input.device)
        variances = torch.zeros_like(means)
        # Momentum 1 writes the statistics of a part, the variance unbiased, into its row [parts, channels], a view.
        outputs = [
            F.batch_norm(part, mean, var, self.weight, self.bias, True, 1.0, self.eps)
            for part, mean, var in zip(parts, means, variances, strict=True)
        ]
        return torch.cat(outputs), means.mean(0), variances.mean(0)


class _JointBatchNorm(_Replacement):
    """Batch norm over all processes of a group, each of which holds the same number of images.

    The statistics meet in host memory, in double: not every device has collectives or double.
    """

    def __init__(self, norm: nn.BatchNorm2d, group: Any) -> None:
        super().__init__(norm)
        self.group = group

    def _normalize(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tensors = (input, self.weight, self.bias)
        output, mean, var = _Joint.apply(*tensors, self.eps, self.group)  # type: ignore[no-untyped-call]
        count = input.numel() // input.shape[1] * dist.get_world_size(self.group)
        # Running statistics have the unbiased variance, as PyTorch's.
        return output, mean, var * (count / max(count - 1, 1))


_OVER = (0, 2, 3)  # images, height, width of [N, C, H, W]: statistics are per channel


def _per_channel(values: torch.Tensor) -> torch.Tensor:
    return values[None, :, None, None]


class _Joint(torch.autograd.Function):
    """Normalisation by the statistics of a group of processes, with the gradient through those statistics."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, group: Any) -> Any:
        var, mean = torch.var_mean(x.float(), _OVER, correction=0)
        own = torch.stack([mean, var]).cpu().double()
        # E[x] and E[x^2] can be averaged over processes, variances cannot. In double, because E[x^2] - E[x]^2 cancels;
        # what rounding leaves may be below zero.
        both = torch.stack([own[0], own[1] + own[0].square()])
        dist.all_reduce(both, group=group)
        both /= dist.get_world_size(group)
        mean, var = torch.stack([both[0], (both[1] - both[0].square()).clamp_(min=0)]).float().to(x.device)
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
        sums = torch.stack([bias_grad, weight_grad]).cpu().double()
        dist.all_reduce(sums, group=ctx.group)
        sums /= grad.numel() // grad.shape[1] * dist.get_world_size(ctx.group)
        # Ioffe and Szegedy (2015): mean and variance depend on every image of the group, so both means are over all of
        # them. Gradients of weight and bias stay local: the gradient all-reduce averages them as all others.
        mean_grad, mean_product = sums.float().to(grad.device)
        x_grad = (grad - _per_channel(mean_grad) - normal * _per_channel(mean_product)) * _per_channel(weight * inverse)
        return x_grad.to(x.dtype), weight_grad, bias_grad, None, None
