"""Clocks, throughput, statistics, the environment: how things are measured, never what is run."""
