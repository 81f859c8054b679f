"""The Python interface: the functions and classes of `import vernier`, and the work that commands share with them.

`training`, `models`, `runs`, `reports` and `catalog` have the public functions and the objects they return; `display`
shows those in notebooks. `functions` makes functions from requests, `wording` words their messages, `session` shows
their progress, `starting` prepares the process, `crossing` passes requests to other processes. May import everything
but `cli`. The names are reached through `vernier` itself, which imports them when they are used.
"""
