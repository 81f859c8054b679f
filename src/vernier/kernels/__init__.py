"""C++ that is compiled at first use on the user's machine: JPEG windows (`jpeg`), Winograd convolutions (`winograd`).

`compiling` compiles a file and keeps the library in the cache. Everything works without this package: no other one
imports it. The entry points `vernier.decoders` and `vernier.convolutions` name its classes, whose contracts are
`data.decoding.base` and `engine.convolutions`. May import `config`, `data`, `devices` and the foundation. README.md
contains how to test it alone.
"""
