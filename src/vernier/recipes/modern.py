"""Modern recipes: torchvision's two, FFCV's fast ones and ResNet Strikes Back for ResNet-50, and ConvNeXt's."""

from vernier.config import Augment, Data, Ema, Eval, Loss, Model, Published, Recipe, Schedule
from vernier.optim.kinds.adamw import AdamW
from vernier.optim.kinds.lamb import Lamb
from vernier.optim.kinds.sgd import Sgd

_TORCHVISION = "pytorch/vision references, e6f0400"
_FFCV = "libffcv/ffcv-imagenet, 5bab20e"
_RSB = "arXiv 2110.00476"
_CONVNEXT = "arXiv 2201.03545"


def torchvision_v1() -> Recipe:
    """torchvision's ResNet-50 V1, 90 epochs, batch 256: 76.130 %, one run.

    Source: pytorch/vision, references/classification/train.py with its defaults; weights IMAGENET1K_V1. Others report
    75.4 to 75.9 % with it (pytorch/vision issues 5593 and 8363).
    Hardware and cost: 8 V100, 32 images each; time not published.
    Command: vernier train torchvision-resnet50-v1 --data IMAGENET
    """
    return Recipe(
        name="torchvision-resnet50-v1",
        about="resnet50, 90 epochs at 256, the classic",
        source=_TORCHVISION,
        global_batch=8 * 32,
        model=Model(name="resnet50", init="fan-out"),
        optim=Sgd(lr=0.1, lr_batch=256, momentum=0.9, weight_decay=1e-4, decay_rule="all"),
        schedule=Schedule(kind="step", epochs=90.0, milestones=(30.0, 60.0), gamma=0.1, unit="epoch"),
        published=(Published(mean=76.130, n=1, precision="fp32", device="V100", devices=8, source=_TORCHVISION),),
    )


def torchvision_v2() -> Recipe:
    """torchvision's ResNet-50 V2, 600 epochs, batch 1024, images of 176 pixels, evaluated at 224: 80.858 %, one run.

    Source: pytorch/vision, weights IMAGENET1K_V2 and "How to Train State-Of-The-Art Models Using TorchVision's Latest
    Primitives": lr 0.5, cosine after 5 epochs' warm-up from 1 %, TrivialAugmentWide, erasing 0.1, decay 2e-5 but not on
    norms, smoothing 0.1, MixUp 0.2 or CutMix 1.0, four draws of each image, averaged weights, short side 232.
    The average: every 32 steps, decay 0.99998 stretched by batch x 32 / epochs, copies during the warm-up. Erased
    pixels become the mean colour of 8 bits, which a normalised zero is to within half a level.
    Hardware and cost: 8 V100, 128 images each; time not published.
    Command: vernier train torchvision-resnet50-v2 --data IMAGENET
    """
    batch, epochs, warmup, every = 8 * 128, 600.0, 5.0, 32
    return Recipe(
        name="torchvision-resnet50-v2",
        about="resnet50, 600 epochs at 1024, batteries included",
        source=_TORCHVISION,
        global_batch=batch,
        model=Model(name="resnet50", init="fan-out"),
        data=Data(image_px=176, eval_px=224, eval_short_side_px=232),
        augment=Augment(mixup=0.2, cutmix=1.0, policy="trivial-wide", erase=0.1, repeats=4),
        loss=Loss(label_smoothing=0.1),
        optim=Sgd(lr=0.5, lr_batch=1024, momentum=0.9, weight_decay=2e-5, decay_rule="norm-only"),
        schedule=Schedule(kind="cosine", epochs=epochs, warmup_epochs=warmup, warmup_start=0.01, unit="epoch"),
        ema=Ema(decay=1 - (1 - 0.99998) * batch * every / epochs, warmup=False, every_steps=every, copy_epochs=warmup),
        published=(Published(mean=80.858, n=1, device="V100", devices=8, source=_TORCHVISION),),
    )


def _ffcv(epochs: int, ramp: tuple[float, float], top1: float) -> Recipe:
    """Linear warm-up over 2 epochs, then linearly to zero; images grow from 160 to 192 pixels, evaluated at 256."""
    return Recipe(
        name=f"ffcv-resnet50-{epochs}e",
        about=f"resnet50 with blur pooling, {epochs} epochs at 4096, 160 to 192 px",
        source=_FFCV,
        global_batch=8 * 512,
        model=Model(name="resnet50", init="fan-out", blurpool=True),
        data=Data(image_px=192, eval_px=256, eval_short_side_px=256 * 256 // 224),
        augment=Augment(start_px=160, ramp_epochs=ramp),
        loss=Loss(label_smoothing=0.1),
        optim=Sgd(lr=1.7, lr_batch=4096, momentum=0.9, weight_decay=1e-4, decay_rule="nvidia-name"),
        schedule=Schedule(kind="linear", epochs=float(epochs), warmup_epochs=2.0, warmup_start=1e-4),
        eval=Eval(flip_tta=True),
        published=(
            Published(
                mean=top1,
                precision="mixed",
                device="A100",
                devices=8,
                note="flip test-time augmentation",
                source=_FFCV,
            ),
        ),
    )


def ffcv_16e() -> Recipe:
    """FFCV's ResNet-50, 16 epochs: 73.8 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_16_epochs.yaml and train_imagenet.py (512 images per process). The
    YAML evaluates at 256 pixels, the README says 224. Its images were stored at 500 pixels first, which is not done
    here.
    Hardware and cost: 8 A100 (p4d.24xlarge), 14.9 minutes.
    Command: vernier train ffcv-resnet50-16e --data IMAGENET
    """
    return _ffcv(16, (11.0, 13.0), 73.8)


def ffcv_24e() -> Recipe:
    """FFCV's ResNet-50, 24 epochs: 75.6 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_24_epochs.yaml; see ffcv-resnet50-16e.
    Hardware and cost: 8 A100 (p4d.24xlarge), 21.7 minutes.
    Command: vernier train ffcv-resnet50-24e --data IMAGENET
    """
    return _ffcv(24, (17.0, 20.0), 75.6)


def ffcv_32e() -> Recipe:
    """FFCV's ResNet-50, 32 epochs: 76.6 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_32_epochs.yaml; see ffcv-resnet50-16e.
    Hardware and cost: 8 A100 (p4d.24xlarge), 28.7 minutes.
    Command: vernier train ffcv-resnet50-32e --data IMAGENET
    """
    return _ffcv(32, (23.0, 27.0), 76.6)


def ffcv_40e() -> Recipe:
    """FFCV's ResNet-50, 40 epochs: 77.2 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_40_epochs.yaml; see ffcv-resnet50-16e.
    Hardware and cost: 8 A100 (p4d.24xlarge), 35.6 minutes.
    Command: vernier train ffcv-resnet50-40e --data IMAGENET
    """
    return _ffcv(40, (29.0, 34.0), 77.2)


def ffcv_56e() -> Recipe:
    """FFCV's ResNet-50, 56 epochs: 78.0 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_56_epochs.yaml; see ffcv-resnet50-16e.
    Hardware and cost: 8 A100 (p4d.24xlarge), 49.4 minutes.
    Command: vernier train ffcv-resnet50-56e --data IMAGENET
    """
    return _ffcv(56, (41.0, 48.0), 78.0)


def ffcv_88e() -> Recipe:
    """FFCV's ResNet-50, 88 epochs: 78.4 % with flip test-time augmentation, one run.

    Source: libffcv/ffcv-imagenet at 5bab20e, rn50_88_epochs.yaml; see ffcv-resnet50-16e.
    Hardware and cost: 8 A100 (p4d.24xlarge), 77.2 minutes.
    Command: vernier train ffcv-resnet50-88e --data IMAGENET
    """
    return _ffcv(88, (65.0, 76.0), 78.4)


def _rsb(
    name: str, *, epochs: int, px: int, lr: float, drop_path: float, repeats: int, magnitude: float, top1: float
) -> Recipe:
    """LAMB, binary cross-entropy, RandAugment, MixUp 0.1 or CutMix 1.0, a cosine of the whole training by epochs."""
    return Recipe(
        name=name,
        about=f"resnet50, {epochs} epochs at 2048, {px} px, LAMB and binary cross-entropy",
        source=_RSB,
        global_batch=2048,
        model=Model(name="resnet50", init="fan-out", zero_gamma=True, drop_path=drop_path),
        data=Data(image_px=px, eval_px=224, eval_short_side_px=int(224 / 0.95), interpolation="bicubic"),
        augment=Augment(
            mixup=0.1, cutmix=1.0, policy="rand", rand_ops=2, rand_magnitude=magnitude, rand_std=0.5, repeats=repeats
        ),
        loss=Loss(kind="bce"),
        optim=Lamb(
            lr=lr,
            momentum=0.9,
            beta2=0.999,
            eps=1e-6,
            clip_norm=1.0,
            weight_decay=0.02,
            decay_rule="norm-and-bias",
        ),
        schedule=Schedule(
            kind="cosine",
            epochs=float(epochs),
            warmup_epochs=5.0,
            warmup_start=1e-4,
            unit="epoch",
            origin="start",
            end_lr=1e-6,
        ),
        published=(Published(mean=top1, precision="mixed", note="at 224 px", source=_RSB),),
    )


def rsb_a2() -> Recipe:
    """ResNet Strikes Back, procedure A2: ResNet-50, 300 epochs, batch 2048: 79.8 % at 224 pixels.

    The spread is not given here.
    Source: arXiv 2110.00476, table 2; what it leaves open is taken from open-mmlab/mmpretrain's configuration
    resnet50_8xb256-rsb-a2-300e_in1k (warm-up from 1e-4 of the rate, final rate 1e-6, bicubic). LAMB clips gradients to
    a norm of 1 and zero-gamma is on, as in timm. Targets stay soft; loss.bce_threshold=0.2 makes them yes or no.
    Hardware and cost: 4 V100 32 GB; half of A1's 600 epochs, which take 4.6 days.
    Command: vernier train rsb-resnet50-a2 --data IMAGENET
    """
    return _rsb("rsb-resnet50-a2", epochs=300, px=224, lr=5e-3, drop_path=0.05, repeats=3, magnitude=7.0, top1=79.8)


def rsb_a3() -> Recipe:
    """ResNet Strikes Back, procedure A3: ResNet-50, 100 epochs of 160-pixel images, batch 2048: 78.1 % at 224 pixels.

    Source: arXiv 2110.00476, table 2; open-mmlab/mmpretrain's resnet50_8xb256-rsb-a3-100e_in1k for what it leaves open,
    as for rsb-resnet50-a2.
    Hardware and cost: 4 V100; the cheapest of the three procedures, time not given here.
    Command: vernier train rsb-resnet50-a3 --data IMAGENET
    """
    return _rsb("rsb-resnet50-a3", epochs=100, px=160, lr=8e-3, drop_path=0.0, repeats=1, magnitude=6.0, top1=78.1)


def convnext_tiny() -> Recipe:
    """ConvNeXt-T, 300 epochs, batch 4096: 82.1 % at 224 pixels.

    The spread is not given here.
    Source: arXiv 2201.03545, table 5, and facebookresearch/ConvNeXt (2313ff8), main.py with its defaults: AdamW 4e-3,
    linear warm-up of 20 epochs, cosine to 1e-6, decay 0.05 but not on vectors, RandAugment 9 with deviation 0.5,
    MixUp 0.8 or CutMix 1.0, erasing 0.25, smoothing 0.1, stochastic depth 0.1, weights averaged with 0.9999.
    Erased pixels become the mean color here, and noise there.
    Hardware and cost: 4 hosts of 8 GPUs, 128 images each; time not given here.
    Command: vernier train convnext-tiny-300e --data IMAGENET
    """
    return Recipe(
        name="convnext-tiny-300e",
        about="convnext-tiny, 300 epochs at 4096, AdamW",
        source=_CONVNEXT,
        global_batch=4096,
        model=Model(name="convnext-tiny", drop_path=0.1),
        data=Data(image_px=224, eval_px=224, eval_short_side_px=256, interpolation="bicubic"),
        augment=Augment(mixup=0.8, cutmix=1.0, policy="rand", rand_ops=2, rand_magnitude=9.0, rand_std=0.5, erase=0.25),
        loss=Loss(label_smoothing=0.1),
        optim=AdamW(lr=4e-3, weight_decay=0.05, decay_rule="vectors"),
        schedule=Schedule(epochs=300.0, warmup_epochs=20.0, end_lr=1e-6),
        ema=Ema(decay=0.9999, warmup=False),
        published=(Published(mean=82.1, source=_CONVNEXT),),
    )


RECIPES = (
    torchvision_v1,
    torchvision_v2,
    ffcv_16e,
    ffcv_24e,
    ffcv_32e,
    ffcv_40e,
    ffcv_56e,
    ffcv_88e,
    rsb_a2,
    rsb_a3,
    convnext_tiny,
)
