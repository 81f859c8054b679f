"""`vernier tune`: which machine settings are fastest for a piece of work, by a bounded search.

`candidates` says what is tried, `comparing` judges the values of one setting from rounds of measurements, `search` goes
from setting to setting and confirms the result in processes of `lab.launcher`, `results` has the table and the machine
file. What runs inside a process is `lab.measured.process`.
"""
