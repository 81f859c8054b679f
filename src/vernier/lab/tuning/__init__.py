"""`vernier tune`: which machine settings are fastest for a piece of work, by a bounded search in alternating turns.

`candidates` says what is tried, `racing` judges one setting's values from their rounds, `search` goes from setting to
setting and confirms the result, `live` has the processes that take turns, `results` the table and the machine file. May
import what `measure` may; what runs inside a process is `lab.measured.turns`.
"""
