"""Images with boxes in annotation files: COCO, Pascal VOC and YOLO, with or without splits.

One module per format reads its files into `annotated.Annotations`; `annotated` makes a source of them; `layouts`
recognises which format a folder has. May import `data.decoding` and `sources`' base, folder and containers;
`sources.opening` calls `layouts`.
"""
