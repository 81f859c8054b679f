"""The processes of a run: launching them, their process group, CPU binding, heartbeat, and batch norm across them.

`launch` reads launchers' variables and starts local processes, `world` is the process group, `heartbeat` watches peers.
May import `config`, `devices` and `records`. What the processes train is in `engine.training`.
"""
