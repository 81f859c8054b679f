"""C++ for CPUs: JPEG windows (`jpeg`), restart markers (`restarts`), Winograd convolutions (`winograd`); and `exact`,
reductions in a fixed order.

`library` loads the compiled file. Everything works without this package: no other one imports it. The entry points
`vernier.decoders`, `vernier.restart_writers`, `vernier.convolutions` and `vernier.reductions` name what it has, with
the contracts `data.decoding.base`, `compat.preparing.restarts`, `engine.convolutions` and `engine.processes.gradients`.
May import `config`, `data`, `devices`, `engine` and the foundation. README.md contains how to build it and test it
alone.
"""
