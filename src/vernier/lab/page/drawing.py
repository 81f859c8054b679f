"""Charts and tables of the laboratory's sections, as `designs.toml` describes them."""

from pathlib import Path

from vernier.report.page.designs import read_designs

DESIGNS = read_designs(Path(__file__).parent)
TABLES, draw = DESIGNS.tables, DESIGNS.draw
