"""Published speeds and training times, and how a measured rate compares with them.

`tables` reads figures.json: images per second and latencies by device, batch, precision and number of devices, and
hours to train, from the documents of the systems that recipes come from. `standing` compares a measured rate. Published
accuracies belong to their recipe (`config.Published`). Used by `measure.planning`, the engine, reports and `cli`; the
published scaling of `vernier plan --check` is in `measure.planning`.
"""
