"""Settings for fine-tuning on a person's own photographs, chosen from what lies in a folder and from the machine.

`survey` looks at the folder: classes or boxes, how many images of which size. `picking` chooses network, image size,
batch, schedule and augmentation from that, each with its reason. Nothing here trains or measures: `engine` does, and
`lab.api.finetuning` carries it out.
"""
