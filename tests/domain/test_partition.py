"""Partitions by arithmetic: the numbers are those of the Java client itself, and of another client in use here."""

import json
from pathlib import Path

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.partition import murmur2, partition_of

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "murmur2_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["key"][:20] for vector in VECTORS])
def test_hash_and_partition_are_the_java_clients(vector: dict[str, object]) -> None:
    key = str(vector["key"]).encode()
    partitions = vector["partition"]
    assert isinstance(partitions, dict)
    assert murmur2(key) == int(str(vector["hash"])) & 0xFFFFFFFF
    assert {count: partition_of(key, int(count)) for count in partitions} == partitions


@given(st.binary(max_size=64), st.integers(1, 200))
def test_any_key_lands_where_aiokafka_puts_it(key: bytes, count: int) -> None:
    assert partition_of(key, count) == DefaultPartitioner()(key, list(range(count)), [])


def test_the_hash_of_nothing_is_the_java_clients_own_test_value() -> None:
    assert murmur2(b"") == 275646681


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_without_partitions_has_no_place_for_a_key(count: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of(b"n1", count)
