"""One file per optimizer: its settings next to its arithmetic, its checks, state and parameter groups.

A class derived from `config.Optim` in a file here is an optimizer, found by `config.optimizers`; nothing else is to be
changed to add one. These files are imported with the settings and import PyTorch where they compute, in functions.
Optimizers of other packages have an entry point instead (docs/add-an-optimizer.md).
"""
