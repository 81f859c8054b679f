"""Habana's Model-References: ResNet-50 and ResNeXt-101 in PyTorch, ResNeXt-101 in TensorFlow.

The PyTorch ones are torchvision's network (v1.5, fan-out, every weight decayed) with rates given as a list by epoch, or
LARS with MLPerf's polynomial. The TensorFlow one, an Estimator, differs: the cosine counts from the first
step, crops go down to 5 % of the area, only the mean is subtracted, there are 1,001 outputs, weights start from
TensorFlow's variance scaling, and decay spares batch norms only (an L2 term, the same as decay for SGD). Its SAME
padding, which is asymmetric where the stride is 2, is the one thing not reproduced here.
"""

from dataclasses import replace

from vernier.config import Augment, Data, Eval, Loss, Model, Published, Recipe, Schedule
from vernier.optim.kinds.lars import Lars
from vernier.optim.kinds.sgd import Sgd

_FIRST_PYTORCH = "Habana Model-References PyTorch, 0.13.0"
_PYTORCH = "Habana Model-References PyTorch, 1.13.0"
_TENSORFLOW = "Habana Model-References TensorFlow, 1.5.0"
_PAGE = "Habana, SynapseAI 1.0.0 performance page"


def _rate_list(
    name: str,
    model: str,
    *published: Published,
    batch: int,
    epochs: int = 90,
    rates: tuple[float, ...],
    drops: tuple[float, ...] = (30.0, 60.0, 80.0),
    source: str = _PYTORCH,
) -> Recipe:
    """Plain SGD with a list of rates: the last ones begin at the drops, those before at epochs 0, 1, 2, ..."""
    milestones = (*map(float, range(1, len(rates) - len(drops))), *drops)
    peak = max(rates)
    return Recipe(
        name=name,
        about=f"{model}, {epochs} epochs at {batch}, rates by list",
        source=source,
        global_batch=batch,
        model=Model(name=model, init="fan-out"),
        optim=Sgd(lr=peak, lr_batch=batch, momentum=0.9, weight_decay=1e-4, decay_rule="all"),
        schedule=Schedule(
            kind="list",
            epochs=float(epochs),
            unit="epoch",
            milestones=milestones,
            shares=tuple(r / peak for r in rates),
        ),
        published=published,
    )


def resnet50_sgd_1() -> Recipe:
    """ResNet-50, 90 epochs on one card, batch 256: 75.85 %, top-5 92.88 % (bf16), one run.

    Source: HabanaAI/Model-References, PyTorch ResNet at 0.13.0, README and train.py: --lr 0.1, StepLR by 0.1 every 30
    epochs. (0.14 notes 75.7 % instead of 76 %.) Later releases drop once more at 80: habana-resnet50-sgd-1-v1.13.
    Hardware and cost: one Gaudi at 679 img/s in bf16: about 47 hours.
    Command: vernier train habana-resnet50-sgd-1 --data IMAGENET
    """
    one_run = Published(
        mean=75.85, precision="mixed", device="Gaudi", devices=1, note="bf16", source="Model-References 0.13.0 README"
    )
    return _rate_list(
        "habana-resnet50-sgd-1",
        "resnet50",
        one_run,
        replace(one_run, metric="top5", mean=92.88),
        batch=256,
        rates=(0.1, 0.01, 0.001),
        drops=(30.0, 60.0),
        source=_FIRST_PYTORCH,
    )


def resnet50_sgd_1_later() -> Recipe:
    """ResNet-50, 90 epochs on one card, batch 256, with a third drop of the rate at epoch 80; no result published.

    Source: HabanaAI/Model-References, torchvision/README at 1.13.0: --lr 0.1, --custom-lr-values 0.1 0.01 0.001 0.0001
    --custom-lr-milestones 0 30 60 80.
    Hardware and cost: one Gaudi; throughput not published for this release.
    Command: vernier train habana-resnet50-sgd-1-v1.13 --data IMAGENET
    """
    return _rate_list("habana-resnet50-sgd-1-v1.13", "resnet50", batch=256, rates=(0.1, 0.01, 0.001, 0.0001))


def resnet50_sgd_8() -> Recipe:
    """ResNet-50, 90 epochs on eight cards, batch 2048, the rate rising from 0.1 to 0.8 over four epochs; no result.

    Source: HabanaAI/Model-References, torchvision/README at 1.13.0: --custom-lr-values 0.275 0.45 0.625 0.8 0.08 0.008
    0.0008 --custom-lr-milestones 1 2 3 4 30 60 80, after the default 0.1. habana-resnet50-sgd-8-1024 is its fp32 form.
    Hardware and cost: eight Gaudi at 601 img/s each: about 6.7 hours.
    Command: vernier train habana-resnet50-sgd-8 --data IMAGENET
    """
    return _rate_list(
        "habana-resnet50-sgd-8",
        "resnet50",
        batch=8 * 256,
        rates=(0.1, 0.275, 0.45, 0.625, 0.8, 0.08, 0.008, 0.0008),
    )


def resnet50_sgd_8_1024() -> Recipe:
    """ResNet-50, 90 epochs on eight cards, batch 1024, the rate rising from 0.1 to 0.4 over four epochs; no result.

    Source: HabanaAI/Model-References, torchvision/README, the fp32 command: --custom-lr-values 0.175 0.25 0.325 0.4
    0.04 0.004 0.0004 --custom-lr-milestones 1 2 3 4 30 60 80, after the default 0.1.
    Hardware and cost: eight Gaudi; one does 304 img/s in fp32.
    Command: vernier train habana-resnet50-sgd-8-1024 --data IMAGENET
    """
    return _rate_list(
        "habana-resnet50-sgd-8-1024",
        "resnet50",
        batch=8 * 128,
        rates=(0.1, 0.175, 0.25, 0.325, 0.4, 0.04, 0.004, 0.0004),
    )


def resnet50_sgd_16() -> Recipe:
    """ResNet-50, 90 epochs on sixteen cards, batch 4096, the rate rising from 0.1 to 1.6 over four epochs; no result.

    Source: HabanaAI/Model-References, torchvision/README at 1.13.0: --custom-lr-values 0.475 0.85 1.225 1.6 0.16 0.016
    0.0016 --custom-lr-milestones 1 2 3 4 30 60 80, after the default 0.1.
    Hardware and cost: two servers of eight Gaudi; throughput not published for PyTorch.
    Command: vernier train habana-resnet50-sgd-16 --data IMAGENET
    """
    return _rate_list(
        "habana-resnet50-sgd-16",
        "resnet50",
        batch=16 * 256,
        rates=(0.1, 0.475, 0.85, 1.225, 1.6, 0.16, 0.016, 0.0016),
    )


def resnext101_100e() -> Recipe:
    """ResNeXt-101 32x4d, 100 epochs on one card, batch 128, 0.1 divided by ten at 30, 60 and 80; no result published.

    Source: HabanaAI/Model-References, torchvision/README at 1.13.0.
    Hardware and cost: one Gaudi; throughput not published for PyTorch.
    Command: vernier train habana-resnext101-100e --data IMAGENET
    """
    return _rate_list(
        "habana-resnext101-100e",
        "resnext101-32x4d",
        batch=128,
        epochs=100,
        rates=(0.1, 0.01, 0.001, 0.0001),
    )


def _lars(name: str, *, cards: int, lr: float, epochs: float, warmup: float, decay: float, evaluate: Eval) -> Recipe:
    """LARS: the rate per step, warmed up from zero, then a square polynomial that aims one epoch past the end."""
    return Recipe(
        name=name,
        about=f"resnet50, {epochs:g} epochs at {cards * 256}, LARS",
        source=_PYTORCH,
        global_batch=cards * 256,
        model=Model(name="resnet50", init="fan-out"),
        loss=Loss(label_smoothing=0.1),
        optim=Lars(lr=lr, momentum=0.9, trust_coefficient=0.001, weight_decay=decay, decay_rule="norm-and-bias"),
        schedule=Schedule(
            kind="mlperf", epochs=epochs, warmup_epochs=warmup, decay_epochs=epochs + 1, end_lr=1e-4, power=2.0
        ),
        eval=evaluate,
    )


def resnet50_lars() -> Recipe:
    """ResNet-50 with LARS, 35 epochs, batch 2048: MLPerf's target of 75.9 %, at which it stops.

    Source: HabanaAI/Model-References, torchvision/README and model/optimizer.py; MLPerf Training, Gaudi2,
    batch_256.cfg: base rate 9, end 1e-4, warm-up 3, decay epochs 36, decay 5e-5, smoothing 0.1, evaluated at epochs 3,
    7, 11, ...
    Hardware and cost: 8 Gaudi2, 16.4 minutes (MLPerf Training 3.1, PyTorch).
    Command: vernier train habana-resnet50-lars --data IMAGENET
    """
    return _lars(
        "habana-resnet50-lars",
        cards=8,
        lr=9.0,
        epochs=35.0,
        warmup=3.0,
        decay=5e-5,
        evaluate=Eval(every_epochs=4.0, offset_epochs=3.0, target_top1=75.9),
    )


def resnet50_lars_16() -> Recipe:
    """ResNet-50 with LARS, 40 epochs, batch 4096; no result published.

    Source: HabanaAI/Model-References, torchvision/README: base rate 13, warm-up 7, decay epochs 41, decay 1e-4,
    smoothing 0.1, evaluated every fourth epoch.
    Hardware and cost: two servers of eight Gaudi; throughput not published for PyTorch.
    Command: vernier train habana-resnet50-lars-16 --data IMAGENET
    """
    return _lars(
        "habana-resnet50-lars-16",
        cards=16,
        lr=13.0,
        epochs=40.0,
        warmup=7.0,
        decay=1e-4,
        evaluate=Eval(every_epochs=4.0),
    )


def _tf(name: str, *published: Published, epochs: int, cards: int, decay: float = 1 / 16384) -> Recipe:
    """Rate 0.256 / 256 * batch: a straight line per step over 8 epochs, then the cosine of the whole training."""
    return Recipe(
        name=name,
        about=f"resnext101-32x4d as in TensorFlow, {epochs} epochs at {cards * 128}",
        source=_TENSORFLOW,
        global_batch=cards * 128,
        model=Model(name="resnext101-32x4d", init="tf", unused_outputs=1),
        data=Data(mean=tuple(m / 255 for m in (123.68, 116.78, 103.94)), std=(1 / 255,) * 3),  # x - mean, no division
        augment=Augment(area=(0.05, 1.0), ratio=(0.75, 1.33)),
        loss=Loss(label_smoothing=0.1),
        optim=Sgd(lr=0.256, lr_batch=256, momentum=0.875, weight_decay=decay, decay_rule="norm-only"),
        schedule=Schedule(kind="cosine", epochs=float(epochs), warmup_epochs=8.0, unit="step", origin="start"),
        published=published,
    )


_ON_GAUDI = Published(precision="mixed", device="Gaudi", note="bf16", source=_PAGE)


def _tf_as_documented(recipe: Recipe, mixup: float = 0.0) -> Recipe:
    """The README's augmentation where its code has another: crops of 8 to 100 %, ratios of 3/4 to 4/3, MixUp."""
    return replace(
        recipe,
        name=f"{recipe.name}-as-documented",
        about=f"{recipe.about}, as the text says",
        augment=replace(recipe.augment, area=(0.08, 1.0), ratio=(3 / 4, 4 / 3), mixup=mixup),
        published=(),
    )


def tf_resnext101_90e_as_documented() -> Recipe:
    """ResNeXt-101 32x4d as the text of Habana's TensorFlow README says, not its code, 90 epochs, batch 128; no result.

    Source: HabanaAI/Model-References, TensorFlow ResNeXt README at 1.5.0: crops of 8 to 100 % of the area with ratios
    of 3/4 to 4/3. The code, and habana-tf-resnext101-90e, have 5 to 100 % and 0.75 to 1.33.
    Hardware and cost: as habana-tf-resnext101-90e.
    Command: vernier train habana-tf-resnext101-90e-as-documented --data IMAGENET
    """
    return _tf_as_documented(tf_resnext101_90e())


def tf_resnext101_250e_as_documented() -> Recipe:
    """ResNeXt-101 32x4d as the text of Habana's TensorFlow README says, not its code: 250 epochs, MixUp; no result.

    Source: HabanaAI/Model-References, TensorFlow ResNeXt README at 1.5.0: "For 250 epoch training we also use MixUp
    regularization", without its strength, here NVIDIA's 0.2; crops as habana-tf-resnext101-90e-as-documented.
    Hardware and cost: as habana-tf-resnext101-250e.
    Command: vernier train habana-tf-resnext101-250e-as-documented --data IMAGENET
    """
    return _tf_as_documented(tf_resnext101_250e(), mixup=0.2)


def tf_resnext101_90e() -> Recipe:
    """ResNeXt-101 32x4d as in TensorFlow, 90 epochs on one card, batch 128: 79.2 %, one run.

    On eight cards (--global-batch 1024; the rate follows): 79.02 %.
    Source: HabanaAI/Model-References, TensorFlow ResNeXt at 1.5.0. The README says crops of 8 to 100 % of the area; the
    code says 5 to 100 %, and so does this; habana-tf-resnext101-90e-as-documented follows the text.
    Hardware and cost: one Gaudi at 650 img/s, about 49 hours; eight at 4,656 img/s, 6 h 56 min.
    Command: vernier train habana-tf-resnext101-90e --data IMAGENET
    """
    return _tf(
        "habana-tf-resnext101-90e",
        replace(_ON_GAUDI, mean=79.2, devices=1, global_batch=128),
        replace(_ON_GAUDI, mean=79.02, devices=8, global_batch=1024),
        epochs=90,
        cards=1,
    )


def tf_resnext101_250e() -> Recipe:
    """ResNeXt-101 32x4d as in TensorFlow, 250 epochs on eight cards, batch 1024; no result published.

    Source: HabanaAI/Model-References, TensorFlow ResNeXt at 1.5.0. The README promises MixUp for 250 epochs; the code
    has none, and neither does this: see habana-tf-resnext101-250e-as-documented.
    Hardware and cost: eight Gaudi at 4,656 img/s: about 19 hours.
    Command: vernier train habana-tf-resnext101-250e --data IMAGENET
    """
    return _tf("habana-tf-resnext101-250e", epochs=250, cards=8)


def tf_resnext101_90e_64() -> Recipe:
    """ResNeXt-101 32x4d as in TensorFlow, 90 epochs on 64 cards, batch 8192, with its own decay of 7.93e-5; no result.

    Source: HabanaAI/Model-References, TensorFlow ResNeXt at 1.5.0, the 64-card command of its README.
    Hardware and cost: eight servers of eight Gaudi; throughput not published.
    Command: vernier train habana-tf-resnext101-90e-64 --data IMAGENET
    """
    return _tf("habana-tf-resnext101-90e-64", epochs=90, cards=64, decay=7.93e-5)


RECIPES = (
    resnet50_sgd_1,
    resnet50_sgd_1_later,
    resnet50_sgd_8,
    resnet50_sgd_8_1024,
    resnet50_sgd_16,
    resnet50_lars,
    resnet50_lars_16,
    resnext101_100e,
    tf_resnext101_90e,
    tf_resnext101_250e,
    tf_resnext101_90e_64,
    tf_resnext101_90e_as_documented,
    tf_resnext101_250e_as_documented,
)
