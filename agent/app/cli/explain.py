"""`fault-agent explain`: what a fault code means, which line of the policy says so, and what will happen.

The one rule: it asks the policy and the effect tables that the agent itself runs on; it knows no code of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from agent.app.bootstrap import policy_folder
from agent.app.cli.jobrules import quiet_words, relation_words
from agent.app.cli.policy import (
    duration_words,
    ended_plain,
    frequency_words,
    override_plain,
    override_words,
    policy_at,
    policy_option,
    told,
)
from agent.app.cli.portrules import port_words
from agent.app.cli.show import shown_path
from agent.domain.effects import Effect, describe
from agent.domain.events import Rating
from agent.domain.policy import CODE_SHAPES, CodeRule, DurationRule, EndedOverride, FrequencyRule, Policy, well_formed
from agent.domain.vocab import L2_LEVEL, L2_LINK_DOWN, L2_PORTS, LEVELS, SECOND, Plane, Source

LOOK_UP_ORDER: Final = (Source.DCMI, Source.LINGQU, Source.IPMI, Source.DPU, Source.PUBLIC)
"""Tables asked without --source; the first that knows the code answers, the first that could hold it otherwise."""

_FILE_OF: Final = {
    Plane.CHIP: "chip.yaml",
    Plane.NETWORK: "chip.yaml",
    Plane.SWITCH: "switch.yaml",
    Plane.NODE: "node.yaml",
    Plane.DPU: "dpu.yaml",
    Plane.PUBLIC: "public.yaml",
}
_SOURCE_OF: Final = {
    Plane.CHIP: Source.DCMI,
    Plane.NETWORK: Source.DCMI,
    Plane.SWITCH: Source.LINGQU,
    Plane.NODE: Source.IPMI,
    Plane.DPU: Source.DPU,
    Plane.PUBLIC: Source.PUBLIC,
}
_REFUSED: Final = Effect(
    device="none: the fault is refused and kept in the dead letters",
    job="none",
    fault_node="no entry",
    reset_config="no entry",
    reschedule_reason="no record",
    rail_plan="not considered: only a link fault is",
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """All that is said of one code in one table."""

    code: str
    source: Source
    plane: Plane
    rating: Rating
    row: CodeRule | None
    effect: Effect
    note: str
    """For an unknown code: how it is treated and how to add it."""
    also: tuple[tuple[Source, CodeRule], ...] = ()
    """Other tables that know the code."""


@click.command(
    short_help="Tell what a fault code means and does.",
    epilog="Example: fault-agent explain 80E18402 '[0x08520003,na,L2,na]' --json",
)
@click.argument("codes", metavar="CODE...", nargs=-1, required=True)
@click.option(
    "--source",
    type=click.Choice([str(source) for source in Source]),
    help="The table to look in: dcmi and hccn chip, lingqu switch, ipmi node, dpu, public. "
    "Without it all tables are asked. Example: --source ipmi",
)
@click.option(
    "--severity",
    type=click.IntRange(0, 3),
    help="Severity the event would carry (0 suggestion to 3 critical); it counts for unknown codes only. "
    "Example: --severity 1",
)
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one element per code, in your order.")
def explain(
    codes: Sequence[str], source: str | None, severity: int | None, policy_path: Path | None, as_json: bool
) -> None:
    """Tell what each fault CODE means, which rule gives it its level, and what the agent does about it.

    A chip code is hex (80E18402, 0x80e18402), a switch code has four parts in brackets and needs quotes in the
    shell ('[0x08520003,na,L2,na]'), a node or DPU code has 8 characters, a public one 9. A fault's reference is taken
    for its code; what the rules have counted of that very fault: fault-agent why fault REF.
    """
    in_force = policy_at(policy_path)
    chosen = Source(source) if source else None
    answers = [_answer(in_force, *_of_reference(code, chosen), severity) for code in codes]
    if as_json:
        click.echo(json.dumps([_plain(in_force, answer) for answer in answers], indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join(_text(in_force, answer) for answer in answers))


def _of_reference(text: str, chosen: Source | None) -> tuple[str, Source | None]:
    """The code of a fault's reference `node/plane/where/code@ms`, and the table of its plane; a code as it is."""
    parts = text.split("/", 3)
    if len(parts) != 4 or parts[1].casefold() not in set(Plane):
        return text, chosen
    code, found, at = parts[3].rpartition("@")
    return code if found and at.isdecimal() else parts[3], chosen or _SOURCE_OF[Plane(parts[1].casefold())]


def _answer(in_force: Policy, code: str, chosen: Source | None, severity: int | None) -> _Answer:
    asked = (chosen,) if chosen else LOOK_UP_ORDER
    possible = [source for source in asked if well_formed(source, code)]
    if not possible:
        raise click.UsageError(f"{code!r} is no fault code. {_expected(asked)}")
    known = [(source, row) for source in possible if (row := in_force.rule(in_force.plane_of(source, code), code))]
    source = known[0][0] if known else possible[0]
    return replace(_in_table(in_force, code, source, severity), also=tuple(known[1:]))


def _expected(sources: Sequence[Source]) -> str:
    return "Expected is " + "; ".join(f"{source}: {CODE_SHAPES[source].expected}" for source in sources) + "."


def _in_table(in_force: Policy, code: str, source: Source, severity: int | None) -> _Answer:
    plane = in_force.plane_of(source, code)
    rating = in_force.rate(plane, code, severity)
    effect = describe(plane, rating.level)
    note = ""
    if not rating.known:
        if plane is Plane.PUBLIC:
            effect, treated = _REFUSED, "Not in the public table, so a record with it is refused (CODE_UNKNOWN)."
        elif rating.held:
            effect = Effect("none while held", "none while held", *("no entry while held",) * 3, effect.rail_plan)
            why = "no severity is given" if severity is None else f"severity {severity} is major or critical"
            treated = f"Unknown, and {why}: held for a person. It alarms and leaves an Event; nothing is reset."
        else:
            treated = f"Unknown, severity {severity} is minor at most: shown as {rating.level}, nothing is done."
        spelled = json.dumps(in_force.spell(source, code), ensure_ascii=False)
        file = _FILE_OF[plane]
        note = (
            f"{treated} To add it, write {spelled}: {{level: …, reason: …, expires: never}} under "
            f"{file.removesuffix('.yaml')}: in an overrides.yaml alone in a folder of its own (fault-agent policy "
            "export FOLDER --only overrides.yaml makes one), and give that folder as --policy."
        )
    return _Answer(in_force.spell(source, code), source, plane, rating, in_force.rule(plane, code), effect, note)


def _documents(effect: Effect) -> dict[str, str]:
    return {
        "fault-node": effect.fault_node,
        "reset-config": effect.reset_config,
        "job-reschedule-reason": effect.reschedule_reason,
        "rail-plan": effect.rail_plan,
    }


def _duration(in_force: Policy, answer: _Answer) -> DurationRule | None:
    return in_force.duration(answer.code) if answer.plane in (Plane.CHIP, Plane.NETWORK) else None


def _frequency(in_force: Policy, answer: _Answer) -> FrequencyRule | None:
    return in_force.frequency(answer.code) if answer.plane in (Plane.CHIP, Plane.NETWORK) else None


def _ended(in_force: Policy, answer: _Answer) -> EndedOverride | None:
    return in_force.ended_of(answer.plane, answer.code)


def _file(place: str) -> str:
    """A place of the policy as a path that can be opened: of the shipped files the folder is put before it."""
    if not place or "/" in place:
        return place
    return shown_path(policy_folder() / place)


def _effect(effect: Effect) -> dict[str, Any]:
    return {"device": effect.device, "job": effect.job, "documents": _documents(effect)}


def _plain(in_force: Policy, answer: _Answer) -> dict[str, Any]:
    rating, effect, row = answer.rating, answer.effect, answer.row
    duration, frequency = _duration(in_force, answer), _frequency(in_force, answer)
    ranks = LEVELS[answer.plane]
    return {
        "code": answer.code,
        "source": answer.source,
        "level": rating.level,
        "known": rating.known,
        "policy": rating.place.rpartition(":")[0] or in_force.digest,
        "rule": rating.rule,
        "rank": ranks[rating.level],
        "highest_rank": max(ranks.values()),
        "plane": answer.plane,
        "place": rating.place,
        "file": _file(rating.place),
        "held": rating.held,
        "meaning": row.meaning if row else "",
        "module": row.module if row else "",
        "override": override_plain(row) if row else None,
        "ended_override": ended_plain(ended) if (ended := _ended(in_force, answer)) else None,
        "effect": _effect(effect),
        "duration": duration
        and {
            "rule": duration.name,
            "place": duration.place,
            "level": duration.level,
            "fault_timeout_s": duration.fault_timeout_ms // SECOND,
            "recover_timeout_s": duration.recover_timeout_ms // SECOND,
        },
        "raised": duration
        and {
            "level": duration.level,
            "rank": ranks[duration.level],
            "effect": _effect(describe(answer.plane, duration.level)),
        },
        "frequency": frequency
        and {
            "rule": frequency.name,
            "place": frequency.place,
            "level": frequency.level,
            "time_window_s": frequency.window_ms // SECOND,
            "times": frequency.times,
            "release_time_window_s": frequency.release_ms // SECOND,
        },
        "tripped": frequency
        and {
            "level": frequency.level,
            "rank": ranks[frequency.level],
            "effect": _effect(describe(answer.plane, frequency.level)),
        },
        "ports": list(port_words(answer.plane, answer.code)),
        "relations": list(relation_words(in_force, answer.code)),
        "quiet": list(quiet_words(answer.plane, answer.code, rating.level)),
        "note": answer.note,
        "also": [
            {"source": source, "level": rule.level, "place": rule.place, "meaning": rule.meaning}
            for source, rule in answer.also
        ],
    }


def _text(in_force: Policy, answer: _Answer) -> str:
    rating, effect = answer.rating, answer.effect
    ranks = LEVELS[answer.plane]
    held = ", held for a person" if rating.held else ""
    rank = f"rank {ranks[rating.level]} of {max(ranks.values())}"
    lines = [
        f"{answer.code}  {rating.level}{held}  ({rank} on the {answer.plane} plane, source {answer.source})",
        _line("meaning", (told(answer.row) if answer.row else "") or "none is known"),
        _line("rule", f"{rating.rule}, {rating.place}" if rating.place else f"{rating.rule}, in no table"),
    ]
    if rating.place:
        lines.append(_line("file", _file(rating.place)))
    if answer.row is not None and answer.row.override is not None:
        lines.append(_line("override", override_words(answer.row)))
    if ended := _ended(in_force, answer):
        lines.append(_line("ended", f"{ended}: {ended.reason}"))
    duration = _duration(in_force, answer)
    if duration is not None:
        lines.append(_line("duration", duration_words(in_force, answer.code)))
    frequency = _frequency(in_force, answer)
    if frequency is not None:
        lines.append(_line("frequency", frequency_words(in_force, answer.code)))
    lines += [_line("ports", words) for words in port_words(answer.plane, answer.code)]
    lines += [_line("relation", words) for words in relation_words(in_force, answer.code)]
    lines += [_line("quiet", words) for words in quiet_words(answer.plane, answer.code, rating.level)]
    if duration is not None:
        lines.append(f"  until it is raised ({rating.level}):")
    lines += _effect_lines(effect)
    if duration is not None:
        lines.append(f"  once it is raised ({duration.level}):")
        lines += _effect_lines(describe(answer.plane, duration.level))
    if frequency is not None:
        lines.append(f"  once it has tripped ({frequency.level}):")
        lines += _effect_lines(describe(answer.plane, frequency.level))
    if answer.plane is Plane.SWITCH and answer.code == L2_LINK_DOWN:
        lines.append(f"  once {L2_PORTS} ports are down ({L2_LEVEL}):")
        lines += _effect_lines(describe(answer.plane, L2_LEVEL))
    lines += [
        _line("also", f"{source}: {rule.level}, {rule.place}; ask with --source {source}")
        for source, rule in answer.also
    ]
    if answer.note:
        lines.append(_line("note", answer.note))
    return "\n".join(lines)


def _effect_lines(effect: Effect) -> list[str]:
    return [
        _line("device", effect.device),
        _line("job", effect.job),
        *(_line(name, words) for name, words in _documents(effect).items()),
    ]


def _line(name: str, words: str) -> str:
    return f"  {name:<22} {words}"
