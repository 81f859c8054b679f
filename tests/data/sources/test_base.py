"""What all sources share: fingerprints, names in one byte string, and boxes."""

from vernier.data.sources.base import Boxes, Names, fingerprint_of


def test_names_survive_being_joined() -> None:
    names = Names.of(["a/1.jpg", "", "b/\udcff.png"])
    assert (len(names), [names[i] for i in range(3)]) == (3, ["a/1.jpg", "", "b/\udcff.png"])


def test_a_fingerprint_depends_on_where_each_part_ends() -> None:
    assert fingerprint_of(b"ab", b"c") == fingerprint_of(b"ab", b"c")
    assert len({fingerprint_of(b"ab", b"c"), fingerprint_of(b"a", b"bc"), fingerprint_of(b"abc")}) == 3


def test_an_image_without_objects_has_empty_boxes() -> None:
    boxes = Boxes.empty()
    assert (boxes.ltrb.shape, len(boxes.classes), len(boxes.crowd), len(boxes.areas)) == ((0, 4), 0, 0, 0)
