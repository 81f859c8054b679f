"""The laboratory: benchmarks, fine-tuning, tuning, profiles, comparisons, studies of many devices, telemetry and plans.

It plugs into the core through entry points, as outside packages do, and nothing imports it: training, evaluation and
reports work without it. README.md describes what it owns and its contracts.
"""
