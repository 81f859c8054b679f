"""What runs inside a measuring process: training, inference and data loading of a recipe as loads, and their results.

May import the rest of `engine`, `data` and `measure`. How long to measure, statistics and the processes themselves are
in `measure.bench` and `measure.study`, profiles in `measure.profile`.
"""
