"""What this machine can do: `doctor`. The examination is `lab.machine`'s."""

from dataclasses import replace

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import load_torch
from vernier.lab.machine.doctor import Examination, examine
from vernier.lab.requests.machine import Doctor
from vernier.requests.training import Train


def examine_machine(_: Doctor, session: Session) -> "Examination":
    """Examine this machine."""
    load_torch(quiet=session.quiet)

    examination, words = examine(), type(session.words)(Train)  # what a device can do is of use when training
    return replace(
        examination,
        abilities=tuple(replace(each, instead=words.word(each.instead)) for each in examination.abilities),
        advice=tuple(map(session.word, examination.advice)),
    )


doctor = function(Doctor, examine_machine, "doctor")
