"""Trainings and data preparations under faults: killed, stopped, on failing disks; the results are compared."""
