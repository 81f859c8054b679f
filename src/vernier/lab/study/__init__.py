"""Variability studies: are the devices of a machine or a fleet equal?

`run` measures one machine, `files` keeps the measurements, `analysis` judges the devices, `baseline` learns a fleet
and checks machines against it. May import measure.statistics, measure.bench, measure.telemetry, records and store.
The types of results are in `records`; one repeat is measured by engine.measured.study_repeat; reading the tables
of others, and words for people, are in report.study.
"""
