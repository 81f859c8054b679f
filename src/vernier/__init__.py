"""Vernier: train, evaluate, benchmark and profile vision models, and report what was measured."""

__version__ = "0.2.0"
