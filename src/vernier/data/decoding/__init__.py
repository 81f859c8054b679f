"""From encoded bytes to pixels, whole or only the part that a crop needs.

`decode` has every function that other packages call; `jpeg_slicing` cuts JPEG streams without decoding them. May import
nothing else of `data`; `data.sources` finds the bytes, `data.augment` changes the pixels.
"""
