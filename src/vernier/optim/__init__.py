"""How weights change: parameter groups, optimisers, the learning-rate schedule and the moving average.

`kinds` has one file per optimizer; `build` creates a recipe's from that and `groups`; `schedules` gives the rate of a
step; `ema` averages weights. May import `config`, `errors` and `torch_private`. The step that uses them is in
`engine.training.step`.
"""
