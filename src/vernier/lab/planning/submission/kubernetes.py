"""A JobSet for Kubernetes: one pod per host, started again as one until the training is finished.

All pods belong to one indexed Job. A pod that saved and stopped, or that was evicted, fails the Job, and the JobSet
starts all pods again without counting it; other failures count in `max_restarts`.
"""

from dataclasses import replace
from pathlib import PurePosixPath

import yaml

from vernier.errors import EXIT_STOPPED, ConfigError
from vernier.references import given

from .job import SAVE_S, Submission, with_recipe

_RESOURCES = {"cuda": "nvidia.com/gpu", "hpu": "habana.ai/gaudi", "xpu": "gpu.intel.com/i915"}
_PODS, _RECIPES = "hosts", PurePosixPath("/etc/vernier")
_STOPPED_CODES = [EXIT_STOPPED, 128 + 15]
"""Stopped by itself, or by the SIGTERM that Kubernetes sends."""
_RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RECIPE_KEY = "recipe.toml"


def kubernetes_manifest(submission: Submission) -> str:
    """The manifest, to be given to `kubectl apply -f`. Raises ConfigError."""
    job = submission.job
    if not job.image:
        raise ConfigError(f"{given('to', 'kubernetes')}: set image in [job] to a container image with Vernier.")
    if submission.device not in (*_RESOURCES, "cpu"):
        raise ConfigError(
            f"device = {submission.device}: no resource of Kubernetes is known for it. Use one of "
            f"{', '.join(('cpu', *_RESOURCES))}."
        )
    mounts = [_claim(text) for text in job.claims]
    if not any(PurePosixPath(job.out).is_relative_to(folder) for _, folder in mounts):
        raise ConfigError(
            f"job.out = {job.out!r} is on none of the volumes in claims, and would end with the pods. Add the claim "
            f'of a volume that all pods can write, e.g. claims = ["shared-runs:{job.out}"].'
        )
    metadata = {"name": submission.name, **({"namespace": job.namespace} if job.namespace else {})}
    documents = [_jobset(submission, mounts, metadata)]
    if submission.recipe_file is not None:
        if submission.recipe_file.suffix != ".toml":
            raise ConfigError(
                f"{submission.recipe_file}: give the recipe as a .toml file, which goes into the manifest."
            )
        text = submission.recipe_file.read_text(encoding="utf-8")
        recipe: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_RECIPE_KEY: text},
        }
        documents.insert(0, recipe)
    head = (
        f"# {submission.describe()}. Submit it with kubectl apply -f; needs JobSet (https://jobset.sigs.k8s.io).\n"
        f"# Exit code {EXIT_STOPPED}, SIGTERM and evictions start all pods again without counting; other failures at "
        f"most {job.max_restarts} times.\n"
    )
    return head + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


def _claim(text: str) -> tuple[str, str]:
    claim, _, folder = text.partition(":")
    if not claim or not PurePosixPath(folder).is_absolute():
        raise ConfigError(f"job.claims has {text!r}: write CLAIM:/FOLDER, e.g. shared-runs:/runs.")
    return claim, folder


def _jobset(submission: Submission, mounts: list[tuple[str, str]], metadata: dict[str, str]) -> dict[str, object]:
    hosts = submission.job.host_count
    rules = [
        {"action": "FailJob", "onExitCodes": {"containerName": "train", "operator": "In", "values": _STOPPED_CODES}},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    restart = {
        "name": "stopped",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": rules},
        "template": {"spec": _pod(submission, mounts)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True},
            "failurePolicy": {"maxRestarts": submission.job.max_restarts, "rules": [restart]},
            "replicatedJobs": [{"name": _PODS, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _pod(submission: Submission, mounts: list[tuple[str, str]]) -> dict[str, object]:
    shared_memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    names = [f"volume-{number}" for number in range(len(mounts))]
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": c}} for n, (c, _) in zip(names, mounts, strict=True)]
    folders = [{"name": n, "mountPath": folder} for n, (_, folder) in zip(names, mounts, strict=True)]
    if submission.recipe_file is not None:
        submission = with_recipe(submission, str(_RECIPES / _RECIPE_KEY))
        volumes.append({"name": "recipe", "configMap": {"name": submission.name}})
        folders.append({"name": "recipe", "mountPath": str(_RECIPES)})
    # JobSet's name for the first pod; the service has the JobSet's own name.
    address = f"{submission.name}-{_PODS}-0-0.{submission.name}"
    variables = [text.partition("=") for text in submission.job.environment]
    submission = replace(submission, training=tuple(_literal(word) for word in submission.training))
    container = {
        "name": "train",
        "image": submission.job.image,
        "command": [*submission.torchrun(address=address, node_rank="$(NODE_RANK)")],
        "env": [
            {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _RANK}}},
            *({"name": name, "value": _literal(value)} for name, _, value in variables),
        ],
        "resources": _resources(submission),
        "volumeMounts": [*folders, {"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": SAVE_S,
        "containers": [container],
        "volumes": [*volumes, shared_memory],
    }


def _literal(text: str) -> str:
    """A text in which Kubernetes puts no variables."""
    return text.replace("$(", "$$(")


def _resources(submission: Submission) -> dict[str, object]:
    job = submission.job
    requests: dict[str, str | int] = {}
    if job.cpus_per_process:
        requests["cpu"] = job.cpus_per_process * job.processes_per_host
    if job.memory_gb_per_host:
        requests["memory"] = f"{job.memory_gb_per_host}G"
    device = _RESOURCES.get(submission.device)
    limits = {device: job.processes_per_host} if device else {}
    return {name: value for name, value in {"requests": requests, "limits": limits}.items() if value}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are, lists indented as Kubernetes' own examples are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
