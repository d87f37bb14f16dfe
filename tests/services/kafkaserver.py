"""A Kafka broker of the tests' own: one node that is broker and controller, plain or secured; or three that are one.

The one rule: ready means that it answers a metadata request with itself in it, not that its port is open.

A secured broker has three doors at once: PLAINTEXT for the set-up (anonymous and allowed everything), SASL_SSL
(SCRAM-SHA-512 and PLAIN, the same users in both) and SSL with a client certificate (mutual TLS). ACLs are in force
on all of them: a user may do only what `allow` gave.
"""

import base64
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services import certificates
from services.processes import Process, ServiceFailedError, free_ports

START_S = 60.0
TOOL_S = 60.0

TOPICS = "org.apache.kafka.tools.TopicCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Mechanism = Literal["SCRAM-SHA-512", "PLAIN"]
_JAAS: Mapping[Mechanism, str] = {
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
}


@dataclass(frozen=True, slots=True)
class KafkaEndpoint:
    """How a client reaches a broker."""

    bootstrap: str
    """`host:port[,host:port]`."""
    protocol: Literal["PLAINTEXT", "SASL_SSL", "SSL"] = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str = ""
    password: str = ""
    ca: Path | None = None
    """What the client trusts, PEM."""
    certificate: Path | None = None
    """The client's certificate, PEM; only for mutual TLS."""
    key: Path | None = None
    """Its key, PKCS#8 in PEM, without password."""

    def properties(self) -> dict[str, str]:
        """The same as properties of the Java clients."""
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.mechanism is not None:
            login = f'{_JAAS[self.mechanism]} required username="{self.username}" password="{self.password}";'
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        if self.ca is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.certificate is not None and self.key is not None:
            bundle = self.certificate.with_suffix(".pem")
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(bundle)}
        return found


@dataclass(frozen=True, slots=True)
class Output:
    """What a command-line tool left behind."""

    code: int
    stdout: bytes
    stderr: str


class Kafka:
    """One broker on 127.0.0.1. A context manager: started on entry; stopped, with its folder removed, on exit.

    `users` (name → password) exist only on a secured broker. `properties` win over the broker's settings made here.
    One of several (`KafkaTrio`) is told its number and the controller ports of all, its own among them.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        *,
        secured: bool = False,
        users: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        number: int = 1,
        controllers: Sequence[int] = (),
        identity: str = "",
    ) -> None:
        self._jars = jars
        self._folder = folder
        self._secured = secured
        self._users = dict(users or {})
        self._properties = dict(properties or {})
        self.port, own, self._sasl, self._tls = free_ports(4)
        self._number = number
        self._controllers = tuple(controllers) or (own,)
        self._identity = identity or new_identity()
        self._authority: certificates.Authority | None = None
        self._calls = 0
        self.process = Process(
            "kafka",
            [*self._java("-Xmx512m", "log4j2.properties"), "kafka.Kafka", str(folder / "server.properties")],
            folder / "kafka.log",
        )

    def __enter__(self) -> "Kafka":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def endpoint(self) -> KafkaEndpoint:
        """The plain door."""
        return KafkaEndpoint(f"127.0.0.1:{self.port}")

    def sasl(self, user: str, mechanism: Mechanism = "SCRAM-SHA-512", *, password: str | None = None) -> KafkaEndpoint:
        """The SASL_SSL door for one of the users, with the right password or the one given."""
        return KafkaEndpoint(
            bootstrap=f"127.0.0.1:{self._sasl}",
            protocol="SASL_SSL",
            mechanism=mechanism,
            username=user,
            password=self._users[user] if password is None else password,
            ca=self._trusted().certificate,
        )

    def mutual_tls(self, user: str) -> KafkaEndpoint:
        """The SSL door with a new client certificate; the broker sees it as `User:<user>`, known or not."""
        made = self._trusted().client(user)
        return KafkaEndpoint(
            bootstrap=f"127.0.0.1:{self._tls}",
            protocol="SSL",
            ca=self._trusted().certificate,
            certificate=made.certificate,
            key=made.key,
        )

    def foreign_ca(self) -> Path:
        """An authority that this broker's certificate is not from."""
        return certificates.authority(self._folder / "foreign", "foreign").certificate

    def start(self) -> None:
        """Start and wait until it answers; the first time the data folder is made. Raises ServiceFailedError."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start without waiting: one of several answers only when most of them run."""
        if not (self._folder / "data").exists():
            self._format()
        self.process.start()

    def wait(self) -> None:
        """Until it answers. Raises ServiceFailedError."""
        self.process.wait_ready(self._answers, seconds=START_S)

    def stop(self) -> None:
        """Stop in order; the data stay."""
        self.process.stop()

    def restart(self) -> None:
        """Stop in order and start again on the same data and ports."""
        self.stop()
        self.start()

    def tool(
        self, java_class: str, *arguments: str, stdin: bytes = b"", at: KafkaEndpoint | None = None, check: bool = True
    ) -> Output:
        """Run one of Kafka's own command-line classes against this broker, about 1.5 s each.

        Given as in its documentation, without `--bootstrap-server` and without the file of client settings.
        Raises ServiceFailedError when it ends with another code than 0 and `check` is set.
        """
        at = at or self.endpoint
        self._calls += 1
        settings = self._folder / f"client-{self._calls}.properties"
        _write(settings, at.properties())
        option = {PRODUCER: "--producer.config", CONSUMER: "--consumer.config"}.get(java_class, "--command-config")
        command = [*self._java("-Xmx128m", "log4j2-tools.properties", "-XX:TieredStopAtLevel=1"), java_class]
        command += ["--bootstrap-server", at.bootstrap, option, str(settings), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=TOOL_S, check=False)
        output = Output(done.returncode, done.stdout, done.stderr.decode(errors="replace"))
        if check and output.code != 0:
            said = output.stderr + output.stdout.decode(errors="replace")
            raise ServiceFailedError(f"{java_class} {' '.join(arguments)} ended with {output.code}: {said.strip()}")
        return output

    def create_topic(self, name: str, *, partitions: int = 1, **settings: str) -> None:
        """A topic with one replica; settings as `cleanup_policy="compact"`."""
        more = [part for key, value in settings.items() for part in ("--config", f"{key.replace('_', '.')}={value}")]
        self.tool(TOPICS, "--create", "--topic", name, "--partitions", str(partitions), *more)

    def produce(self, topic: str, *records: tuple[str, str], at: KafkaEndpoint | None = None) -> Output:
        """Write (key, value) records with the Java client, which chooses the partitions. Raises ServiceFailedError.

        Neither may hold a tab or a line end.
        """
        lines = "".join(f"{key}\t{value}\n" for key, value in records).encode()
        options = ["--topic", topic, "--sync", "--property", "parse.key=true", "--property", "key.separator=\t"]
        output = self.tool(PRODUCER, *options, stdin=lines, at=at)
        if "ERROR" in output.stderr:  # it ends with 0 even when a record was refused
            raise ServiceFailedError(f"not everything was written: {output.stderr.strip()}")
        return output

    def consume(self, topic: str, count: int, *, at: KafkaEndpoint | None = None) -> list[tuple[int, str, str]]:
        """The first `count` records as the Java client reads them: (partition, key, value), partition by partition.

        Raises ServiceFailedError when there are fewer.
        """
        prints = [part for what in ("partition", "key") for part in ("--property", f"print.{what}=true")]
        options = ["--topic", topic, "--from-beginning", "--timeout-ms", "20000", "--max-messages", str(count)]
        output = self.tool(CONSUMER, *options, *prints, at=at)
        found = [line.split("\t", 2) for line in output.stdout.decode().splitlines()]
        if len(found) != count:
            raise ServiceFailedError(f"{len(found)} of {count} records in {topic}: {output.stderr.strip()}")
        return [(int(partition.removeprefix("Partition:")), key, value) for partition, key, value in found]

    def allow(self, user: str, *operations: str, topic: str, remove: bool = False) -> None:
        """Give the user these operations (Read, Write, Describe, …) on a topic, or take them away."""
        action = ["--remove", "--force"] if remove else ["--add"]
        rights = [part for operation in operations for part in ("--operation", operation)]
        self.tool(ACLS, *action, "--allow-principal", f"User:{user}", *rights, "--topic", topic)

    def _java(self, memory: str, logging: str, *options: str) -> list[str]:
        config = Path(__file__).parent / "kafka" / logging
        return ["java", memory, *options, f"-Dlog4j2.configurationFile={config}", "-cp", f"{self._jars}/*"]

    def _trusted(self) -> certificates.Authority:
        if not self._secured:
            raise ValueError("this broker is plain; start it with secured=True")
        if self._authority is None:
            self._authority = certificates.authority(self._folder / "tls")
        return self._authority

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        _write(self._folder / "server.properties", self._settings())
        command = [*self._java("-Xmx256m", "log4j2-tools.properties"), "kafka.tools.StorageTool", "format"]
        command += ["-t", self._identity, "-c", str(self._folder / "server.properties")]
        for user, password in self._users.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        done = subprocess.run(command, capture_output=True, timeout=TOOL_S, check=False)
        if done.returncode != 0:
            raise ServiceFailedError(f"kafka could not format its folder: {(done.stdout + done.stderr).decode()}")

    def _settings(self) -> dict[str, str]:
        doors: list[tuple[str, int]] = [("PLAINTEXT", self.port)]
        if self._secured:
            doors += [("SASL_SSL", self._sasl), ("SSL", self._tls)]
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in doors]
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self._number),
            "controller.quorum.voters": ",".join(
                f"{number}@127.0.0.1:{port}" for number, port in enumerate(self._controllers, 1)
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{self._controllers[self._number - 1]}"]),
            "advertised.listeners": ",".join(addresses),
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{n}:{n}" for n, _ in doors)]),
            "inter.broker.listener.name": "PLAINTEXT",
            # A killed broker may come back only when its last session has run out (9 s by default).
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
        }
        if self._secured:
            settings |= self._security()
        return settings | self._properties

    def _security(self) -> dict[str, str]:
        server = self._trusted().server("kafka")
        plain = " ".join(f'user_{user}="{password}"' for user, password in self._users.items())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server.bundle),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted().certificate),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(_JAAS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_JAAS['PLAIN']} required {plain};",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_JAAS['SCRAM-SHA-512']} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def _answers(self) -> str:
        return metadata_missing(self.port, self._number)


class KafkaTrio:
    """Three brokers that are one Kafka: topics lie on all three, a write needs two. A context manager.

    One of them may be killed and started again; the folders of all are removed on exit.
    """

    def __init__(self, jars: Path, folder: Path) -> None:
        self._folder = folder
        controllers, identity = free_ports(3), new_identity()
        shared = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            # A follower that is gone is left out of the set in sync after this long (30 s by default).
            "replica.lag.time.max.ms": "5000",
        }
        self.brokers = tuple(
            Kafka(
                jars,
                folder / f"broker-{number}",
                properties=shared,
                number=number,
                controllers=controllers,
                identity=identity,
            )
            for number in (1, 2, 3)
        )

    def __enter__(self) -> "KafkaTrio":
        try:
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.process.kill()
            broker.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def endpoint(self) -> KafkaEndpoint:
        """The plain doors of all three."""
        return KafkaEndpoint(",".join(broker.endpoint.bootstrap for broker in self.brokers))


def new_identity() -> str:
    """A cluster id as Kafka's storage tool takes it."""
    identity = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    # The command would take a leading hyphen for an option.
    return "A" + identity[1:] if identity.startswith("-") else identity


def metadata_missing(port: int, number: int = 1, *, patience_s: float = 2) -> str:
    """Empty when the broker `number` at this plain port lists itself and a controller; else what is still missing.

    Metadata request version 1 (api key 3) with an empty list of topics: size, api key, version, correlation id,
    client id, count. The answer, after size and correlation id: brokers (id, host, port, rack), controller id, topics.
    """
    request = struct.pack(">hhih5si", 3, 1, 7, 5, b"probe", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])
    except OSError as error:
        return str(error)
    count, position = struct.unpack_from(">i", answer, 4)[0], 8
    brokers = set()
    for _ in range(count):
        brokers.add(struct.unpack_from(">i", answer, position)[0])
        position += 4
        position += 2 + struct.unpack_from(">h", answer, position)[0] + 4
        position += 2 + max(0, struct.unpack_from(">h", answer, position)[0])
    controller = struct.unpack_from(">i", answer, position)[0]
    return "" if number in brokers and controller in brokers else f"brokers {brokers}, controller {controller}"


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received


def _write(path: Path, properties: Mapping[str, str]) -> None:
    lines: Sequence[str] = [f"{key}={value}" for key, value in properties.items()]
    path.write_text("\n".join(lines) + "\n")
