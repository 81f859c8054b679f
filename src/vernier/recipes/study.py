"""The ResNet-50 run of the GPU-variability study (SC22): a workload to measure, not a network to train."""

from vernier.config import Eval, Loss, Model, Recipe, Schedule
from vernier.optim.kinds.sgd import Sgd


def resnet50() -> Recipe:
    """ResNet-50, 500 iterations of 4 x 64 images: the study measures their durations, and no accuracy is published.

    Source: hal-uw/gpu_variability_sc22_artifact at 93ba0d4, sec5a_resnet: base rate 0.05 times 4 processes, warmed up
    in Goyal's form by whole epochs, momentum 0.9, decay 5e-5 on everything, smoothing 0.1 over the other 999 classes.
    run-resnet.sh drops the rate at epochs 30, 60 and 80 and asks for one epoch, which 500 iterations do not fill; 90
    epochs are what such drops are for. The public artifact trains on the 10,000 images of ImageNet-V2 for one epoch,
    40 iterations at this batch: its 500 are reached on the full set only.
    Hardware and cost: four V100 of a node, about a minute: the median iteration on TACC's Longhorn takes 117.5 ms.
    Command: vernier train study-resnet50 --data IMAGENET --max-steps 500 --train-only
    """
    processes = 4
    return Recipe(
        name="study-resnet50",
        about="the load of the SC22 GPU-variability study",
        source="SC22 artifact sec5a_resnet, 93ba0d4",
        global_batch=processes * 64,
        model=Model(name="resnet50", init="fan-out"),
        loss=Loss(label_smoothing=0.1, smoothing_over="others"),
        optim=Sgd(lr=0.05 * processes, lr_batch=processes * 64, momentum=0.9, weight_decay=5e-5, decay_rule="all"),
        schedule=Schedule(
            kind="step",
            epochs=90.0,
            warmup_epochs=5.0,
            warmup_start=1 / processes,
            unit="epoch",
            milestones=(30.0, 60.0, 80.0),
            gamma=0.1,
        ),
        eval=Eval(every_epochs=0.0),
    )


RECIPES = (resnet50,)
