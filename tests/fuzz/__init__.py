"""Damaged files for every reader of Vernier: `make fuzz`, or `python -m tests.fuzz --target NAME`.

A target is a reader as a command uses it, with small sound files (examples). One input is one of these with one file
damaged, drawn from a seed and a number alone, so that every input can be made again. `targets` has the readers and
their examples, `mutations` damages files, `worker` runs inputs in a process of its own with limits, `campaign` divides
the inputs among the targets and minimises what fails. Inputs that once failed are in `test_regressions.py`.
"""
