"""From a data set on disk to batches of uint8 images: which samples, read by whom, prefetched how.

Owns the order of samples (`order`), the readers that fill a batch (`readers`, `box_readers`, and `backends` for other
people's decoders: `dali`, `gaudi_media`), the prefetching `loader`, the memory `cache`, the count of `bad_images` and
the `targets` of a batch. May import `data.sources`, `data.decoding` and `data.augment`. Knows no task, model or device
beyond `torch.device`: uploading and normalising belong to `devices` and `engine`.
"""
