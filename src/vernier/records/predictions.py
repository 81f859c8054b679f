"""What a model predicted: on single images (predictions.json), and in an evaluation (mistakes.json, examples.json).

Also what it was trained on: the first images as the network got them (train_images.json)."""

from vernier.frozen import frozen

from .codec import named, omitted

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@frozen
class ScoredClass:
    """A class with its score from 0 to 1; with a box where it is an object."""

    class_name: str = named("class")
    score: float
    box: Box | None = omitted()


@frozen
class ImagePrediction:
    """The predictions for one image, best first, with boxes in pixels; or why it could not be read."""

    image: str
    error: str | None = None
    predictions: tuple[ScoredClass, ...] = named("found", ())
    picture: str | None = None


@frozen
class Predictions:
    """predictions.json. `prepared` and `notes` say how images were prepared and where class names are from."""

    model: str
    classes: tuple[str, ...]
    prepared: str = ""
    notes: tuple[str, ...] = ()
    images: tuple[ImagePrediction, ...]


@frozen
class Mistake:
    """A misclassified image. `truth` and `taken_for` are class numbers; `jpeg` is a thumbnail in base64."""

    sample: int = 0
    image: str
    truth: int
    taken_for: int
    score: float
    truth_score: float
    jpeg: str | None = None


@frozen
class Mistakes:
    """mistakes.json: samples and correct answers per class, the most confused pairs, the most confident mistakes.

    `confused` has the true class, the predicted one, and how often.
    """

    classes: tuple[str, ...]
    samples: tuple[int, ...]
    correct: tuple[int, ...]
    confused: tuple[tuple[int, int, int], ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.classes) == len(self.samples) == len(self.correct):
            raise ValueError("classes, samples and correct differ in length")


@frozen
class TrueBox:
    """An annotated object."""

    box: Box
    class_name: str = named("class")


@frozen
class DetectionExample:
    """One entry of examples.json: an image with its annotated and its detected objects; boxes as shares of its size."""

    image: str
    width: int
    height: int
    jpeg: str | None = None
    truth: tuple[TrueBox, ...] = ()
    objects: tuple[ScoredClass, ...] = named("found", ())


@frozen
class TrainImage:
    """A training image as the network got it: a thumbnail in base64, and its class; empty for a detector's."""

    jpeg: str
    class_name: str = named("class", "")


@frozen
class TrainImages:
    """train_images.json: the first training images, cropped, flipped and coloured as they were; not mixed with others.

    `width` and `height` are those of the network's input; thumbnails are no larger.
    """

    width: int
    height: int
    images: tuple[TrainImage, ...] = ()
