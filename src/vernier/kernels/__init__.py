"""C++ for CPUs: JPEG windows (`jpeg`), restart markers (`restarts`), Winograd convolutions (`winograd`).

`library` loads the compiled file. Everything works without this package: no other one imports it. The entry points
`vernier.decoders`, `vernier.restart_writers` and `vernier.convolutions` name its classes, whose contracts are
`data.decoding.base`, `data.decoding.restarts` and `engine.convolutions`. May import `config`, `data`, `devices` and the
foundation. README.md contains how to build it and test it alone.
"""
