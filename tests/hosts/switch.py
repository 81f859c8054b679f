"""A network switch in user space: one TAP interface per host, with delay, loss, bandwidth, closed ports and cuts.

    python switch.py TAP...

Prints a line once the interfaces exist. Then each line of standard input is a JSON object with new conditions (the
fields of `Conditions`); each is answered by a line. It ends with its input.

Kernels offer the same by `tc netem` and `nft`; not all have them, and one mechanism is the same everywhere. Packets
cross it unsegmented (up to 64 KiB, as between a network card and its driver), so that 1 Gbit/s needs little of a core;
with loss they are segmented first, so that packets of 1,500 bytes are lost and not 64 KiB at once.
"""

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass, field

_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
_TAP, _NO_PACKET_INFORMATION, _VNET_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUM, _TCP4, _TCP6 = 0x01, 0x02, 0x04
_HEADER_BYTES = 10
_SEGMENT_OVERHEAD_BYTES = 14 + 20 + 32
"""Ethernet, IP and TCP headers of every further segment."""
_LONGEST_QUEUE_S = 0.3
_AHEAD_S = 0.01
"""A cable is given its next packet so long before it is free: waiting is precise to a millisecond only."""
_LARGEST_READ = 70_000
_IPV4, _IPV6, _PROTOCOL_TCP = 0x0800, 0x86DD, 6


@dataclass
class Conditions:
    """How the network is. Hosts are numbered from 1; delay is for one way, bandwidth per host and direction."""

    delay_ms: float = 0.0
    loss: float = 0.0
    mbit_s: float | None = None
    cut: list[int] = field(default_factory=list)
    """Hosts whose cable is cut: their own link stays up, as behind a switch that has lost power."""
    open_ports: list[int] | None = None
    """Where given, a firewall drops TCP packets that neither come from nor go to one of these ports."""


class _Link:
    """A host's cable: its interface, and when the last packet in each direction has left."""

    def __init__(self, name: str) -> None:
        self.descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        flags = _TAP | _NO_PACKET_INFORMATION | _VNET_HEADER
        fcntl.ioctl(self.descriptor, _TUNSETIFF, struct.pack("16sH14x", name.encode(), flags))
        fcntl.ioctl(self.descriptor, _TUNSETVNETHDRSZ, struct.pack("i", _HEADER_BYTES))
        self.set_offload(unsegmented=True)
        self.free_from_s = self.free_to_s = 0.0

    def set_offload(self, *, unsegmented: bool) -> None:
        fcntl.ioctl(self.descriptor, _TUNSETOFFLOAD, _CHECKSUM | _TCP4 | _TCP6 if unsegmented else 0)


class Switch:
    """Packets wait in a heap until they have crossed their cables."""

    def __init__(self, names: list[str]) -> None:
        self._links = {number: _Link(name) for number, name in enumerate(names, start=1)}
        self._conditions = Conditions()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._chance = random.Random(0)

    def serve(self) -> None:
        poll = select.poll()
        by_descriptor = {link.descriptor: number for number, link in self._links.items()}
        for descriptor in (0, *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._next_event_ms(poll, by_descriptor)):
                if descriptor:
                    try:
                        self._receive(by_descriptor[descriptor])
                    except OSError:  # the host has ended, and its interface with it
                        poll.unregister(descriptor)
                        del by_descriptor[descriptor]
                elif not (line := sys.stdin.readline()):
                    return
                else:
                    self._change(Conditions(**json.loads(line)))
            self._send_due()

    def _next_event_ms(self, poll: select.poll, by_descriptor: dict[int, int]) -> float | None:
        """Milliseconds until a packet is due or a busy cable is free; None where nothing waits.

        What a busy cable is to carry next waits in its host, as with a network card: TCP sends no faster than that.
        """
        now, times_s = time.monotonic(), [self._waiting[0][0]] if self._waiting else []
        for descriptor, number in by_descriptor.items():
            free_s = self._links[number].free_from_s - _AHEAD_S
            poll.modify(descriptor, 0 if free_s > now else select.POLLIN)
            times_s += [free_s] if free_s > now else []
        return max(0.0, 1000 * (min(times_s) - now)) if times_s else None

    def _change(self, conditions: Conditions) -> None:
        self._conditions = conditions
        for link in self._links.values():
            link.set_offload(unsegmented=not conditions.loss)
        sys.stdout.write("changed\n")
        sys.stdout.flush()

    def _receive(self, source: int) -> None:
        conditions = self._conditions
        with contextlib.suppress(BlockingIOError):
            link = self._links[source]
            for _ in range(16):  # then the clock and other cables are looked at again
                if link.free_from_s - _AHEAD_S > time.monotonic():
                    return
                packet = os.read(link.descriptor, _LARGEST_READ)
                if source in conditions.cut or (conditions.open_ports is not None and self._is_closed(packet)):
                    continue
                if conditions.loss and self._chance.random() < conditions.loss:
                    continue
                for target in self._targets(packet, source):
                    self._queue(packet, source, target)

    def _targets(self, packet: bytes, source: int) -> list[int]:
        """Addresses of hosts end with their number; others are for everybody."""
        address = packet[_HEADER_BYTES : _HEADER_BYTES + 6]
        numbers = [n for n in self._links if n != source and n not in self._conditions.cut]
        return [n for n in numbers if address[0] & 1 or address[5] == n]

    def _is_closed(self, packet: bytes) -> bool:
        frame = packet[_HEADER_BYTES:]
        (kind,) = struct.unpack_from("!H", frame, 12)
        offset = {_IPV4: 14 + 4 * (frame[14] & 15), _IPV6: 14 + 40}.get(kind)
        protocol = frame[23] if kind == _IPV4 else frame[20] if kind == _IPV6 else None
        if offset is None or protocol != _PROTOCOL_TCP:
            return False
        return not set(struct.unpack_from("!HH", frame, offset)) & set(self._conditions.open_ports or ())

    def _queue(self, packet: bytes, source: int, target: int) -> None:
        """Through the cable of the one, then of the other; dropped when that has too much to carry."""
        at, conditions = time.monotonic(), self._conditions
        if conditions.mbit_s is not None:
            seconds = _bytes_on_the_wire(packet) * 8 / (conditions.mbit_s * 1e6)
            one, other = self._links[source], self._links[target]
            if other.free_to_s - at > _LONGEST_QUEUE_S:
                return
            one.free_from_s = max(at, one.free_from_s) + seconds
            other.free_to_s = at = max(one.free_from_s, other.free_to_s + seconds)
        self._count += 1
        heapq.heappush(self._waiting, (at + conditions.delay_ms / 1000, self._count, target, packet))

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._waiting)
            with contextlib.suppress(OSError):  # the host has ended, or its queue is full
                os.write(self._links[target].descriptor, packet)


def _bytes_on_the_wire(packet: bytes) -> int:
    """The packet's size once it is segmented: each segment has headers of its own."""
    (segment_bytes,) = struct.unpack_from("=H", packet, 4)
    size = len(packet) - _HEADER_BYTES
    return size + (size // segment_bytes * _SEGMENT_OVERHEAD_BYTES if segment_bytes else 0)


def main() -> None:
    switch = Switch(sys.argv[1:])
    with contextlib.suppress(OSError):  # on time also where all cores compute
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    switch.serve()


if __name__ == "__main__":
    main()
