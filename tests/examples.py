"""Records that several tests need."""

from vernier.records.what_ran import WhatRan

RAN = WhatRan(
    kind="train",
    recipe="nvidia-resnet50-90e",
    network="resnet50",
    parameters=25_557_032,
    gmac=4.089,
    image_px=224,
    classes=1000,
    batch_per_device=32,
    devices=2,
    data="synthetic",
    feeding="random pixels from a pool in memory",
    device="cpu (AMD EPYC)",
    threads=4,
    torch="2.13.0",
    vernier="0.3.0 (abc1234)",
    date="2026-11-16",
)
