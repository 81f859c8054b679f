"""Commands that inform and plan without training: recipes, models, doctor, plan, completion.

May import everything below `cli`; torch only inside the functions. Commands on models, reports, benchmarks and studies
are in the neighbouring folders.
"""
