"""NVIDIA's Deep Learning Examples for PyTorch: ResNet-50 v1.5, ResNeXt-101 32x4d, SE-ResNeXt-101 32x4d."""

from . import read_recipes

RECIPES = read_recipes(__file__)
