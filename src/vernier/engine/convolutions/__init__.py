"""Convolutions of a training on a CPU that are computed in another way than PyTorch's.

`winograd` needs fewer products, with the kernels of kernels.cpp, which `devices.compiling` compiles; `shards` are for
exact reduction. May import `devices` and what is below it. `training.setup` chooses among them; networks are `models`'.
"""
