"""Recognizes the model of the catalogue that given weights belong to. Loading them is up to the engine."""

from vernier.data.downloads import is_pretrained, pretrained
from vernier.engine.inference.preparation import published_as
from vernier.engine.starting_weights import weights_file
from vernier.errors import ConfigError
from vernier.models import names, weights
from vernier.models.catalogue import is_outside


def recognise_network(path: str) -> str:
    """The model of the catalogue that weights belong to, for a person who did not name it. Raises ConfigError.

    By the publisher's file name, the file's metadata, or the shapes of its layers. v1 and v1.5 have the same shapes:
    v1.5 is assumed if the metadata does not name one.
    """
    if is_pretrained(path):
        return pretrained(path).network
    if is_outside(path):  # timm:resnet18.a1_in1k names a model and its weights
        return path
    file = weights_file(path)
    if (published := published_as(file)) is not None:
        return published.network
    content = weights.read_file(file)
    declared = content.metadata.get("model")
    if declared in names():
        return declared
    name = weights.identify(content.state)
    if name is None:
        raise ConfigError(
            f"The weights in {path} belong to no model that Vernier has. `vernier models` lists those; ResNets, "
            "ResNeXts and ConvNeXts of torchvision, timm, NVIDIA and Habana are read."
        )
    return f"{name}-v1" if f"{name}-v1" in names() and weights.declared_variant(content.metadata) == "v1" else name
