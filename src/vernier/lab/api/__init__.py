"""The functions of Python that measure: one module per group of commands, each made from its request.

`vernier.api.functions` makes the functions; `lab.commands` lists them. What they do is in `lab.bench`, `tuning`,
`study`, `planning` and `profile`.
"""
