"""Predictions before a training: its cost on one device, and its speed on many.

`workload` reads a measured speed from a run or a number and scales it by multiply-accumulates, `plan` predicts many
devices, `table` has the rows that people read, with the errors of such estimates, `submission` the scripts of
jobs. May import config, models, records and store. The commands are in `lab.cli.planning`; speeds are measured by
`lab.bench` and by training runs.
"""
