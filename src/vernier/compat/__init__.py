"""Compatibility with other systems: their recipes, logs, trackers, checkpoints and weights.

May import everything, also the laboratory's common form of logs; nothing imports it. What it offers is listed as entry
points in `pyproject.toml`, in the groups that outside packages use, too. README.md in this folder has the contracts.
"""
