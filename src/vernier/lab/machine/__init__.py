"""This machine: what it is and what it has.

`environment` collects what environment.json records, `doctor` what `vernier doctor` shows, `kernels` are loads
without data or recipe (matrix products, copies). May import clock, cores, folders, records, devices and models.
Benchmarks are in `lab.bench`, sensors in `lab.telemetry`.
"""
