"""Tables (CSV) and iteration durations: files of device studies that are no logs of runs, recognized by their text."""

import csv
import re

from vernier.lab.reading.csv_tables import SEPARATORS

from .formats import LogFormat

STUDY_FILE = "`vernier study analyze` reads it."


def is_table(text: str) -> bool:
    """Whether half of its first lines have as many separated cells as the header, as those of a CSV file."""
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    for mark in SEPARATORS:
        try:
            cells = [len(row) for row in csv.reader(lines, delimiter=mark)]
        except csv.Error:  # a cell too long for a table
            continue
        if cells and cells[0] > 1 and 2 * cells[1:].count(cells[0]) >= len(cells) - 1:
            return True
    return False


DURATIONS = LogFormat(
    recognizes=lambda text: re.search(r"Iteration Duration \d+ \d+ : ", text) is not None,
    about=f"has iteration durations. {STUDY_FILE}",
    order=3,
)
# After everything that can have as many commas in each line.
TABLE = LogFormat(recognizes=is_table, about=f"looks like a table (CSV). {STUDY_FILE}", order=90)
