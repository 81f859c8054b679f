"""Settings for fine-tuning on a person's own photographs, chosen from what lies in a folder and from the machine.

`survey` looks at the folder: classes or boxes, how many images of which size. `picking` chooses network, image size,
batch, schedule and augmentation from that, each with its reason. Nothing here trains or measures: `engine` does, and
`api.finetuning` carries it out.
"""

from .picking import Choice, MachineFacts, Plan, StartingWeights, default_weights, pick
from .survey import Survey, survey

__all__ = ["Choice", "MachineFacts", "Plan", "StartingWeights", "Survey", "default_weights", "pick", "survey"]
