"""`vernier study ...`: run, analyze, baseline, check and merge, one function per command.

`run` has the longest command, `commands` the others. Only flags, messages and output; the work is in measure.study,
the words in report.study.
"""

from .commands import COMMANDS

__all__ = ["COMMANDS"]
