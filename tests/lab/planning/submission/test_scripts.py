"""Scripts as text, and the manifest against the schema of JobSet and what the pods need.

tests/integration/test_schedulers.py has Slurm, bash and ssh run such scripts.
"""

import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.lab.planning.submission.test_job import GOOD, documented, submission
from vernier import recipes
from vernier.errors import ConfigError
from vernier.lab.planning.submission.job import plan_submission
from vernier.lab.planning.submission.scripts import kubernetes_manifest, slurm_script, ssh_script


def test_hosts_devices_and_time(tmp_path: Path) -> None:
    lines = slurm_script(submission(tmp_path, documented())).splitlines()
    assert "#SBATCH --nodes=4 --ntasks-per-node=8 --cpus-per-task=12" in lines
    assert "#SBATCH --gpus-per-node=8" in lines
    assert "#SBATCH --time=12:00:00" in lines
    assert "#SBATCH --partition=gpu" in lines
    (training,) = [line for line in lines if line.startswith("srun")]
    assert training.startswith("srun --kill-on-bad-exit=0 --cpus-per-task=12 vernier train")
    assert training.endswith("--max-time auto")
    options, shell = (lines.index(line) for line in ("#SBATCH --partition=gpu", "export NCCL_SOCKET_IFNAME=ib0"))
    assert options < shell, "Slurm reads no options after the first command"


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    text = slurm_script(submission(tmp_path, GOOD))
    assert not any(word in text for word in ("--time", "--max-time", "--gpus", "--cpus-per-task", "--mem", "END_TIME"))
    assert "export MASTER_PORT=4000\n" in slurm_script(submission(tmp_path, GOOD + "port = 4000\n"))


def test_a_device_that_no_cluster_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Slurm does not run on macOS"):
        slurm_script(submission(tmp_path, GOOD.replace("cpu", "mps")))


def test_hosts_and_rendezvous(tmp_path: Path) -> None:
    text = ssh_script(submission(tmp_path, documented().replace("hosts = 4", "host_names = ['me@node1', 'node2']")))
    assert "hosts=(me@node1 node2)\n" in text
    assert '--nnodes=2 --nproc-per-node=8 --node-rank="$rank" --master-addr=node1 --master-port=29500' in text
    assert "--max-time 12h\nEND\n" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_hosts_need_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set host_names in"):
        ssh_script(submission(tmp_path, GOOD + "hosts = 2\n"))


# ----------------------------------------------------------------------------------------------------------- kubernetes


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


def _documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def test_the_manifest_fits_the_schema_of_jobset(tmp_path: Path) -> None:
    (jobset,) = _documents(kubernetes_manifest(submission(tmp_path, documented())))
    jsonschema.validate(jobset, JOBSET)
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["parallelism"], job["completions"]) == (4, 4)
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": {"cpu": 96}, "limits": {"nvidia.com/gpu": 8}}
    assert "--node-rank=$(NODE_RANK)" in container["command"]
    assert "--master-addr=nvidia-resnet50-90e-hosts-0-0.nvidia-resnet50-90e" in container["command"]
    assert container["command"][-2:] == ["--max-time", "12h"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


def test_stopped_trainings_restart_without_counting_and_failed_ones_count(tmp_path: Path) -> None:
    (jobset,) = _documents(kubernetes_manifest(submission(tmp_path, documented())))
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    stopped, evicted = job["podFailurePolicy"]["rules"]
    assert (stopped["action"], stopped["onExitCodes"]["values"]) == ("FailJob", [75, 143])
    assert evicted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    (restart,) = jobset["spec"]["failurePolicy"]["rules"]
    assert restart["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert restart["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert (job["backoffLimit"], jobset["spec"]["failurePolicy"]["maxRestarts"]) == (0, 3)


def test_a_recipe_of_ones_own_travels_in_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "machine.toml").write_text(documented())
    recipe = tmp_path / "mine.toml"
    recipe.write_text('name = "mine"\n\n# a comment: "quoted"\nglobal_batch = 64\n')
    config = recipes.load(str(recipe))
    made = plan_submission(str(recipe), config, tmp_path / "machine.toml", recipe_file=recipe)
    carried, jobset = _documents(kubernetes_manifest(made))
    assert carried["data"] == {"recipe.toml": recipe.read_text()}
    jsonschema.validate(jobset, JOBSET)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][12] == "/etc/vernier/recipe.toml"
    assert {"name": "recipe", "configMap": {"name": "mine"}} in pod["volumes"]


def test_variables_are_passed_as_written(tmp_path: Path) -> None:
    (jobset,) = _documents(kubernetes_manifest(submission(tmp_path, documented().replace("=ib0", "=$(ib0)"))))
    (container,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert container["env"][1] == {"name": "NCCL_SOCKET_IFNAME", "value": "$$(ib0)"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "set image in"),
        (GOOD + "image = 'x'\n", "is on none of the volumes in claims"),
        (GOOD + "image = 'x'\nclaims = ['runs:/elsewhere']\n", "is on none of the volumes in claims"),
        (GOOD + "image = 'x'\nclaims = ['runs']\n", "write CLAIM:/FOLDER"),
        (GOOD.replace("cpu", "mps") + "image = 'x'\n", "no resource of Kubernetes is known"),
    ],
)
def test_what_a_pod_cannot_do_without(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kubernetes_manifest(submission(tmp_path, text))
