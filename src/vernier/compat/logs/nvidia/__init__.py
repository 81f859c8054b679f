"""NVIDIA's logs of image classification: `raport.json` of 2019 and DLLogger since 2020, as JSON lines and as text.

`reading` turns all of them into the common form (`lab.logs.model`), `writing` writes raport.json and DLLogger's JSON
lines. Both record, for each printed iteration, `data_time` and `compute_time` in seconds and `*_ips` in images per
second over all devices; `val.top1` and `val.top5` are in percent.
"""
