"""Variability studies for people: reading the tables of any study, ours or another's, and its result in words.

`tables` turns files into a `lab.study.analysis.Table`; `text` words a `StudyAnalysis` or `CheckResult`. May
import `measure`, `records`, `store` and `lab.logs`. The analysis is in `lab.study`, charts are in `lab.page.studies`.
"""
