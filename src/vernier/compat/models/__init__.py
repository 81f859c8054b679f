"""Models of other code bases: own modules of users (`own`), and those of timm (`timm`) and torchvision (`torchvision`).

Each plugs in as an entry point of `vernier.model_origins`: a function from the whole name to an `Entry` and a `Family`.
What is known of any module is up to `adapting`.
"""
