"""The options of the commands that measure: one frozen dataclass per command, with `vernier.requests.declaring`.

Flags, help, Python signatures, JSON and reference pages follow from them, as for the commands of the core.
"""
