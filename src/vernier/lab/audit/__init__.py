"""Audits: did the devices of a run compute what they had to?

`replay` computes parts of a run again and compares fingerprints; `records` has the results. Fingerprints are taken and
compared between processes by engine.training; words for people are in lab.report.audit.
"""
