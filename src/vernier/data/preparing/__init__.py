"""From what publishers give to what is trained on, and checks of both: the work behind `vernier data`.

`fetch` downloads, `imagenet` and `devkit` read the publishers' archives in place, `prepare` writes folders and hands
over to `shards` and `raw` (which share `packing`); `verify` checks a set, `inspect` describes and draws one. May
import `data.sources`, `data.decoding`, `data.augment` and `store`. Reading what is written here is up to
`data.sources`.
"""
