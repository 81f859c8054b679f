"""What runs inside a measuring process: training, inference and data loading of a recipe as loads, and their results.

May import the rest of `engine`, `data` and `measure`. How long to measure, statistics and the processes themselves are
in `lab.bench` and `lab.study`, profiles in `lab.profile`.
"""
