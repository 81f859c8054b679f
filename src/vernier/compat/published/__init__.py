"""Published speeds and training times of the systems that recipes come from, and the comparison with a measured one.

`tables` reads figures.json: images per second and latencies by device, batch, precision and number of devices, and
hours to train. `standing` compares. It plugs in as `vernier.published_figures`; the types are in `measure.published`.
"""
