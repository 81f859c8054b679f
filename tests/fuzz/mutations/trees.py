"""Damage to JSON: values of other types, impossible numbers, keys removed, renamed or repeated, deep nesting."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *(2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(
        "",
        " ",
        "x",
        "0",
        "-1",
        "1e999",
        "nan",
        "\0",
        "\ud800",
        "\u2028",
        "é",
        "../../x",
        "/",
        "a" * 5000,
        "\n",
        "<script>",
    ),
    *([], {}, [None], [[]], [0], ["x"], {"": 0}, {"a": None}, [1e308, 1e308], [[1, 2], [3]]),
)
_DEEP = (20, 900, 3000, 100_000)
Slot = tuple[Any, Any]
"""A list or object, and the index or key of one of its values."""


def damage_json(random: Random, content: bytes) -> bytes | None:
    """None where `content` is no JSON any more."""
    try:
        holder = [json.loads(content)]
        for _ in range(random.choice((1, 1, 2, 3))):
            _damage_tree(random, holder)
        text = json.dumps(holder[0], separators=random.choice(((",", ":"), (", ", ": "))))
    except (ValueError, OverflowError, RecursionError):  # too many digits for a number, or too deep for a walk
        return None
    return _damage_encoded(random, text).encode("utf-8", errors="surrogatepass")


def damage_lines(random: Random, content: bytes) -> bytes | None:
    """The same for one line of a file of JSON lines, also after a prefix such as `DLLL `."""
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    prefix, brace, rest = lines[at].partition(b"{")
    damaged = damage_json(random, brace + rest)
    if damaged is None:
        return None
    lines[at] = prefix + damaged
    return b"\n".join(lines)


def _damage_encoded(random: Random, text: str) -> str:
    """What no tree can say: repeated keys, nesting without end, numbers of thousands of digits."""
    change = random.randrange(40)
    if change == 0:
        depth = random.choice(_DEEP)
        opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
        value = opening * depth + "0" + closing * depth
        return _replace_value(random, text, value)
    if change == 1:
        return _replace_value(random, text, "9" * random.choice((400, 5000)))
    if change == 2 and text.startswith("{"):
        return "{" + text[1:-1] + ("," if len(text) > 2 else "") + text[1:]
    return text


def _replace_value(random: Random, text: str, value: str) -> str:
    """The first value after a random colon replaced; the whole text where there is none."""
    at = text.find(":", random.randrange(len(text)))
    stop = min((i for i in (text.find(",", at), text.find("}", at)) if i >= 0), default=-1)
    return text[: at + 1] + value + text[stop:] if at >= 0 and stop >= 0 else value


def _slots(tree: Any) -> Iterator[Slot]:
    stack = [tree]
    while stack:
        group = stack.pop()
        for key, value in group.items() if isinstance(group, dict) else enumerate(group):
            yield group, key
            if isinstance(value, dict | list):
                stack.append(value)


def _damage_tree(random: Random, holder: list[Any]) -> None:
    slots = list(_slots(holder))
    group, key = random.choice(slots)
    value, change = group[key], random.randrange(14)
    if change < 5:
        group[key] = copy.deepcopy(random.choice(VALUES))
    elif change == 5:
        group[key] = _other_number(random, value)
    elif change == 6:
        group[key] = random.choice(([value], {"a": value}, str(value)[:1000], [value, value], [[value]]))
    elif change == 7:
        other, other_key = random.choice(slots)
        group[key] = copy.deepcopy(other[other_key])
    elif group is holder:
        return
    elif change in (8, 9):
        del group[key]
    elif isinstance(group, dict):
        name = random.choice((f"{key}x", "", "schema", "kind", str(random.choice(list(group)))))
        group[name] = copy.deepcopy(value) if change < 12 else group.pop(key)
    else:
        _damage_list(random, group, key)


def _other_number(random: Random, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return random.choice(VALUES)
    return random.choice(
        (-value, value + 1, value - 1, value * 1000, value * 10**18, value / 1e9, str(value), [value], 0)
    )


def _damage_list(random: Random, group: list[Any], at: int) -> None:
    change = random.randrange(4)
    if change == 0:
        group.reverse()
    elif change == 1:
        group[at:at] = [copy.deepcopy(group[at]) for _ in range(random.choice((1, 3)))]
    elif change == 2:
        del group[at:]
    else:
        group[at] = copy.deepcopy(random.choice(VALUES))
