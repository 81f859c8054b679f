"""The processes of a run: launching them, their process group, CPU binding, heartbeat, and what they compute together.

`launch` reads launchers' variables and starts local processes, `world` is the process group, `heartbeat` watches peers.
`gradients` averages gradients; `machine.reduction = exact` plugs in and sums them in an order that does not depend on
the processes, by the `tree`, with `shard_convolutions` for its small batches. May import `config`, `devices` and
`records`. What the processes train is in `engine.training`.
"""
