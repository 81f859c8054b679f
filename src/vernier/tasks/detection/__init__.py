"""Object detection: `task` joins the parts and accumulates detections, `boxes` does the arithmetic of boxes and
SSD's loss, and `coco` computes COCO's figures.

May import `config`, `data`, `models`, `records` and `tasks.base`. Networks and default boxes are in `models.ssd`.
"""
