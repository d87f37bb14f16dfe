"""Builds the real services that the tests start, once per machine, into a cache outside the checkout.

The one rule: a folder in the cache is either whole or not there. It is named by the hash of the pinned inputs
beside this file, built next to its place and moved there in one step, under a lock, so a second run (or a second
checkout) finds it and does nothing.

    python tests/services/prepare.py [kafka|kube|otelcol ...] [--check] [--json]

Exit codes: 0 everything asked for is ready, 2 wrong usage, 3 something is missing or could not be built.
Only the standard library is used: it runs before any environment is made.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

READY, CANNOT = 0, 3

Say = Callable[[str], None]

PROGRAMS: Mapping[str, str] = {
    "java": "a JDK of Java 17 or newer, for instance Debian's openjdk-17-jdk-headless",
    "mvn": "Apache Maven 3.6 or newer, for instance Debian's maven",
    "go": "Go 1.24 or newer (it fetches the exact release that a module asks for)",
    "openssl": "the openssl command, for instance Debian's openssl",
}


class CannotPrepareError(Exception):
    """This service cannot be made ready here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one service is made from the files in the folder of its name."""

    name: str
    what: str
    inputs: tuple[str, ...]
    """Files that decide the result; their hash names the cache folder."""
    programs: tuple[str, ...]
    """What must be on the PATH to build it and to run it (keys of PROGRAMS)."""
    outputs: tuple[str, ...]
    """What a whole folder holds at least."""
    usual: str
    """How long a first build takes as a rule, on two cores."""
    build: Callable[[Path, Path, Say], None]
    """(folder of the inputs, empty folder to fill, say)."""


def _kafka(source: Path, target: Path, say: Say) -> None:
    """The jars that pom.xml names, checked one by one against lib.sha256."""
    shutil.copy(source / "pom.xml", target)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"]
    _run(command, target, {}, say)
    expected = {
        name: digest for digest, name in (line.split() for line in (source / "lib.sha256").read_text().splitlines())
    }
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in (target / "lib").iterdir()}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise CannotPrepareError(f"these jars are not the ones of kafka/lib.sha256: {', '.join(wrong)}")


_COMPONENT = "k8s.io/component-base/version"


def _kube(source: Path, target: Path, say: Say) -> None:
    """kube-apiserver, kubectl and etcd from one module; the version is stamped in, as clients read it."""
    flags = [
        "-s -w",
        f"-X {_COMPONENT}.gitVersion=v1.34.3",
        f"-X {_COMPONENT}.gitMajor=1",
        f"-X {_COMPONENT}.gitMinor=34",
    ]
    packages = ["k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl", "./etcd"]
    _go_build(source, target, packages, say, ldflags=" ".join(flags))


def _otelcol(source: Path, target: Path, say: Say) -> None:
    """The OpenTelemetry Collector with an OTLP receiver and the debug exporter."""
    _go_build(source, target, ["."], say)


def _go_build(source: Path, target: Path, packages: Sequence[str], say: Say, *, ldflags: str = "-s -w") -> None:
    # Built where go.mod lies: read only, so a go.sum that lacks something is an error and not a silent change.
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={ldflags}"]
    _run([*command, "-o", f"{target}/", *packages], source, {"CGO_ENABLED": "0", "GOWORK": "off"}, say)


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="kafka",
            what="Apache Kafka 4.1.2",
            inputs=("pom.xml", "lib.sha256"),
            programs=("java", "mvn", "openssl"),
            outputs=("lib",),
            usual="about 20 seconds",
            build=_kafka,
        ),
        Recipe(
            name="kube",
            what="kube-apiserver and kubectl v1.34.3, etcd v3.6.4",
            inputs=("go.mod", "go.sum", "tools.go", "etcd/main.go"),
            programs=("go", "openssl"),
            outputs=("kube-apiserver", "kubectl", "etcd"),
            usual="about 8 minutes",
            build=_kube,
        ),
        Recipe(
            name="otelcol",
            what="OpenTelemetry Collector 0.165.0",
            inputs=("go.mod", "go.sum", "main.go"),
            programs=("go",),
            outputs=("otelcol",),
            usual="about 3 minutes",
            build=_otelcol,
        ),
    )
}


def cache_root() -> Path:
    """The folder of all built services: `$XDG_CACHE_HOME` (or ~/.cache) / ascend-fault-agent."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ascend-fault-agent"


def folder_of(name: str) -> Path:
    """Where the service lies, or would lie, for the pinned inputs of this checkout."""
    digest = hashlib.sha256()
    for relative in RECIPES[name].inputs:
        content = (HERE / name / relative).read_bytes()
        digest.update(f"{relative}\0{len(content)}\0".encode())
        digest.update(content)
    return cache_root() / f"{name}-{digest.hexdigest()[:20]}"


def built(name: str) -> Path | None:
    """The folder of the built service, or None."""
    folder = folder_of(name)
    return folder if all((folder / output).exists() for output in RECIPES[name].outputs) else None


def missing_programs(name: str) -> tuple[str, ...]:
    """What this service needs and is not on the PATH, each as `program: what to install`."""
    return tuple(f"{program}: install {PROGRAMS[program]}" for program in RECIPES[name].programs if not _has(program))


def why_missing(name: str) -> str:
    """Empty when the service can be started here; else one line that says what is missing."""
    if programs := missing_programs(name):
        return "; ".join(programs)
    return "" if built(name) else f"not built yet ({RECIPES[name].what}; {RECIPES[name].usual})"


def prepare(name: str, say: Say) -> Path:
    """Make the service ready and return its folder. Raises CannotPrepareError."""
    recipe = RECIPES[name]
    if programs := missing_programs(name):
        raise CannotPrepareError("; ".join(programs))
    folder = folder_of(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if built(name):
        say(f"{recipe.what}: ready in {folder}")
        return folder
    with _locked(folder.with_suffix(".lock"), lambda: say(f"{recipe.what}: another run is building it; waiting ...")):
        if built(name):
            say(f"{recipe.what}: ready in {folder}, built by another run")
            return folder
        for left_over in folder.parent.glob(f"{folder.name}.tmp-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        say(f"{recipe.what}: building; a first build takes {recipe.usual} on two cores ...")
        began = time.monotonic()
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
        try:
            partial.chmod(0o755)
            recipe.build(HERE / name, partial, say)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        say(f"{recipe.what}: ready in {folder} after {time.monotonic() - began:.0f} s")
    return folder


def _has(program: str) -> bool:
    return shutil.which(program) is not None


@contextlib.contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """One builder at a time. The kernel frees the lock when its holder dies, so it is never stale."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], folder: Path, extra: Mapping[str, str], say: Say) -> None:
    """Run a build command, with a sign of life each half minute. Raises CannotPrepareError with its last lines."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **extra}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=30)
                    break
                except subprocess.TimeoutExpired:
                    say(f"  {command[0]} is still at work after {time.monotonic() - began:.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if code != 0:
            output.seek(0)
            tail = output.read().decode(errors="replace").splitlines()[-30:]
            raise CannotPrepareError("\n  ".join([f"`{' '.join(command[:3])} ...` ended with {code}:", *tail]))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build the real services that the tests use, once per machine.")
    parser.add_argument("service", nargs="*", help=f"of {', '.join(RECIPES)}; default: all")
    parser.add_argument("--check", action="store_true", help="only say what is ready; build nothing")
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object on stdout")
    options = parser.parse_args(arguments)
    names: list[str] = options.service or list(RECIPES)
    if unknown := sorted(set(names) - RECIPES.keys()):
        parser.error(f"no such service: {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def say(line: str) -> None:
        stream = sys.stderr if options.json else sys.stdout
        stream.write(line + "\n")
        stream.flush()

    outcome: dict[str, dict[str, object]] = {}
    for name in names:
        why = ""
        if options.check:
            why = why_missing(name)
            say(f"{RECIPES[name].what}: {why or f'ready in {folder_of(name)}'}")
        else:
            try:
                prepare(name, say)
            except CannotPrepareError as error:
                why = str(error)
                say(f"{RECIPES[name].what}: cannot be made ready: {why}")
        outcome[name] = {"ready": not why, "folder": str(folder_of(name)), "why": why}
    if options.json:
        sys.stdout.write(json.dumps(outcome, indent=2) + "\n")
    return CANNOT if any(not entry["ready"] for entry in outcome.values()) else READY


if __name__ == "__main__":
    sys.exit(main())
