"""From a data set on disk to batches of uint8 images: which samples, read by whom, prefetched how.

Owns the order of samples (`order`), the `readers` that fill a batch (those with other decoders plug in), the
prefetching `loader`, the count of `bad_images` and the `targets` of a batch. May import `data.sources`,
`data.decoding`, `data.augment` and `devices`. Knows no task and no model: uploading and normalizing belong to `engine`.
"""
