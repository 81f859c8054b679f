"""The generated parts of the documentation, and tests that they are up to date.

`reference` makes the pages of all commands and all settings from the source, `outputs` runs the commands whose output a
page shows. `python -m tests.documentation` (`make pages`) writes both. What holds for every page is in
`tests/test_docs.py`.
"""
