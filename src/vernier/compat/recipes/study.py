"""The ResNet-50 run of the GPU-variability study (SC22): a workload to measure, not a network to train."""

from . import read_recipes

RECIPES = read_recipes(__file__)
