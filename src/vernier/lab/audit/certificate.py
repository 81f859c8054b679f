"""Certificates: what a run was and the hashes of its files, as an in-toto statement that can be verified later.

The statement is plain JSON. ssh-keygen signs it, which is installed nearly everywhere and needs no service; a signature
is a file of its own, so that the statement stays readable by every tool. Replaying is up to `replay`.
"""

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from vernier.config import config_from_tree, digest
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.records.bench import ConfigTree
from vernier.measure.agreement import PERCENT
from vernier.measure.estimates import share_interval
from vernier.records.codec import named
from vernier.records.events import FingerprintEvent
from vernier.records.run import RunSummary
from vernier.references import given
from vernier.store import RunDir, read_record
from vernier.store.durable import sha256_of_file

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "urn:vernier:run-certificate:1"
_NAMESPACE = "vernier"
_SUFFIXES = (".json", ".jsonl", ".safetensors")
CERTIFICATE = "certificate.json"


@frozen
class Subject:
    """A file of the run, by its path in the directory."""

    name: str
    digest: dict[str, str]


@frozen
class Predicate:
    """What is stated: the contents of config.json, environment.json and run.json among others.

    `chain` has a hash of every fingerprint and all before it: the last one stands for all that was computed.
    `intervals`: the 95 % interval of each accuracy for images like those of the validation set.
    """

    run: str
    recipe: str
    config: ConfigTree
    data: ConfigTree | None
    environment: ConfigTree
    chain: tuple[str, ...]
    summary: RunSummary
    intervals: dict[str, tuple[float, float]]
    verify: tuple[str, ...]
    """Commands."""


@frozen
class Statement:
    """An in-toto statement, version 1."""

    type: str = named("_type")
    subject: tuple[Subject, ...]
    predicate_type: str = named("predicateType")
    predicate: Predicate


def certificate(run: RunDir, commands: Iterable[str]) -> Statement:
    """The statement about a finished run; `commands` verify it. Raises ConfigError for a run that is not finished."""
    status = run.status()
    if status.status != "finished" or status.summary is None:
        raise ConfigError(f"{run.path} is {status.status}, and only a finished run can be certified.")
    files = [path for path in sorted(run.path.rglob("*")) if path.suffix in _SUFFIXES and path.name != CERTIFICATE]
    config, checkpoints = run.read_config(), run.checkpoints.committed()
    return Statement(
        type=STATEMENT,
        subject=tuple(
            Subject(name=str(path.relative_to(run.path)), digest={"sha256": sha256_of_file(path)}) for path in files
        ),
        predicate_type=PREDICATE,
        predicate=Predicate(
            run=str(run.path.resolve()),
            recipe=digest(config_from_tree(config).recipe),
            config=config,
            data=checkpoints[-1].read_state()["progress"].get("data") if checkpoints else None,
            environment=run.read_environment(),
            chain=tuple(_chain(run)),
            summary=status.summary,
            intervals=_intervals(status.summary),
            verify=tuple(commands),
        ),
    )


def _chain(run: RunDir) -> Iterator[str]:
    link = hashlib.sha256(PREDICATE.encode())
    for event in run.history():
        if isinstance(event, FingerprintEvent):
            kinds = event.gradients, event.weights, event.statistics, event.optimizer, event.shards
            link.update(repr((event.step, *kinds)).encode())
            yield f"{event.step}:{link.hexdigest()}"


def _intervals(summary: RunSummary) -> dict[str, tuple[float, float]]:
    result = summary.result
    rates = {name: value for name, value in (result.figures if result else {}).items() if name in PERCENT and value}
    samples = result.samples if result else 0
    intervals = {name: share_interval(round(value * samples / 100), samples) for name, value in rates.items()}
    return {name: (100 * low, 100 * high) for name, (low, high) in intervals.items()}


def read_certificate(path: Path) -> Statement:
    """The statement of a file. Raises ConfigError for another file."""
    try:
        statement = read_record(Statement, path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a certificate of a run: {str(error).rstrip('.')}.") from None
    if (statement.type, statement.predicate_type) != (STATEMENT, PREDICATE):
        raise ConfigError(f"{path} is not a certificate of a run: its predicateType is not {PREDICATE}.")
    return statement


def problems(statement: Statement, run: RunDir) -> list[str]:
    """What of a run is not as it was certified."""
    differing = []
    for subject in statement.subject:
        path = run.path / subject.name
        if not path.is_file():
            differing.append(f"{subject.name}: missing")
        elif sha256_of_file(path) != subject.digest.get("sha256"):
            differing.append(f"{subject.name}: content does not match its hash")
    if tuple(_chain(run)) != statement.predicate.chain:
        differing.append("fingerprints: others than those that were certified")
    return differing


def sign(path: Path, key: Path) -> None:
    """Sign a file with a private SSH key: the signature is FILE.sig. Raises ConfigError if that fails."""
    path.with_name(f"{path.name}.sig").unlink(missing_ok=True)
    _ssh_keygen(key, ["sign", "-n", _NAMESPACE, "-f", str(key), str(path)])


def check_signature(path: Path, key: Path) -> None:
    """Raise ConfigError unless FILE.sig is the signature of a file by this public SSH key."""
    if not path.with_name(f"{path.name}.sig").is_file():
        raise ConfigError(f"{given('key', key)}: {path}.sig does not exist, so {path} is not signed.")
    with tempfile.TemporaryDirectory(prefix="vernier-verify-") as folder:
        signers = Path(folder, "signers")
        signers.write_text(f"{_NAMESPACE} {key.read_text() if key.is_file() else key}")
        words = ["verify", "-n", _NAMESPACE, "-I", _NAMESPACE, "-f", str(signers), "-s", f"{path}.sig"]
        _ssh_keygen(key, words, path.read_bytes())


def _ssh_keygen(key: Path, words: list[str], content: bytes = b"") -> None:
    try:
        done = subprocess.run(["ssh-keygen", "-Y", *words], input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError(f"{given('key', key)} needs ssh-keygen, which is not on the PATH: install OpenSSH.") from None
    if done.returncode:
        why = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise ConfigError(f"{given('key', key)}: {why[-1] if why else 'ssh-keygen failed'}. Use a key in SSH format.")
