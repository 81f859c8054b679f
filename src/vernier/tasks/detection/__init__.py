"""Object detection: `task` joins the parts, `boxes` does the arithmetic of boxes, `loss` is SSD's loss,
`score` accumulates detections and `coco` computes COCO's figures.

May import `config`, `data`, `models`, `records` and `tasks.base`. Networks and default boxes are in `models.ssd`.
"""
