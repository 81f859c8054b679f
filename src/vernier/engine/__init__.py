"""What runs a model: `training`, `inference`, `measured` (inside a measuring process), `processes` (several ranks),
`runtimes` (engines of inference).

`build` makes devices and networks, `execution` their mode, `convolutions` finds their kernels, `starting_weights` loads
and freezes, `observe` sends events to observers. May import everything below it (`tasks`, `data`, `models`, `optim`,
`devices`, `measure`, `store`, `records`); never `cli` or `report`. Orchestrating measurements is `measure`'s, showing
results `report`'s.
"""
