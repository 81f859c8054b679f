"""Audits and certificates of runs. What is replayed and compared is up to `lab.audit`."""

import contextlib
from pathlib import Path

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import load_torch, unchanged_torch
from vernier.errors import ConfigError
from vernier.lab.audit.certificate import (
    CERTIFICATE,
    certificate,
    check_signature,
    problems,
    read_certificate,
    sign,
)
from vernier.lab.audit.records import AuditResult, Verification
from vernier.lab.requests.audit import Audit, Certify, Verify
from vernier.measure.profiles import StepRange
from vernier.quantities import measured_duration
from vernier.records.codec import encode
from vernier.references import given
from vernier.store import RunDir, write_json
from vernier.wording import plural


def audit_run(request: Audit, session: Session) -> AuditResult:
    """Replay a run. Raises ConfigError for one without fingerprints, or with sums that cannot be repeated."""
    load_torch(quiet=session.quiet)
    from vernier.lab.audit import replay

    with unchanged_torch(), contextlib.closing(replay.Audit(RunDir.open(Path(request.run)), request.device)) as plan:
        steps = StepRange.parse(request.steps, "steps") if request.steps else None
        chosen = plan.containing(steps) if steps else plan.choose(None if request.full else request.sample)
        count = sum(each.stop - each.start for each in chosen)
        session.say(
            f"replaying {plural(count, 'step')} in {len(chosen)} of {plural(len(plan.intervals), 'interval')} between "
            f"checkpoints: about {measured_duration(plan.estimated_s(chosen, request.procs))} at the speed of the run"
        )
        session.warn(*(f"warning: {doubt}: a difference would not prove a fault" for doubt in plan.doubts))
        with session.bar("audit") as show:
            return plan.replay(chosen, show, request.procs)


def certify_run(request: Certify, _: Session) -> Path:
    """Write the certificate of a run, and sign it; the file. Raises ConfigError for a run that is not finished."""
    run = RunDir.open(Path(request.run))
    out = Path(request.out) if request.out else run.path / CERTIFICATE
    commands = [f"vernier verify {out} --depth {depth}" for depth in ("hashes", "sample", "full")]
    try:
        write_json(out, encode(certificate(run, commands)))
    except OSError as error:
        raise ConfigError(f"{given('out', out)} cannot be written: {error.strerror}.") from None
    if request.key:
        sign(out, Path(request.key).expanduser())
    return out


def verify_run(request: Verify, session: Session) -> Verification:
    """Compare a run with its certificate. Raises ConfigError for a wrong signature, and without the run."""
    statement = read_certificate(Path(request.file))
    if request.key:
        check_signature(Path(request.file), Path(request.key).expanduser())
    run = RunDir.open(Path(request.run or statement.predicate.run))
    differing, replayed = tuple(problems(statement, run)), None
    if request.depth != "hashes" and not differing:
        again = Audit(
            run=str(run.path),
            sample=5,
            full=request.depth == "full",
            procs=1,
            device=request.device,
            quiet=request.quiet,
            json=request.json,
        )
        replayed = audit_run(again, session)
    return Verification(
        run=str(run.path),
        verdict="differs" if differing else replayed.verdict if replayed else "agrees",
        files=len(statement.subject),
        problems=differing,
        signed=request.key is not None,
        audit=replayed,
    )


certify = function(Certify, certify_run, "certify")
verify = function(Verify, verify_run, "verify")
audit = function(Audit, audit_run, "audit")
