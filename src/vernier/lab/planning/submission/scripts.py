"""The script or manifest of a job, from the templates next to this module.

For Slurm a batch script: one task per device, and the job queues again until the training is finished. For Kubernetes a
JobSet: one pod per host in an indexed Job, whose pods all start again if one saved and stopped or was evicted; other
failures count in `max_restarts`. For ssh a shell script that starts torchrun on every host, waits for all, and ends
with the training's exit code.
"""

import json
import shlex
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from vernier.errors import EXIT_STOPPED, ConfigError
from vernier.quantities import parse_duration
from vernier.references import given, use
from vernier.templates import open_templates

from .job import SAVE_S, Submission, shell_lines, variables_of

_TEMPLATES = open_templates(__file__, shell=shlex.join, json=json.dumps)
_RESOURCES = {"cuda": "nvidia.com/gpu", "hpu": "habana.ai/gaudi", "xpu": "gpu.intel.com/i915"}
_RECIPE = PurePosixPath("/etc/vernier/recipe.toml")


def slurm_script(submission: Submission) -> str:
    """The script, to be given to sbatch. Raises ConfigError."""
    if submission.device == "mps":
        raise ConfigError(f"device = mps: Slurm does not run on macOS. Use another device, or {use('to', 'ssh')}.")
    minutes, seconds = divmod(round(parse_duration(submission.job.time_limit or "0s")), 60)
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}" if submission.job.time_limit else ""
    return _fill("slurm.sh", submission, time=time)


def ssh_script(submission: Submission) -> str:
    """The script, to be run on a machine from which ssh reaches every host without a password. Raises ConfigError."""
    hosts = submission.job.host_names
    if not hosts:
        raise ConfigError(f'{given("to", "ssh")}: set host_names in [job], e.g. host_names = ["node1", "node2"].')
    return _fill("ssh.sh", submission, address=hosts[0].rpartition("@")[2])


def kubernetes_manifest(submission: Submission) -> str:
    """The manifest, to be given to `kubectl apply -f`. Raises ConfigError."""
    job, recipe = submission.job, submission.recipe_file
    if not job.image:
        raise ConfigError(f"{given('to', 'kubernetes')}: set image in [job] to a container image with Vernier.")
    if submission.device not in (*_RESOURCES, "cpu"):
        raise ConfigError(
            f"device = {submission.device}: no resource of Kubernetes is known for it. Use one of "
            f"{', '.join(('cpu', *_RESOURCES))}."
        )
    claims = [(claim, folder) for claim, _, folder in (text.partition(":") for text in job.claims)]
    # A pod that starts again finds its checkpoints on a volume only.
    if not any(PurePosixPath(job.out).is_relative_to(folder) for _, folder in claims):
        raise ConfigError(
            f"job.out = {job.out!r} is on none of the volumes in claims, and would end with the pods. Add the claim "
            f'of a volume that all pods can write, e.g. claims = ["shared-runs:{job.out}"].'
        )
    if recipe is not None and recipe.suffix != ".toml":
        raise ConfigError(f"{recipe}: give the recipe as a .toml file, which goes into the manifest.")
    words = submission.training
    # Pods see the recipe under another path.
    words = words if recipe is None else (*words[:2], str(_RECIPE), *words[3:])
    return _fill(
        "jobset.yaml",
        replace(submission, training=tuple(map(_literal, words))),
        claims=claims,
        metadata={"name": submission.name, **({"namespace": job.namespace} if job.namespace else {})},
        recipe=_RECIPE,
        recipe_text="" if recipe is None else recipe.read_text(encoding="utf-8"),
        resource=_RESOURCES.get(submission.device),
        variables=[(name, _literal(value)) for name, value in variables_of(job)],
    )


def _literal(text: str) -> str:
    """A text in which Kubernetes puts no variables."""
    return text.replace("$(", "$$(")


def _fill(file: str, submission: Submission, **values: Any) -> str:
    return _TEMPLATES.get_template(file).render(
        values,
        submission=submission,
        about=submission.describe(),
        setup=shell_lines(submission.job),
        stopped=EXIT_STOPPED,
        save_s=SAVE_S,
        **vars(submission),
    )
