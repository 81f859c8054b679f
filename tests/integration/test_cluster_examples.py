"""The scripts of `examples/cluster`: the manifest against the schema of JobSet, and shell that bash can read.

tests/integration/test_schedulers.py has Slurm, bash and ssh run them.
"""

import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

CLUSTER = Path(__file__).resolve().parents[2] / "examples" / "cluster"

TEXT, COUNT, SWITCH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
FIELD = _object("fieldRef", fieldRef=_object("fieldPath", apiVersion=TEXT, fieldPath=TEXT))
CONTAINER = _object(
    "name image command",
    name=NAME,
    image=TEXT,
    command=_list(TEXT),
    args=_list(TEXT),
    env=_list(_object("name", name=TEXT, value=TEXT, valueFrom=FIELD)),
    resources=_object(limits=QUANTITIES, requests=QUANTITIES),
    volumeMounts=_list(_object("name mountPath", name=NAME, mountPath=TEXT, readOnly=SWITCH, subPath=TEXT)),
)
VOLUME = _object(
    "name",
    name=NAME,
    persistentVolumeClaim=_object("claimName", claimName=TEXT, readOnly=SWITCH),
    configMap=_object("name", name=NAME),
    emptyDir=_object(medium={"enum": ["", "Memory"]}, sizeLimit=TEXT),
)
POD = _object(
    "containers restartPolicy",
    restartPolicy={"const": "Never"},  # what podFailurePolicy requires
    terminationGracePeriodSeconds=COUNT,
    containers=_list(CONTAINER),
    volumes=_list(VOLUME),
)
EXIT_CODES = _object("operator values", containerName=TEXT, operator={"enum": ["In", "NotIn"]}, values=_list(COUNT))
CONDITION = _object("type status", type=TEXT, status={"enum": ["True", "False", "Unknown"]})
RULE = _object(
    "action",
    action={"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
    onExitCodes=EXIT_CODES,
    onPodConditions=_list(CONDITION),
)
JOB = _object(
    "template",
    parallelism=COUNT,
    completions=COUNT,
    completionMode={"enum": ["NonIndexed", "Indexed"]},
    backoffLimit=COUNT,
    podFailurePolicy=_object("rules", rules=_list(RULE)),
    template=_object(spec=POD),
)
REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
RESTART = _object(
    "action name",
    name=TEXT,
    action={"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]},
    onJobFailureReasons=_list({"enum": list(REASONS)}),
    targetReplicatedJobs=_list(TEXT),
)
JOBSET = _object(
    "apiVersion kind metadata spec",
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=_object("name", name=NAME, namespace=NAME),
    spec=_object(
        "replicatedJobs",
        network=_object(enableDNSHostnames=SWITCH, subdomain=TEXT, publishNotReadyAddresses=SWITCH),
        failurePolicy=_object(maxRestarts=COUNT, rules=_list(RESTART)),
        replicatedJobs=_list(_object("name template", name=NAME, replicas=COUNT, template=_object(spec=JOB))),
    ),
)
"""The fields that we use, as JobSet's custom resource definition (v1alpha2) and Kubernetes' Job and Pod have them."""


def test_the_jobset_fits_its_schema_and_every_process_has_a_device() -> None:
    jobset = yaml.safe_load((CLUSTER / "jobset.yaml").read_text())
    jsonschema.validate(jobset, JOBSET)
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4
    (container,) = job["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    words = container["command"]
    assert {"--nnodes=4", "--nproc-per-node=8"} < set(words)
    assert words[words.index("--procs") + 1] == "32"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in job["template"]["spec"]["volumes"]}


@pytest.mark.parametrize("name", ["train.sbatch", "hosts.sh"])
def test_bash_can_read_it(name: str) -> None:
    subprocess.run(["bash", "-n", str(CLUSTER / name)], check=True)
