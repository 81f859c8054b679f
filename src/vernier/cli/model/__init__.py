"""Commands about one model: train, eval, predict, export, profile; one file per command.

They parse flags, call `engine`, and print through `cli.output`; torch is imported inside the functions. Benchmarks are
`cli.bench`, studies `cli.study`, pages and comparisons `cli.report`.
"""
