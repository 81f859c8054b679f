"""What the commands that measure print: one function per command, which takes the request and a terminal.

`lab.commands` lists them. Options are declared in `lab.requests`, and the work is done by `lab.api`, as for Python.
"""
