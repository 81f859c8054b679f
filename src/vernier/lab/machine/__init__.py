"""This machine: what it is, what it has, and roughly how fast it is.

`environment` collects what environment.json records, `doctor` what `vernier doctor` shows, `probe` times a few
training steps, `kernels` are loads without data or recipe (matrix products, copies). May import clock, cores, folders,
records, devices and models. Benchmarks are in `lab.bench`, sensors in `lab.telemetry`.
"""
