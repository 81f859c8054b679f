"""From encoded bytes to pixels, whole or only the part that a crop needs.

`decode` has the functions that give pixels; `base` is the contract of decoders that plug in; `jpeg_slicing` cuts JPEG
streams without decoding them; `restarts` adds the restart markers at which they are cut, through
plug-ins. May import nothing else of `data`; `data.sources` finds the bytes, `data.augment` changes the pixels.
"""
