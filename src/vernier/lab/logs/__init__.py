"""Logs as the laboratory uses them: files of device studies, and what must agree before two logs are compared.

`nvprof`, `smi` and `tables` recognize and read what studies are made of, `as_study` writes a run as a study; they plug
into `report.logs` as formats. `work` compares the work of two logs. The common form of a log is `report.logs.model`.
"""
