"""One request aiokafka does not have: metadata of a topic with its id, which is new when the topic is made anew.

The one rule: it never makes a topic. (Metadata version 10, Kafka 2.8; older brokers give the same without the id.)
"""

# mypy: disallow-subclassing-any=False
# aiokafka ships no types, and its requests are made by subclassing.

from io import BytesIO
from typing import Final

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

NO_ID: Final = bytes(16)


class Uuid(AbstractType[bytes]):
    """16 bytes as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        value = data.read(16)
        if len(value) != 16:
            raise ValueError("buffer underrun decoding a UUID")
        return value


class TopicResponse(Response):
    """Answer to TopicRequestStruct."""

    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class TopicRequestStruct(RequestStruct):
    """Metadata version 10 for topics by name."""

    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = TopicResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicRequest(Request[MetadataRequest_v5 | TopicRequestStruct]):
    """Metadata of one topic, in the newest version the broker and this module know."""

    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(
        self, request_struct_class: type[MetadataRequest_v5 | TopicRequestStruct]
    ) -> MetadataRequest_v5 | TopicRequestStruct:
        if request_struct_class is TopicRequestStruct:
            return TopicRequestStruct([(NO_ID, self._topic, {})], False, False, False, {})
        return MetadataRequest_v5([self._topic], False)
