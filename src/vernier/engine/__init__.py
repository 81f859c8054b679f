"""What runs a model: `training`, `inference`, `measured` (inside a measuring process), `processes` (several ranks),
`runtimes` (engines of inference), `convolutions` (of a training on a CPU).

`build` makes devices and networks, `execution` their mode, `starting_weights` loads and freezes, `observe` sends events
to observers. May import everything below it (`tasks`, `data`, `models`, `optim`, `devices`, `measure`, `store`,
`records`); never `cli` or `report`. Orchestrating measurements is `measure`'s, showing results `report`'s.
"""
