"""Parameter groups, optimizers, the learning-rate schedule and the moving average of weights.

`kinds` has one file per optimizer; `build` creates a recipe's, with its parameter groups; `schedules` gives the rate of
a step; `ema` averages weights. May import `config`, `models.contract`, `errors` and `torch_private`. The step that uses
them is in `engine.training.step`.
"""
