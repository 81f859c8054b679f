"""Habana's Model-References: ResNet-50 and ResNeXt-101 in PyTorch, ResNeXt-101 in TensorFlow."""

from . import read_recipes

RECIPES = read_recipes(__file__)
