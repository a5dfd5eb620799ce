#!/usr/bin/env python3
"""Reads the image of a checkpoint, checks it, and says what is in it: python3 read_image.py IMAGE

It uses nothing but what docs/checkpoint.md says ("What an image holds", "The description"), and nothing but Python. What it
prints are lines of `image show`. An image is hostile input: what is no image, or does not match its lengths and checksums, ends
with a sentence and the status 1. The rules of `Meta::check` it does not know.
"""

import struct
import sys

PAGE = 4096
REGISTERS = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip rflags fs_base gs_base".split()
WORDS = REGISTERS + (
    "tag priority stop_count interrupt client_stage server_stage exception_delivered exception exception_address "
    "waiting waiting_for reserved"
).split()
STATES = [
    ("mutex", ["locked"]),
    ("cond", []),
    ("mapping", ["start", "size", "offset", "protection"]),
    ("region", ["start", "size", "protection"]),
    ("port", ["alias", "flags"]),
    ("portset", []),
    ("space", ["flags", "quota", "clock_offset", "max_priority"]),
    ("thread", WORDS),
    ("reference", []),
]
SEGMENTS = ["memory", "control"]


class Bad(Exception):
    """What is wrong with an image."""


def table():
    """What CRC-32C does to each byte."""
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


TABLE = list(table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def lz4(block, length):
    """The `length` bytes that a block of LZ4 stands for: each sequence is literals, and a match, but for the last one."""
    out, at = bytearray(), 0

    def size(number):
        """Fifteen, and what the bytes that follow add: there are more as long as one is 255."""
        nonlocal at
        more = 255 if number == 15 else 0
        while more == 255:
            more = block[at]
            at += 1
            number += more
        return number

    try:
        while True:
            token = block[at]
            at += 1
            literals = size(token >> 4)
            if literals > len(block) - at:
                raise Bad("a compressed run ends too early")
            out += block[at : at + literals]
            at += literals
            if at == len(block):
                break
            distance = block[at] | block[at + 1] << 8
            at += 2
            match = size(token & 15) + 4
            if not 0 < distance <= len(out) or len(out) + match > length:
                raise Bad("a compressed run cannot be decompressed")
            # It may overlap what it makes.
            for _ in range(match):
                out.append(out[-distance])
    except IndexError:
        raise Bad("a compressed run ends too early") from None
    if len(out) != length:
        raise Bad("a compressed run has another length than its pages")
    return bytes(out)


class Postcard:
    """Values of postcard, one after another."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, length):
        end = self.at + length
        if end > len(self.data):
            raise Bad("its description ends too early")
        found, self.at = self.data[self.at : end], end
        return found

    def number(self):
        """Seven bits a byte, the lowest first; the highest bit says that there is more."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise Bad("a number in its description has no end")

    def flag(self):
        return self.bytes(1)[0] != 0

    def text(self):
        return self.bytes(self.number()).decode("utf-8", "replace")

    def list(self, element):
        return [element() for _ in range(self.number())]

    def one_of(self, names):
        number = self.number()
        if number >= len(names):
            raise Bad("its description cannot be read")
        return names[number]


def place(p):
    return p.number(), p.one_of(SEGMENTS), p.number()


def process(p):
    return {
        "manager": p.text(),
        "member": p.number(),
        "shared": p.flag(),
        "name": p.text(),
        "part": p.bytes(p.number()),
    }


def target(p):
    kind = p.one_of("nothing object client server outside manager region session".split())
    if kind in ("object", "client", "server", "manager"):
        return kind, p.number()
    if kind == "outside":
        return kind, p.text()
    if kind == "region":
        return kind, p.number(), p.one_of(SEGMENTS)
    if kind == "session":
        return kind, p.text(), [p.number() for _ in range(7)], p.bytes(p.number())
    return (kind,)


def thing(p):
    where = place(p)
    kind, fields = p.one_of(STATES)
    state = {name: p.number() for name in fields}
    if kind == "thread":
        state["fpu"] = p.bytes(p.number())
    return where, kind, state, p.list(lambda: target(p))


def parent(p):
    if p.flag():
        return p.text(), [p.number() for _ in range(4)]
    return None


def named(p):
    """A file: number of the process, path, size, when it was written, and the checksum, if there is one."""
    return p.number(), p.text(), p.number(), p.number(), p.number() if p.flag() else None


def read(data):
    """Header, processes, objects, runs with their bytes, parent, what it leaves to that, and the files that it names."""
    if data[:8] != b"FERMATA\x17":
        raise Bad("the file is not an image of Fermata")
    if len(data) < 64:
        raise Bad("it ends within its header")
    version, meta_sum, total, length, basic, further, clock, machine, own = struct.unpack("<IIQQQQQII", data[8:64])
    if version != 9:
        raise Bad(f"it has version {version} of the format, and this reads 9")
    if crc32c(data[:60]) != own:
        raise Bad("its header does not match its checksum")
    if total != len(data) or length > total - 64 or machine != 62:
        raise Bad("its length or architecture is another one")
    description = data[64 : 64 + length]
    if crc32c(description) != meta_sum:
        raise Bad("its description does not match its checksum")
    p = Postcard(description)
    processes = p.list(lambda: process(p))
    objects = p.list(lambda: thing(p))
    runs = p.list(lambda: (place(p), p.number()))
    based = parent(p)
    same = p.list(lambda: (p.number(), p.number(), p.number(), p.number()))
    files = p.list(lambda: named(p))
    at = (64 + length + PAGE - 1) // PAGE * PAGE
    if any(data[64 + length : at]):
        raise Bad("there is something before its pages")
    table = total - 8 * len(runs)
    if p.at != length or table < at:
        raise Bad("its length is not that of its pages")
    pages, first = [], at
    for number, (where, count) in enumerate(runs):
        checksum, stored = struct.unpack_from("<II", data, table + 8 * number)
        if not 0 < stored <= count * PAGE or stored > table - at:
            raise Bad("its length is not that of its pages")
        bytes_of_run = data[at : at + stored]
        at += stored
        if crc32c(bytes_of_run) != checksum:
            raise Bad(f"the pages at {where[2]:#x} of process {where[0]} do not match their checksum")
        if stored < count * PAGE:
            bytes_of_run = lz4(bytes_of_run, count * PAGE)
        pages.append((where, bytes_of_run))
    if at != table:
        raise Bad("its length is not that of its pages")
    return (total, clock, basic, further), processes, objects, pages, based, same, files, table - first


def plain(text):
    """Nothing in it moves a cursor or ends a line."""
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


def show(header, processes, objects, pages, based, same, files, stored):
    total, clock, basic, further = header
    print(f"bytes:      {total:,}")
    own = sum(len(found) for _, found in pages)
    if stored < own:
        print(f"compressed: {own:,} bytes of pages are {stored:,} in it")
    print(f"taken:      {clock // 10**9:,}.{clock % 10**9:09} s after its machine began")
    print(f"needs:      a processor with the features {basic:#x} and {further:#x}")
    if based is None:
        print("based on:   nothing, it is whole")
    for number, one in enumerate(processes):
        here = sum(len(found) // PAGE for where, found in pages if where[0] == number)
        theirs = sum(count for process, _, count, _ in same if process == number)
        what = "  memory that they share" if one["shared"] else one["manager"] if one["member"] == 0 else "  and"
        end = "" if here == 1 else "s"
        left = f" here, {theirs:,} in what it is based on" if theirs else ""
        print(f"  {number:3} {plain(what)} {plain(one['name'])}: {here:,} page{end}{left}")
    if files:
        print("files that it names and does not have:")
    for number, path, size, _, checksum in files:
        end = "" if size == 1 else "s"
        known = "no checksum" if checksum is None else f"checksum {checksum:#010x}"
        print(f"  {number:3} {plain(path)}: {size:,} byte{end}, {known}")
    others = [kind for _, kind, _, _ in objects if kind != "thread"]
    order = [kind for kind, _ in STATES]
    counts = [f"{others.count(kind):,} {kind}" for kind in order if kind in others]
    print("objects:    " + ", ".join(counts))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], "rb") as file:
            show(*read(file.read()))
    except (Bad, OSError) as why:
        print(f"{sys.argv[1]}: {why}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
