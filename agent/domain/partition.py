"""Which partition the standard partitioner gives a key, so that a node finds its records by arithmetic.

The one rule: the same number as the Java client's `BuiltInPartitioner.partitionForKey` (murmur2 over the key's bytes,
sign bit cleared, modulo the count). aiokafka and librdkafka's `murmur2_random` give it too; librdkafka's own default
(`consistent_random`, CRC32) does not: producers on it must be told to use murmur2.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` with Kafka's seed, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    value = _SEED ^ length
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word ^= word >> 24
        value = (value * _MIX & _MASK) ^ (word * _MIX & _MASK)
    if whole < length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _MIX & _MASK
    value ^= value >> 13
    value = value * _MIX & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition of `key` in a topic of `count` partitions (0 to count - 1). Raises ValueError for no partitions."""
    if count < 1:
        raise ValueError(f"a topic has at least one partition, not {count}")
    return (murmur2(key) & 0x7FFFFFFF) % count
