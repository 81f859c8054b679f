"""Logs of other systems in the common form of `lab.logs.model`: MLPerf's and NVIDIA's.

Each module knows the formats of one source and offers them as `LogFormat` objects to `lab.logs.formats`. Vernier's
own runs are in `lab.logs.own`, the files of device studies in `lab.logs.nvprof`.
"""
