"""The requests: one frozen dataclass per command, the only declaration of its options.

`declaring` has the machinery, `values` the types of options, `wording` names them in messages, `common` what several
commands share; the other modules declare the commands by subject. May import `config`, `errors`, `references`,
`quantities` and `addresses` and nothing else of Vernier, so that help and completion take milliseconds. What carries a
request out is in `vernier.api`; `vernier.cli` and `vernier.api` build requests from what a person typed or called.
"""
