"""Recipes for data that is small enough for two CPU cores: the default on rendered shapes, and small public sets."""

from vernier.config import Augment, Data, Ema, Eval, Loss, Model, Published, Recipe, Schedule
from vernier.optim.kinds.muon import Muon
from vernier.optim.kinds.sgd import Sgd


def shapes_quick() -> Recipe:
    """The default: ten rendered shapes of the built-in data set, about a minute on two cores.

    Source: Vernier's own data, rendered when needed.
    Command: vernier train
    """
    return Recipe(
        name="shapes-quick",
        source="Vernier",
        about="ten rendered shapes, 64 px, about a minute on two cores",
        global_batch=32,
        model=Model(name="resnet8-small", width=32, stem="imagenet"),
        data=Data(source="shapes", image_px=64, eval_px=64, eval_short_side_px=64),
        augment=Augment(crop="pad", pad_px=4),
        loss=Loss(label_smoothing=0.05),
        optim=Sgd(lr=0.05, lr_batch=32, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(kind="cosine", epochs=6.0, warmup_epochs=1.0),
        ema=Ema(decay=0.99),
    )


def shapes_muon() -> Recipe:
    """The built-in shapes with Muon instead of SGD: 98 % top-1 in half a minute on two cores.

    Source: Vernier's own data and search. 98.1 to 98.8 % (three seeds) with the network of shapes-quick.
    Command: vernier train shapes-muon
    """
    return Recipe(
        name="shapes-muon",
        source="Vernier",
        about="ten rendered shapes, 64 px, with Muon: half a minute on two cores",
        global_batch=64,
        model=Model(name="resnet8-small", width=32, stem="imagenet"),
        data=Data(source="shapes", image_px=64, eval_px=64, eval_short_side_px=64),
        augment=Augment(crop="pad", pad_px=4),
        loss=Loss(label_smoothing=0.05),
        optim=Muon(lr=0.1, lr_batch=64, bias_lr=0.1, head_lr=0.05, momentum=0.85, weight_decay=5e-4),
        schedule=Schedule(kind="linear", epochs=3.0),
        ema=Ema(decay=0.99),
    )


def fashion_mnist() -> Recipe:
    """Fashion-MNIST from scratch: 94 % top-1 in under three minutes on two cores.

    Source: Vernier's own search, with the network (narrower) and the optimiser of airbench94 (Jordan 2024). Short runs
    underfit, so flips are the only augmentation.
    Needs the four IDX files as published: vernier data get fashion-mnist.
    Command: vernier train fashion-mnist --data PATH
    """
    return Recipe(
        name="fashion-mnist",
        source="Vernier",
        about="28 px grey images of clothes, ten classes",
        global_batch=1000,
        model=Model(name="airbench94", width=24),
        data=Data(
            source="fashion-mnist", image_px=28, eval_px=28, eval_short_side_px=28, mean=(0.2860,), std=(0.3530,)
        ),
        augment=Augment(crop="none", flip=0.5, flip_rule="alternate"),
        loss=Loss(label_smoothing=0.1),
        optim=Muon(lr=0.2, lr_batch=1000, bias_lr=53.0, head_lr=0.07, momentum=0.85, weight_decay=0.0166),
        schedule=Schedule(kind="linear", epochs=5.0),
    )


def cifar10() -> Recipe:
    """CIFAR-10 with ResNet-20, as in He et al. 2015, section 4.2: 91.25 % top-1 in the paper.

    Source: "Deep Residual Learning for Image Recognition", table 6: error 8.75 % for ResNet-20. Batch 128, rate 0.1
    divided by ten at 32,000 and 48,000 of 64,000 iterations, weight decay 1e-4 on everything, pad-4 crops and flips.
    Needs the five training batches of CIFAR-10's binary version.
    Command: vernier train cifar10 --data PATH
    """
    return Recipe(
        name="cifar10",
        source="He et al. 2015, table 6",
        about="ResNet-20 as in the paper",
        published=(Published(mean=91.25, samples=10_000, source="He et al. 2015, table 6"),),
        global_batch=128,
        model=Model(name="resnet20-cifar", init="fan-out"),
        data=Data(
            source="cifar10",
            image_px=32,
            eval_px=32,
            eval_short_side_px=32,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        ),
        augment=Augment(crop="pad", pad_px=4),
        optim=Sgd(lr=0.1, lr_batch=128, momentum=0.9, weight_decay=1e-4, decay_rule="all"),
        schedule=Schedule(kind="step", epochs=164.0, milestones=(82.0, 123.0), gamma=0.1),
    )


def airbench_cifar10() -> Recipe:
    """CIFAR-10 with airbench94's network and optimiser, in 12 epochs: 94 % in 20 minutes on two cores with bf16.

    Source: Jordan 2024, github.com/KellerJordan/cifar10-airbench, airbench94_muon.py at 096d14d: 94.01 % top-1 in 8
    epochs (200 runs), as the mean over six views of every test image. Here two, the image and its mirror image, which
    results say, and smaller images in the first 5 epochs: 94.20 % (one run; 94.01 % without the mirror image). The bias
    of the whitening layer learns to the end.
    Needs the five training batches of CIFAR-10: vernier data get cifar10.
    Command: vernier train airbench-cifar10 --data PATH --precision bf16
    """
    return Recipe(
        name="airbench-cifar10",
        source="airbench94_muon.py at 096d14d",
        about="airbench94, plain layers, in 12 epochs",
        global_batch=2000,
        model=Model(name="airbench94"),
        data=Data(
            source="cifar10",
            image_px=32,
            eval_px=32,
            eval_short_side_px=32,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        ),
        augment=Augment(
            crop="pad", pad_px=2, border="reflect", flip_rule="alternate", start_px=24, phase_epochs=(5.0,)
        ),
        loss=Loss(label_smoothing=0.2),
        # The source adds up the loss over a batch and divides outputs by 256: rates x 2000, the head's / 256^2.
        optim=Muon(
            lr=0.24,
            bias_lr=0.053 * 2000,
            head_lr=0.67 * 2000 / 256**2,
            momentum=0.85,
            weight_decay=0.004 / 0.24,
        ),
        schedule=Schedule(kind="linear", epochs=12.0),
        eval=Eval(every_epochs=4.0, flip_tta=True),
    )


def ssd_shapes_quick() -> Recipe:
    """A detector for the built-in data set: ten rendered shapes, one to five per image, a few minutes on two cores.

    Source: Vernier's own data, rendered when needed.
    Command: vernier train ssd-shapes-quick
    """
    return Recipe(
        name="ssd-shapes-quick",
        source="Vernier",
        about="ten rendered shapes with boxes, 128 px, a few minutes on two cores",
        global_batch=32,
        model=Model(name="ssd-small", width=32),
        data=Data(source="shapes", image_px=128, eval_px=128),
        augment=Augment(crop="none"),
        optim=Sgd(lr=0.05, lr_batch=32, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(kind="cosine", epochs=6.0, warmup_epochs=1.0),
        ema=Ema(decay=0.99),
        eval=Eval(every_epochs=2.0),
    )


def ssd_bccd() -> Recipe:
    """Blood cells (BCCD): a detector for 364 photographs of three kinds of cells, trained on two cores.

    Source: Vernier's own search.
    Needs the set as published: Annotations/, ImageSets/, JPEGImages/.
    Command: vernier train ssd-bccd --data PATH
    """
    return Recipe(
        name="ssd-bccd",
        source="Vernier",
        about="blood cells under the microscope, three classes",
        global_batch=16,
        model=Model(name="ssd-small", width=32, box_sizes=(0.07, 0.17, 0.36)),
        data=Data(source="bccd", image_px=256, eval_px=256),
        augment=Augment(crop="ssd", jitter="mlperf"),
        optim=Sgd(lr=0.02, lr_batch=16, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(kind="cosine", epochs=60.0, warmup_epochs=2.0),
        ema=Ema(decay=0.99),
        eval=Eval(every_epochs=10.0),
    )


RECIPES = (shapes_quick, shapes_muon, fashion_mnist, cifar10, airbench_cifar10, ssd_shapes_quick, ssd_bccd)
