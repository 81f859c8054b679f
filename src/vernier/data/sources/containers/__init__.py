"""Files that hold many images: tar shards (local and remote), the original tars of ImageNet, TFRecord and `.raw`.

One module per format; `tables` stores where each image is. May import decoding and `sources.base`; `sources` above
decides which format a folder has, and `data.preparing` writes them.
"""
