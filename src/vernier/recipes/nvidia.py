"""NVIDIA's Deep Learning Examples for PyTorch: ResNet-50 v1.5, ResNeXt-101 32x4d, SE-ResNeXt-101 32x4d.

`+-` is the standard deviation over n runs, where their number is known. Two revisions matter: the RN50v1.5 folder of
May 2019, and its successor ConvNets (results of the 20.12 container). They agree at a total batch of 2048. The warm-up
depends on the machine, that is on the total batch, and not on the length of the training, whatever the READMEs say.
Decay spares what has "bn" in its name: projection norms are called downsample.1 and are decayed. No zero-gamma.
Recipes called as-documented follow the README's text in these two points instead of the scripts.
"""

from dataclasses import replace
from typing import Literal

from vernier.config import Augment, Loss, Model, Published, Recipe, Schedule
from vernier.optim.kinds.sgd import Sgd

_SEED = "NVIDIA DLE RN50v1.5, May 2019"
_HEAD = "NVIDIA DLE ConvNets, 729963d"

# Where a result was measured: device, number of devices, machine and container, and the page that says so.
_System = tuple[str, int, str, str]
_DGX1_2019: _System = ("V100 16 GB", 8, "DGX-1V, 2019", _SEED)
_DGX2_2019: _System = ("V100 32 GB", 16, "DGX-2V, 2019", _SEED)
_DGX1: _System = ("V100 16 GB", 8, "DGX-1, 20.12", _HEAD)
_DGX_A100: _System = ("A100 80 GB", 8, "DGX A100, 20.12", _HEAD)


def _recipe(source: str, model: str, epochs: int, batch: int, *published: Published) -> Recipe:
    """SGD 0.875, rate 0.256 / 256 * batch, warm-up by epochs, then cosine, smoothing 0.1; MixUp for 250 epochs.

    The settings of 2019 decay half as much as all that came later.
    """
    decay = 1 / 32768 if source == _SEED else 1 / 16384
    usual_batch = 2048 if model == "resnet50" else 1024
    return Recipe(
        name=f"nvidia-{model.removesuffix('-32x4d')}-{epochs}e" + (f"-{batch}" if batch != usual_batch else ""),
        about=f"{model}, {epochs} epochs at {batch}",
        source=source,
        global_batch=batch,
        model=Model(name=model, init="fan-in"),
        augment=Augment(mixup=0.2 if epochs == 250 else 0.0),
        loss=Loss(label_smoothing=0.1),
        optim=Sgd(lr=0.256, lr_batch=256, momentum=0.875, weight_decay=decay, decay_rule="nvidia-name"),
        schedule=Schedule(
            kind="cosine",
            epochs=float(epochs),
            warmup_epochs=16.0 if batch == 4096 else 8.0,
            warmup_form="stairs",
            unit="epoch",
        ),
        published=published,
    )


def _result(system: _System, precision: Literal["mixed", "fp32", "tf32"], mean: float, sd: float) -> Published:
    device, devices, note, source = system
    return Published(mean=mean, sd=sd, precision=precision, device=device, devices=devices, note=note, source=source)


def _as_documented(epochs: int) -> Recipe:
    """The text where its scripts differ: warm-up by the length of the training, no decay of any batch norm.

    The text refers to Goyal et al. for the warm-up, a straight line over 5 of 90 epochs, and says that it depends on
    the length of the training, not how: here it is 5/90 of it.
    """
    recipe = _recipe(_SEED, "resnet50", epochs, 2048)
    return replace(
        recipe,
        name=f"{recipe.name}-as-documented",
        about=f"{recipe.about}, as the text says",
        optim=replace(recipe.optim, decay_rule="norm-only"),
        schedule=replace(recipe.schedule, warmup_epochs=epochs * 5 / 90, warmup_form="line", unit="step"),
    )


def resnet50_50e() -> Recipe:
    """ResNet-50 v1.5, 50 epochs, batch 2048: 76.25 +- 0.04 % (fp16), 76.26 +- 0.07 % (fp32); n unknown.

    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019, README and resnet50v1.5/training scripts.
    Hardware and cost: DGX-1, 8 V100 16 GB at 5,816 img/s in fp16: about 3.1 hours of steps.
    Command: vernier train nvidia-resnet50-50e --data IMAGENET
    """
    return _recipe(
        _SEED, "resnet50", 50, 2048, _result(_DGX1_2019, "mixed", 76.25, 0.04), _result(_DGX1_2019, "fp32", 76.26, 0.07)
    )


def resnet50_90e() -> Recipe:
    """ResNet-50 v1.5, 90 epochs, batch 2048: 77.23 +- 0.04 % (fp16), 77.08 +- 0.07 % (fp32); n unknown.

    Later, 20.12 container, the same hyper-parameters: DGX A100 77.12 +- 0.11 % (AMP), 76.95 +- 0.18 % (TF32); DGX-1
    76.88 +- 0.16 % (AMP).
    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019; ConvNets at 729963d.
    Hardware and cost: 8 V100 16 GB at 5,816 img/s (2019), "about 8 hours"; 8 A100 80 GB at 16,621 img/s, "about 3
    hours".
    Command: vernier train nvidia-resnet50-90e --data IMAGENET
    """
    return _recipe(
        _SEED,
        "resnet50",
        90,
        2048,
        _result(_DGX1_2019, "mixed", 77.23, 0.04),
        _result(_DGX1_2019, "fp32", 77.08, 0.07),
        _result(_DGX_A100, "mixed", 77.12, 0.11),
        _result(_DGX_A100, "tf32", 76.95, 0.18),
        _result(_DGX1, "mixed", 76.88, 0.16),
    )


def resnet50_250e() -> Recipe:
    """ResNet-50 v1.5, 250 epochs with MixUp 0.2, batch 2048: 78.42 +- 0.04 % (fp16), 78.30 +- 0.16 % (fp32); n unknown.

    Later, 20.12 container, the same hyper-parameters: DGX A100 78.43 +- 0.11 % (AMP), 78.38 +- 0.17 % (TF32); DGX-1
    78.25 +- 0.12 % (AMP).
    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019; ConvNets at 729963d.
    Hardware and cost: 8 A100 80 GB at 16,621 img/s: about 5.4 hours of steps.
    Command: vernier train nvidia-resnet50-250e --data IMAGENET
    """
    return _recipe(
        _SEED,
        "resnet50",
        250,
        2048,
        _result(_DGX1_2019, "mixed", 78.42, 0.04),
        _result(_DGX1_2019, "fp32", 78.30, 0.16),
        _result(_DGX_A100, "mixed", 78.43, 0.11),
        _result(_DGX_A100, "tf32", 78.38, 0.17),
        _result(_DGX1, "mixed", 78.25, 0.12),
    )


def resnet50_50e_as_documented() -> Recipe:
    """ResNet-50 v1.5, 50 epochs, batch 2048, as NVIDIA's text says and not as its scripts do; no result published.

    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019, README: a linear warm-up whose length depends on that of
    the training (after Goyal: 5 of 90 epochs), no decay on any batch norm. Its scripts, and nvidia-resnet50-50e, warm
    up over 8 epochs at this batch, in stairs, and decay projection norms. Below 512 images the text has no warm-up:
    --set schedule.warmup_epochs=0.
    Hardware and cost: as nvidia-resnet50-50e.
    Command: vernier train nvidia-resnet50-50e-as-documented --data IMAGENET
    """
    return _as_documented(50)


def resnet50_90e_as_documented() -> Recipe:
    """ResNet-50 v1.5, 90 epochs, batch 2048, as NVIDIA's text says and not as its scripts do; no result published.

    Source: as nvidia-resnet50-50e-as-documented; 5 epochs of warm-up.
    Hardware and cost: as nvidia-resnet50-90e.
    Command: vernier train nvidia-resnet50-90e-as-documented --data IMAGENET
    """
    return _as_documented(90)


def resnet50_250e_as_documented() -> Recipe:
    """ResNet-50 v1.5, 250 epochs with MixUp, batch 2048, as NVIDIA's text says, not its scripts; no result published.

    Source: as nvidia-resnet50-50e-as-documented; 13.9 epochs of warm-up.
    Hardware and cost: as nvidia-resnet50-250e.
    Command: vernier train nvidia-resnet50-250e-as-documented --data IMAGENET
    """
    return _as_documented(250)


def resnet50_50e_4096() -> Recipe:
    """ResNet-50 v1.5, 50 epochs, batch 4096 and 16 warm-up epochs: 75.80 +- 0.08 % (fp16), 76.04 +- 0.05 % (fp32).

    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019, DGX-2 scripts.
    Hardware and cost: DGX-2, 16 V100 at 12,086 img/s in fp16: about 1.5 hours of steps.
    Command: vernier train nvidia-resnet50-50e-4096 --data IMAGENET
    """
    return _recipe(
        _SEED, "resnet50", 50, 4096, _result(_DGX2_2019, "mixed", 75.80, 0.08), _result(_DGX2_2019, "fp32", 76.04, 0.05)
    )


def resnet50_90e_4096() -> Recipe:
    """ResNet-50 v1.5, 90 epochs, batch 4096 and 16 warm-up epochs: 77.10 +- 0.06 % (fp16), 77.23 +- 0.04 % (fp32).

    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019, DGX-2 scripts.
    Hardware and cost: DGX-2, 16 V100 at 12,086 img/s in fp16: about 2.7 hours of steps.
    Command: vernier train nvidia-resnet50-90e-4096 --data IMAGENET
    """
    return _recipe(
        _SEED, "resnet50", 90, 4096, _result(_DGX2_2019, "mixed", 77.10, 0.06), _result(_DGX2_2019, "fp32", 77.23, 0.04)
    )


def resnet50_250e_4096() -> Recipe:
    """ResNet-50 v1.5, 250 epochs with MixUp, batch 4096: 78.59 +- 0.13 % (fp16), 78.46 +- 0.03 % (fp32).

    With 16 warm-up epochs.
    Source: NVIDIA/DeepLearningExamples, RN50v1.5, May 2019, DGX-2 scripts.
    Hardware and cost: DGX-2, 16 V100 at 12,086 img/s in fp16: about 7.4 hours of steps.
    Command: vernier train nvidia-resnet50-250e-4096 --data IMAGENET
    """
    return _recipe(
        _SEED,
        "resnet50",
        250,
        4096,
        _result(_DGX2_2019, "mixed", 78.59, 0.13),
        _result(_DGX2_2019, "fp32", 78.46, 0.03),
    )


def resnet50_90e_896() -> Recipe:
    """ResNet-50 v1.5, 90 epochs, batch 896 with twice the decay: 77.01 +- 0.16 % (fp32); n unknown.

    Source: NVIDIA/DeepLearningExamples, ConvNets at 729963d, the fp32 settings of the DGX-1.
    Hardware and cost: 8 V100 16 GB at 2,855 img/s: about 11.2 hours of steps.
    Command: vernier train nvidia-resnet50-90e-896 --data IMAGENET
    """
    return _recipe(_HEAD, "resnet50", 90, 896, _result(_DGX1, "fp32", 77.01, 0.16))


def resnet50_250e_896() -> Recipe:
    """ResNet-50 v1.5, 250 epochs with MixUp, batch 896 with twice the decay: 78.30 +- 0.16 % (fp32); n unknown.

    Source: NVIDIA/DeepLearningExamples, ConvNets at 729963d, the fp32 settings of the DGX-1.
    Hardware and cost: 8 V100 16 GB at 2,855 img/s: about 31 hours of steps.
    Command: vernier train nvidia-resnet50-250e-896 --data IMAGENET
    """
    return _recipe(_HEAD, "resnet50", 250, 896, _result(_DGX1, "fp32", 78.30, 0.16))


def resnext101_90e() -> Recipe:
    """ResNeXt-101 32x4d, 90 epochs, batch 1024: 79.47 +- 0.03 % (AMP), 79.38 +- 0.07 % (TF32); n unknown.

    DGX-1: 79.49 +- 0.05 % (AMP), 79.40 +- 0.10 % (fp32).
    Source: NVIDIA/DeepLearningExamples, ConvNets at 729963d, resnext101-32x4d/README.
    Hardware and cost: 8 A100 80 GB at 7,925 img/s (AMP): about 4.0 hours of steps.
    Command: vernier train nvidia-resnext101-90e --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "resnext101-32x4d",
        90,
        1024,
        _result(_DGX_A100, "mixed", 79.47, 0.03),
        _result(_DGX_A100, "tf32", 79.38, 0.07),
        _result(_DGX1, "mixed", 79.49, 0.05),
        _result(_DGX1, "fp32", 79.40, 0.10),
    )


def resnext101_250e() -> Recipe:
    """ResNeXt-101 32x4d, 250 epochs with MixUp, batch 1024: 80.19 +- 0.08 % (AMP), 80.27 +- 0.10 % (TF32); n unknown.

    DGX-1: 80.26 +- 0.11 % (AMP), 80.06 +- 0.06 % (fp32).
    Source: NVIDIA/DeepLearningExamples, ConvNets at 729963d, resnext101-32x4d/README.
    Hardware and cost: 8 A100 80 GB at 7,925 img/s (AMP): about 11.2 hours of steps.
    Command: vernier train nvidia-resnext101-250e --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "resnext101-32x4d",
        250,
        1024,
        _result(_DGX_A100, "mixed", 80.19, 0.08),
        _result(_DGX_A100, "tf32", 80.27, 0.10),
        _result(_DGX1, "mixed", 80.26, 0.11),
        _result(_DGX1, "fp32", 80.06, 0.06),
    )


def se_resnext101_90e() -> Recipe:
    """SE-ResNeXt-101 32x4d, 90 epochs, batch 1024: 80.03 +- 0.11 % (AMP), 79.92 +- 0.07 % (TF32); n unknown.

    DGX-1 fp32: 79.93 +- 0.10 %.
    Source: NVIDIA/DeepLearningExamples, ConvNets, se-resnext101-32x4d/README at 0107cf2.
    Hardware and cost: 8 A100 80 GB at 5,779 img/s (AMP), "about 6 hours".
    Command: vernier train nvidia-se-resnext101-90e --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "se-resnext101-32x4d",
        90,
        1024,
        _result(_DGX_A100, "mixed", 80.03, 0.11),
        _result(_DGX_A100, "tf32", 79.92, 0.07),
        _result(_DGX1, "fp32", 79.93, 0.10),
    )


def se_resnext101_250e() -> Recipe:
    """SE-ResNeXt-101 32x4d, 250 epochs, MixUp, batch 1024: 80.90 +- 0.08 % (AMP), 80.98 +- 0.07 % (TF32); n unknown.

    DGX-1 fp32: 80.97 +- 0.09 %.
    Source: NVIDIA/DeepLearningExamples, ConvNets, se-resnext101-32x4d/README at 0107cf2.
    Hardware and cost: 8 A100 80 GB at 5,779 img/s (AMP): about 15.4 hours of steps.
    Command: vernier train nvidia-se-resnext101-250e --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "se-resnext101-32x4d",
        250,
        1024,
        _result(_DGX_A100, "mixed", 80.90, 0.08),
        _result(_DGX_A100, "tf32", 80.98, 0.07),
        _result(_DGX1, "fp32", 80.97, 0.09),
    )


def se_resnext101_90e_896() -> Recipe:
    """SE-ResNeXt-101 32x4d, 90 epochs, batch 896: 80.04 +- 0.07 % (AMP); n unknown.

    Source: NVIDIA/DeepLearningExamples, ConvNets, se-resnext101-32x4d/README at 0107cf2, the AMP settings of the DGX-1.
    Hardware and cost: 8 V100 16 GB at 2,971 img/s (AMP), "about 12 hours".
    Command: vernier train nvidia-se-resnext101-90e-896 --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "se-resnext101-32x4d",
        90,
        896,
        _result(_DGX1, "mixed", 80.04, 0.07),
    )


def se_resnext101_250e_896() -> Recipe:
    """SE-ResNeXt-101 32x4d, 250 epochs with MixUp, batch 896: 80.92 +- 0.09 % (AMP); n unknown.

    Source: NVIDIA/DeepLearningExamples, ConvNets, se-resnext101-32x4d/README at 0107cf2, the AMP settings of the DGX-1.
    Hardware and cost: 8 V100 16 GB at 2,971 img/s (AMP): about 30 hours of steps.
    Command: vernier train nvidia-se-resnext101-250e-896 --data IMAGENET
    """
    return _recipe(
        _HEAD,
        "se-resnext101-32x4d",
        250,
        896,
        _result(_DGX1, "mixed", 80.92, 0.09),
    )


RECIPES = (
    resnet50_50e,
    resnet50_90e,
    resnet50_250e,
    resnet50_50e_as_documented,
    resnet50_90e_as_documented,
    resnet50_250e_as_documented,
    resnet50_50e_4096,
    resnet50_90e_4096,
    resnet50_250e_4096,
    resnet50_90e_896,
    resnet50_250e_896,
    resnext101_90e,
    resnext101_250e,
    se_resnext101_90e,
    se_resnext101_250e,
    se_resnext101_90e_896,
    se_resnext101_250e_896,
)
