"""Training: set-up, the loop and its single step, checkpoints, stopping and resuming.

`session.train` is the entry; `setup` builds a `Job` from a `Config`, `loop` runs it. May import every package but `cli`
and `report`. Evaluating, predicting and exporting are `engine.inference`, several processes `engine.processes`.
"""
