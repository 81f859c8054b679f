"""Files that hold many images: tar shards and `.raw`.

One module per format; `tables` stores where each image is. May import decoding and `sources.base`; `sources` above
decides which format a folder has, and `compat.preparing` writes them.
"""
