"""What training, evaluation and reports compute about themselves: throughput, intervals, energy, memory, what ran.

`throughput` and `estimates` define speed and its interval, `run_summary` the speed of a run, `agreement` and
`published` compare with publications, `memory` and `explain` work out a run before it starts, `environment` and
`what_ran` describe it. May import config, devices, models, optim, records, store and the top-level modules. Benchmarks,
studies and telemetry are in `vernier.lab`, which plugs in.
"""
