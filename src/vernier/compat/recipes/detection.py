"""SSD detectors of Habana, of Google's and NVIDIA's submissions to MLPerf, and NVIDIA's SSD300 on ResNet-50."""

from . import read_recipes

RECIPES = read_recipes(__file__)
