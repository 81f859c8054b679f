"""machine.reduction = exact: the same weights, bit for bit, for any number of processes.

`reduction` sums gradients, losses and statistics over virtual shards in the order of `engine.processes.tree`;
`engine.processes.shard_convolutions` has the weight gradients of small batches. Plain PyTorch: nothing here is
compiled. The contract is `engine.processes.gradients`.
"""
