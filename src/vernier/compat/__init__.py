"""Compatibility with other systems: their logs, checkpoints and weights. A part that plugs into the core.

May import everything but `cli` and `api`; nothing imports it. What it offers is listed as entry points in
`pyproject.toml`, in the groups that outside packages use, too. README.md in this folder has the contracts.
"""
