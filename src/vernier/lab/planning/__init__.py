"""Predictions before a training: its cost on one device, and its speed on many.

`workload` reads a measured speed from a run or a number, `estimate` scales it by multiply-accumulates, `plan` predicts
many devices, `table` has the rows that people read, `published` and `conversion` the errors of such estimates;
`explain` works out a training before it starts. May import config, models, records and store. The commands
are in `cli.info`; speeds are measured by `lab.bench` and by training runs.
"""
