"""What people see of runs: live output (`live`), the page (`page`), logs of other tools (`logs`), studies (`study`).

Also comparison of runs (`compare`), NVIDIA's logs of a run that ends (`exports`), predictions with their pictures, and
the model card of an exported model. Imports
`records`, `store`, `measure`, `config`, `models` and image decoding; never the engine. Commands are in `cli`.
"""
