"""`reset-config-<job>`: the object in `reset.json`, its checksum and restartType.

The one rule: key order and `null` against `[]` are those of the field's own writers; unknown keys come back out.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from agent.domain.reset import RankEntry, Recovery, ResetDevice, ResetInfo, Status, entry_of, written
from agent.domain.vocab import Millis
from agent.wire import gojson
from agent.wire.budget import budget_beside

RESET_JSON: Final = "reset.json"
CHECK_CODE: Final = "checkCode"
RESTART_TYPE: Final = "restartType"

_OWN_KEYS: Final = 64 + len("hotReset") + 40
"""Bytes of checkCode and restartType, and of numbers that may grow."""
_INFO: Final = ("RankList", "UpdateTime", "RetryTime", "FaultFlushing", "GracefulExit", "RestartFaultProcess")
_ENTRY: Final = ("RankId", "LogicId", "Status", "Policy", "InitialPolicy", "ErrorCode", "ErrorCodeHex")
_RECOVERY_ID: Final = "RecoveryId"
_LAST_ID: Final = 2**53
"""No recovery of ours counts so far: a higher id is somebody else's, and no ledger has to hold it."""


def decode_reset(text: str) -> ResetInfo:
    """Read `reset.json` (TaskResetInfo, device-plugin proto.go:245).

    `{"status":"initializing"}`, as users create it, is an object with no list and RetryTime 0; the empty text too.
    Raises BadDocument with the JSON pointer where Go's readers would refuse the whole document.
    """
    if not text.strip():
        return ResetInfo()
    obj = gojson.decode_object(text)
    found = gojson.list_of(obj, "RankList", "")
    entries = None if found is None else tuple(_entry(item, f"/RankList/{i}") for i, item in enumerate(found))
    return ResetInfo(
        rank_list=entries,
        update_time=gojson.int_of(obj, "UpdateTime", ""),
        retry_time=gojson.int_of(obj, "RetryTime", ""),
        fault_flushing=gojson.bool_of(obj, "FaultFlushing", ""),
        graceful_exit=gojson.int_of(obj, "GracefulExit", ""),
        restart_fault_process=gojson.bool_of(obj, "RestartFaultProcess", ""),
        extra=gojson.unknown(obj, _INFO),
    )


def encode_reset(info: ResetInfo) -> str:
    """The text of `reset.json`: the known keys always and in order, then the unknown ones."""
    rank_list = None if info.rank_list is None else [_entry_object(entry) for entry in info.rank_list]
    return gojson.encode(
        {
            "RankList": rank_list,
            "UpdateTime": info.update_time,
            "RetryTime": info.retry_time,
            "FaultFlushing": info.fault_flushing,
            "GracefulExit": info.graceful_exit,
            "RestartFaultProcess": info.restart_fault_process,
            **info.extra,
        }
    )


def fitting(live: ResetInfo, recovery: Recovery, foreign: Mapping[str, str]) -> tuple[Recovery, str]:
    """The recovery with as many of its devices as the ConfigMap has room for, and what was left out, for people.

    `foreign`: what others hold of it. Readers of any one entry stop and start like those of all, so one always stays:
    the healthy neighbours in the ring go first, the highest rank before the others.
    """
    theirs = tuple(entry for entry in live.rank_list or () if entry.recovery_id != recovery.id)
    rest = len(encode_reset(written(live, theirs, live.retry_time, Millis(0))).encode()) + _OWN_KEYS
    room = budget_beside(foreign) - rest
    sizes = {
        device: gojson.size(_entry_object(entry_of(recovery, device, Status.UNRECOVERED))) + 1
        for device in recovery.devices
    }
    if sum(sizes.values()) <= room:
        return recovery, ""
    kept: list[ResetDevice] = []
    for device in sorted(recovery.devices, key=lambda one: (not one.codes, one.rank)):
        room -= sizes[device]
        if room < 0 and kept:
            break
        kept.append(device)
    healthy = sum(not device.codes for device in recovery.devices) - sum(not device.codes for device in kept)
    faulty = len(recovery.devices) - len(kept) - healthy
    words = f"; to fit, {healthy} healthy ranks" + (f" and {faulty} faulty ones" if faulty else "") + " are left out"
    return replace(recovery, devices=tuple(sorted(kept, key=lambda one: one.rank))), words


def reset_data(info: ResetInfo, restart_type: str | None, live: Mapping[str, str]) -> dict[str, str]:
    """Data of the ConfigMap to write: `reset.json` with its checkCode, restartType when given, all else as it was."""
    text = encode_reset(info)
    data = dict(live) | {RESET_JSON: text, CHECK_CODE: gojson.check_code(text)}
    if restart_type is not None:
        data[RESTART_TYPE] = restart_type
    return data


def _entry(value: Any, place: str) -> RankEntry:
    obj = gojson.as_object(value, place)
    codes = gojson.list_of(obj, "ErrorCode", place)
    has_status = gojson.has(obj, "Status")
    raw = gojson.unknown(obj, _ENTRY)
    recovery_id = raw.get(_RECOVERY_ID)
    ours = isinstance(recovery_id, int) and not isinstance(recovery_id, bool) and 0 < recovery_id < _LAST_ID
    return RankEntry(
        rank_id=gojson.int_of(obj, "RankId", place),
        logic_id=gojson.int_of(obj, "LogicId", place, gojson.INT32),
        status=gojson.text_of(obj, "Status", place) if has_status else None,
        policy=gojson.text_of(obj, "Policy", place),
        initial_policy=gojson.text_of(obj, "InitialPolicy", place),
        error_code=None if codes is None else _codes(codes, gojson.pointer(place, "ErrorCode")),
        error_code_hex=gojson.text_of(obj, "ErrorCodeHex", place),
        recovery_id=recovery_id if ours else None,
        raw={key: kept for key, kept in raw.items() if not (ours and key == _RECOVERY_ID)},
    )


def _codes(values: list[Any], place: str) -> tuple[int, ...]:
    return tuple(gojson.as_int(value, gojson.pointer(place, i)) for i, value in enumerate(values))


def _entry_object(entry: RankEntry) -> dict[str, Any]:
    obj: dict[str, Any] = {"RankId": entry.rank_id, "LogicId": entry.logic_id}
    if entry.status is not None:
        obj["Status"] = entry.status
    obj |= {
        "Policy": entry.policy,
        "InitialPolicy": entry.initial_policy,
        "ErrorCode": None if entry.error_code is None else list(entry.error_code),
        "ErrorCodeHex": entry.error_code_hex,
        **entry.raw,
    }
    if entry.recovery_id is not None:
        obj[_RECOVERY_ID] = entry.recovery_id
    return obj
