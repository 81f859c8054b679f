"""Every random or fixed change of pixels between decoding and the network, all configured under `augment.*`.

Per image, on uint8 in the loader's threads: `crop_flip`, `policies` (RandAugment, TrivialAugment, erasing) and
`boxes` (the detector's). Per batch, on the device: `normalize` and `mixing` (MixUp, CutMix). May import `config`,
`data.decoding`, `randomness` and `torch_private`. Every random choice is a function of (seed, epoch or step, sample).
"""
