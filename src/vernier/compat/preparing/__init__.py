"""`vernier data`: from what publishers give to what is trained on, and checks of both. Plugs in as a set of commands.

`commands` is what plugs in, with `requests`, `api` and `cli`. `fetch` downloads the sets of sets.toml, `imagenet` reads
the publishers' archives in place, `prepare` writes folders and hands over to `packing` for shards and raw files;
`verify` checks a set, `inspect` describes and draws one. Reading what is written here is up to `vernier.data.sources`.
"""
