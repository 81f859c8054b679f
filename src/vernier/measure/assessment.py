"""How a run that has ended compares with what was published: accuracy and speed, added to its summary."""

from dataclasses import replace

from vernier.config import Config, Recipe
from vernier.records.run import RunSummary

from .agreement import agreement
from .published import published_speeds


def assess(config: Config, status: str, summary: RunSummary, *, reference: Recipe | None) -> RunSummary:
    """Add agreement with the published accuracy, and published speeds of the same device.

    `reference` is the built-in recipe that the run is based on: what differs from it is named with the verdict. The
    accuracy of a run that did not finish, of a smoke run, or of one that went back to a checkpoint is not compared.
    """
    comparable = status == "finished" and not config.limits.smoke and not summary.rollbacks
    speed = summary.training
    return replace(
        summary,
        agreement=agreement(config, summary.result, reference) if comparable else None,
        published_speeds=(published_speeds(summary.ran, speed.images_per_s_total) or None) if speed else None,
    )
