"""The sections of the page, in order: functions of all subjects that return a Section, or None without content.

A section imports `collect` (the subjects), `figures`, `html` and records, and reads no files.
"""

from collections.abc import Callable

from vernier.report.page.collect import Subject
from vernier.report.page.figures import Section
from vernier.report.page.sections.benchmarks import benchmarks
from vernier.report.page.sections.classification import classification
from vernier.report.page.sections.detection import detection
from vernier.report.page.sections.devices import devices
from vernier.report.page.sections.environment import environment
from vernier.report.page.sections.glance import glance
from vernier.report.page.sections.profile import profile
from vernier.report.page.sections.training import training

SECTIONS: tuple[Callable[[list[Subject]], Section | None], ...] = (
    glance,
    training,
    classification,
    detection,
    benchmarks,
    profile,
    devices,
    environment,
)
