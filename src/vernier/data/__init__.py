"""From data sets to batches of uint8 images and their targets.

`sources` reads samples by index, `decoding` turns their bytes into pixels, `augment` changes the pixels and `loading`
makes batches; `shapes` draws the built-in set, `overview` takes a quick look at any, `downloads` fetches files and
weights, and `unfinished` marks a folder while it is written. May import config, store, records and the foundations.
What a batch is for is up to `tasks`, writing and checking data sets to `vernier.compat.preparing`.
"""
