"""Certificates for the services: an authority, certificates of a server and of clients, RSA pairs for tokens.

The one rule: made anew for each start with the openssl command, so no key lies in the repository and none expires.
Keys are PKCS#8 in PEM, which Kafka, Go and Python all read.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "30"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key; `bundle` is key, certificate and authority in one file, as Kafka wants it."""

    certificate: Path
    key: Path
    bundle: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates; `certificate` is what clients trust."""

    folder: Path
    certificate: Path
    key: Path

    def server(self, name: str) -> Certificate:
        """For a server on 127.0.0.1 and localhost."""
        return self._signed(name, "serverAuth", "subjectAltName=IP:127.0.0.1,DNS:localhost")

    def client(self, name: str, *, organization: str = "") -> Certificate:
        """For a client; `name` is the common name, `organization` what Kubernetes reads as its group."""
        return self._signed(name, "clientAuth", organization=organization)

    def _signed(self, name: str, usage: str, *extensions: str, organization: str = "") -> Certificate:
        ends = ("key", "csr", "crt", "pem", "ext")
        key, request, certificate, bundle, config = (self.folder / f"{name}.{end}" for end in ends)
        subject = f"/O={organization}/CN={name}" if organization else f"/CN={name}"
        _openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
        lines = ["basicConstraints=critical,CA:false", f"extendedKeyUsage={usage}", *extensions]
        lines += ["keyUsage=critical,digitalSignature,keyEncipherment"]
        lines += ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
        config.write_text("\n".join(lines) + "\n")
        authority: list[str | Path] = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial"]
        _openssl("x509", "-req", "-in", request, "-out", certificate, "-days", DAYS, "-extfile", config, *authority)
        bundle.write_text(key.read_text() + certificate.read_text() + self.certificate.read_text())
        return Certificate(certificate, key, bundle)


def authority(folder: Path, name: str = "authority") -> Authority:
    """A new authority with its files in `folder`. Two of them do not trust each other."""
    folder.mkdir(parents=True, exist_ok=True)
    key, certificate, config = (folder / f"{name}.{end}" for end in ("key", "crt", "cnf"))
    lines = ["[req]", "distinguished_name=dn", "x509_extensions=ca", "prompt=no", "[dn]", f"CN={name}", "[ca]"]
    lines += ["basicConstraints=critical,CA:true", "keyUsage=critical,keyCertSign,cRLSign", "subjectKeyIdentifier=hash"]
    config.write_text("\n".join(lines) + "\n")
    made: list[str | Path] = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-config", config]
    _openssl("req", *made, "-keyout", key, "-out", certificate)
    return Authority(folder, certificate, key)


def rsa_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """(private key, public key) as PEM files, for instance to sign and check service account tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", private)
    _openssl("pkey", "-in", private, "-pubout", "-out", public)
    return private, public


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
