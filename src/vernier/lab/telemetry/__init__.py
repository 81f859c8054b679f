"""Sensors of the host and its devices while something runs, and what their samples tell: energy and noise.

`sensors` opens what a machine has (`cpu`: files of Linux; `vendor`: NVML, HLML, hl-smi), `sampler` reads it in a
thread, `energy` and `noise` evaluate the samples. The records are in `lab.records.telemetry`. May import clock, errors
and records, and nothing that knows runs or files: `engine.observe` writes the samples, `report` shows them.
"""
