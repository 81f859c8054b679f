"""What runs a model: `training`, `inference`, `processes` (several ranks).

`build` makes devices and networks, `execution` their mode, `folding` makes them faster for inference, `convolutions`
finds their kernels, `starting_weights` loads and freezes, `observe` sends events to observers. May import everything
below it (`tasks`, `data`, `models`, `optim`, `devices`, `measure`, `store`, `records`); never `cli` or `report`.
Orchestrating measurements is `measure`'s, showing results `report`'s.
"""
