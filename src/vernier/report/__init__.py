"""Reports about runs: live output (`live`), the page (`page`), and the table of runs (`runs`).

Also files about models: predictions with their pictures (`predictions`) and the card of an exported model
(`model_card`). Comparisons, studies and logs of other tools are in `vernier.lab`. Imports
`records`, `store`, `measure`, `config`, `models` and image decoding; never the engine. Commands are in `cli`.
"""
