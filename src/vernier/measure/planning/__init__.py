"""Predictions before a training: its cost on one device, and its speed on many.

`estimate` scales a measured speed by multiply-accumulates, `workload` reads that speed from a run or a number, `plan`
predicts many devices, `published` checks it against published tables. May import config, models, records and store.
The commands are in `cli.info`; speeds are measured by `measure.bench` and by training runs.
"""
