"""Logs of other systems in the common form of `report.logs.model`: MLPerf's, NVIDIA's, and console output of scripts.

Each module knows the formats of one source and offers them as `LogFormat` objects to `report.logs.formats`. Vernier's
own runs are in `report.logs.own`, the files of device studies in `report.logs.nvprof` and `smi`.
"""
