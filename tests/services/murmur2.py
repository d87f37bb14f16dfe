"""Writes tests/data/murmur2_vectors.json: where the Java client puts the records of some node names.

The one rule: every number in that file comes from the Java client's own classes, none from this project.

    PYTHONPATH=tests python -m services.murmur2

Needs the prepared Kafka (`make services`) and a JDK, not only a runtime: `java` compiles Murmur2.java as it runs it.
"""

import json
import subprocess
import sys
from pathlib import Path

from services import prepare

TARGET = prepare.HERE.parent / "data" / "murmur2_vectors.json"
PARTITIONS = (1, 3, 6, 64)
ABOUT = (
    "Made by the Java client's own Utils.murmur2 and BuiltInPartitioner.partitionForKey (kafka-clients 4.1.2) with "
    "`PYTHONPATH=tests python -m services.murmur2`. hash: signed 32-bit number. partition: by count of partitions."
)


def node_names() -> list[str]:
    """Names of each length from 1 to 12 (murmur2 eats four bytes at a time), and such as clusters have, up to 251."""
    names = ["abcdefghijkl"[:length] for length in range(1, 13)]
    names += [f"n{number}" for number in range(1, 11)]
    names += [f"node-{number:05d}" for number in (0, 1, 2, 9, 10, 99, 100, 4095, 9999, 10000)]
    names += [f"worker-{rack}-{slot}" for rack in range(1, 5) for slot in (0, 7, 15)]
    names += ["10.0.0.1", "10.0.0.2", "10.12.34.56", "255.255.255.254"]
    names += [f"ascend-sp{pod}-{node:02d}.cluster.example.com" for pod in (0, 1, 17) for node in (0, 1, 31)]
    names += ["localhost", "master01", "UPPER-Case-Node", "x.y.z", "x" * 63, ".".join(["y" * 62] * 4)]
    return names


def document(jars: Path) -> str:
    """The file's text: what the Java client of these jars says of each name. Raises CalledProcessError.

    One vector a line, so that a change is one line in a diff.
    """
    source = prepare.HERE / "kafka" / "Murmur2.java"
    command = ["java", "-cp", f"{jars}/*", str(source), *map(str, PARTITIONS)]
    keys = "".join(f"{name}\n" for name in node_names()).encode()
    answer = subprocess.run(command, input=keys, stdout=subprocess.PIPE, check=True, timeout=120).stdout.decode()
    rows = (line.split("\t") for line in answer.splitlines())
    vectors = [
        {"key": key, "hash": int(value), "partition": dict(zip(map(str, PARTITIONS), map(int, of), strict=True))}
        for key, value, *of in rows
    ]
    lines = ",\n".join(json.dumps(vector) for vector in vectors)
    return f'{{\n"about": {json.dumps(ABOUT)},\n"vectors": [\n{lines}\n]\n}}\n'


def main() -> int:
    """Write the file; returns the exit code."""
    folder = prepare.built("kafka")
    if folder is None:
        sys.stderr.write(f"kafka: {prepare.why_missing('kafka')}; make services\n")
        return prepare.CANNOT
    TARGET.write_text(document(folder / "lib"))
    return prepare.READY


if __name__ == "__main__":
    sys.exit(main())
