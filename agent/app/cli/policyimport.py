"""`fault-agent policy import` and `policy coverage`: MindCluster's own files beside ours.

The one rule: every entry of a file is told of or counted; none is lost in silence.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from agent.app.bootstrap import read_mindcluster, write_policy
from agent.app.cli.policy import policy_at, policy_option
from agent.app.cli.policydiff import changes_plain, show_changes
from agent.app.cli.show import console, counted
from agent.app.policydiff import Changes, lost_rules
from agent.app.policydiff import coverage as compare
from agent.domain.policy import Policy
from agent.wire.mindcluster import COMPONENTS, Entry, Foreign, kept_rules, policy_texts, read_foreign
from agent.wire.mindcluster.entries import HARMLESS

EXIT_FINDINGS: Final = 1
_PATH: Final = click.Path(path_type=Path)
_AS: Final = click.option(
    "--as",
    "name",
    type=click.Choice(list(COMPONENTS)),
    metavar="NAME",
    help="Which file it is, where its own name does not say so. Example: --as faultCode.json",
)


@click.command(
    "import",
    short_help="Turn MindCluster's files into policy files.",
    epilog="Examples: fault-agent policy import faultCode.json faultCustomization.json --out mine/; "
    "kubectl -n kube-system get cm mindx-dl-fault-config -o yaml > cm.yaml; fault-agent policy import cm.yaml",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_PATH)
@click.option("--out", type=_PATH, help="Folder for the policy files; left out: only the verdicts are told.")
@_AS
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines: one object with a verdict for every entry.")
def import_(files: Sequence[Path], out: Path | None, name: str | None, policy_path: Path | None, as_json: bool) -> None:
    """Read each FILE as the MindCluster component does that it is made for, and write it as a policy file.

    A FILE is faultCode.json, SwitchFaultCode.json, faultCustomization.json (device-plugin), NodeDConfiguration.json
    (NodeD), publicFaultConfiguration.json or publicCustomization.json, relationFaultCustomization.json,
    faultDuration.json (ClusterD), or a ConfigMap that holds some of them. Every entry gets a verdict: taken; changed
    (its component takes it as something else); repeated (another entry counts); skipped (its component skips it);
    impossible (taken there, but without effect, or cannot be said here); unused. What the component would refuse as a
    whole is refused here.

    Meanings, unknown_held_level, and rules that no FILE holds, come from the policy in force, and it is said which.
    Nothing is overwritten. Exit code 1: a file was refused, or an entry is neither taken nor repeated.
    """
    in_force = policy_at(policy_path)
    read = [read_mindcluster(path, name) for path in files]
    found = [read_foreign(called, data) for held, _ in read for called, data in held]
    beside = [note for _, notes in read for note in notes]
    _one_of_a_kind(found)
    texts = policy_texts(found, in_force)
    written = write_policy(out, {name: text.encode() for name, text in texts.items()}) if out is not None else []
    if as_json:
        plain = {
            "files": [_plain(file, in_force) for file in found],
            "not_read": beside,
            "kept": [
                {"what": what, "file": missing, "refused": refused}
                for what, missing, refused in kept_rules(found, in_force)
            ],
            "policy_files": sorted(texts),
            "written": [str(path) for path in written],
        }
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        for file in found:
            _tell(file, in_force)
        for what, missing, refused in kept_rules(found, in_force):
            mark, why = ("!", "was refused") if refused else (" ", "is not among the files")
            click.echo(f"{mark} rules.yaml has the {what} of the policy in force: {missing} {why}")
        for note in beside:
            click.echo(f"! not read: {note}")
        for path in written:
            click.echo(f"written: {path}")
        if texts and out is None:
            click.echo(f"nothing is written without --out; it would be {', '.join(sorted(texts))}")
    if beside or any(file.refusal or _odd(file) for file in found):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _one_of_a_kind(found: Sequence[Foreign]) -> None:
    """Two files that become the same policy file would lose one of them. Raises UsageError."""
    by_kind: dict[str, Foreign] = {}
    for file in found:
        kind = file.table or file.name
        if not file.refusal and by_kind.setdefault(kind, file) is not file:
            names = f"{by_kind[kind].name} and {file.name}" if by_kind[kind].name != file.name else f"{file.name} twice"
            raise click.UsageError(f"{names}: they become one policy file, so import only the one that counts")


def _odd(file: Foreign) -> list[Entry]:
    return [entry for entry in file.entries if entry.verdict not in HARMLESS]


def _tell(file: Foreign, in_force: Policy) -> None:
    if file.refusal:
        click.secho(f"{file.name}: refused: {file.refusal}", fg="red")
        return
    counts = Counter(str(entry.verdict) for entry in file.entries)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items()) or "nothing in it"
    click.echo(f"{file.name} ({file.component}): {said}")
    for entry in file.entries:
        if entry.reason:
            mark = " " if entry.verdict in HARMLESS else "!"
            click.echo(f"  {mark} {entry.verdict:<10} {entry.place}  {entry.what}: {entry.reason}")
    if lost := _lost(file, in_force):
        first = ", ".join(lost[:5]) + (", …" if len(lost) > 5 else "")
        what = f"{counted(len(lost), 'code')} of the {file.table} table in force"
        click.echo(f"  {what} not in it, which would be unknown: {first}")
    gone: dict[str, list[str]] = {}
    for kind, code in [] if file.refusal else lost_rules(file, in_force):
        gone.setdefault(kind, []).append(code)
    for kind, codes in gone.items():
        what = counted(len(codes), kind if kind in ("sender", "relation time-out") else f"{kind} rule")
        then = "whose records would be refused" if kind == "sender" else "which would hold no longer"
        click.echo(f"  {what} in force not in it, {then}: {', '.join(codes[:5])}{', …' if len(codes) > 5 else ''}")


def _lost(file: Foreign, in_force: Policy) -> list[str]:
    """Codes of the table in force that the file does not list."""
    return (
        []
        if not file.table or file.refusal
        else [one.code for one in compare(file, in_force).codes if one.before is None]
    )


def _plain(file: Foreign, in_force: Policy) -> dict[str, Any]:
    return {
        "file": file.name,
        "component": file.component,
        "refusal": file.refusal,
        "counts": dict(Counter(str(entry.verdict) for entry in file.entries)),
        "entries": [
            {
                "place": entry.place,
                "what": entry.what,
                "level": entry.level,
                "verdict": entry.verdict,
                "reason": entry.reason,
            }
            for entry in file.entries
        ],
        "would_be_unknown": _lost(file, in_force),
        "would_be_lost": [{"kind": kind, "code": code} for kind, code in lost_rules(file, in_force)],
    }


@click.command(
    short_help="Compare with what a cluster's MindCluster knows.",
    epilog="Example: kubectl -n kube-system get cm mindx-dl-fault-config -o yaml > cm.yaml; "
    "fault-agent policy coverage cm.yaml",
)
@click.argument("file", metavar="FILE", type=_PATH)
@_AS
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines: one object per file, with all codes.")
def coverage(file: Path, name: str | None, policy_path: Path | None, as_json: bool) -> None:
    """Tell which codes of a cluster's FILE we lack or rate otherwise, and which of ours it lacks.

    FILE is a file of MindCluster's, or a ConfigMap with one: kube-system/mindx-dl-fault-config as
    `kubectl get cm -o yaml` or `-o json` prints it. Rules are compared too.
    Exit code 1: something differs.
    """
    in_force = policy_at(policy_path)
    held, beside = read_mindcluster(file, name)
    found = [read_foreign(called, data) for called, data in held]
    compared = [(one, compare(one, in_force)) for one in found]
    if as_json:
        plain = [_coverage_plain(one, changes) for one, changes in compared]
        click.echo(
            json.dumps({"digest": in_force.digest, "files": plain, "not_read": beside}, indent=2, ensure_ascii=False)
        )
    else:
        for one, changes in compared:
            _tell_coverage(one, changes)
        for note in beside:
            click.echo(f"! not read: {note}")
    if beside or any(one.refusal or changes for one, changes in compared):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _coverage_plain(file: Foreign, changes: Changes) -> dict[str, Any]:
    return {
        "file": file.name,
        "refusal": file.refusal,
        "table": file.table,
        "same": changes.same,
        **changes_plain(changes, "there", "here"),
    }


def _tell_coverage(file: Foreign, changes: Changes) -> None:
    out = console()
    if file.refusal:
        out.print(f"{file.name}: refused: {file.refusal}")
        return
    if file.table:
        lacking = sum(one.after is None for one in changes.codes)
        ours = sum(one.before is None for one in changes.codes)
        otherwise = len(changes.codes) - lacking - ours
        missing = f"{lacking} lacking here, {ours} lacking there"
        out.print(f"{file.name}: {counted(changes.same, 'code')} alike, {otherwise} rated otherwise, {missing}")
    else:
        out.print(f"{file.name}: {counted(len(changes.rules), 'difference')} in its rules")
    show_changes(out, changes, "there", "here")
