"""How commands are called: names people type, help, and what is said where a command line is wrong.

`aliases` has other names of flags and values, `refusals` the words of a wrong command line, `help_texts` the lists of
commands and their examples, `tyro_private` every private part of tyro. What a flag does is its command's business.
"""
