"""The compiled JPEG code under libFuzzer, AddressSanitizer and UBSan: `python -m tests.fuzz.native`.

`jpeg.cpp` is the target: it compares with libjpeg-turbo in the same process. `corpus` has inputs that together reach
all code that a longer run has reached, without the larger ones.
"""
