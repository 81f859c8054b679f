"""Loaders that other people's decoders feed (`machine.backend`): NVIDIA's `dali` and Gaudi's `gaudi_media`.

`base` has what they share. The entry points `vernier.loaders` name functions that take the source, the recipe and the
machine, and return a `tasks.base.TrainingReader`. Vernier's own readers are in `data.loading`.
"""
