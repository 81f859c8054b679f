"""The sections of the page, in order: functions of all subjects that return a Section, or None without content.

A section imports `collect` (the subjects), `figures`, `html` and records, and reads no files.
"""

from collections.abc import Callable

from vernier.report.page.collect import Subject
from vernier.report.page.figures import Section

from .benchmarks import benchmarks
from .classification import classification
from .detection import detection
from .devices import devices
from .environment import environment
from .glance import glance
from .hosts import hosts
from .profile import profile
from .system import system
from .training import training

SECTIONS: tuple[Callable[[list[Subject]], Section | None], ...] = (
    glance,
    training,
    hosts,
    classification,
    detection,
    benchmarks,
    profile,
    devices,
    system,
    environment,
)
