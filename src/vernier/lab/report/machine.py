"""A machine in words: one screen about what it can do (`vernier doctor`), from the template `templates/machine.txt`."""

from vernier.lab.machine.doctor import Examination
from vernier.references import command
from vernier.templates import open_templates

_TEMPLATES = open_templates(__file__, command=command, gib=lambda size: size / 2**30)


def machine_lines(examination: Examination) -> list[str]:
    """One screen."""
    text = _TEMPLATES.get_template("machine.txt").render(vars(examination))
    return [line.rstrip() for line in text.splitlines()]
