"""Commands about finished and running runs: `report` (page), `compare`, `convert`.

Only flags, messages and exit codes are here; the work is in `vernier.report`, imported when a command runs. Commands
that train, evaluate and export are in `cli.model`, benchmarks in `cli.bench`, studies in `cli.study`.
"""
