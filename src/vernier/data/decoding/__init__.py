"""From encoded bytes to pixels, whole or only the part that a crop needs.

`decode` has the functions that give pixels; `base` is the contract of decoders that plug in; `jpeg_slicing` cuts JPEG
streams without decoding them, at restart markers that `compat.preparing` adds. May import nothing else of `data`;
`data.sources` finds the bytes, `data.augment` changes the pixels.
"""
