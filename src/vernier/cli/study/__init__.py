"""`vernier study ...`: run, analyze, baseline, check, merge, simulate and design, one function per command.

`run` has the longest command, `practice` those of simulated fleets, `commands` the others; `sources` reads their
files. Only flags, messages and output; the work is in measure.study, the words in report.study.
"""

from .commands import COMMANDS

__all__ = ["COMMANDS"]
