"""TFRecord files of ImageNet and COCO, as TensorFlow's preparation scripts write them, without TensorFlow.

`reading` has the data sets, `writing` what `data prepare` writes, and `layout` plugs both into the core, as
`vernier.data_layouts`. The wire format of protobuf is in `compat.protobuf`.
"""
