"""What becomes of our three documents among other writers, whatever store they are in. A filler's test gives two
fixtures: `make`, which empties the namespaces and gives a Bench, and `seeds`, how many races of each kind are run.
"""

import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol

import pytest
from contended import LABELS, NAMESPACES, RECORDS, RESET, VCJOB, Bench
from kubebuilders import DEMO_JOB, DEMO_UID
from readers import KILLED, RUNNING
from rivals import Finish, Hand, a_map, clusterd_writes, set_data, volcano_exits, volcano_reschedules, volcano_saves

from agent.domain.vocab import Millis, Reason

REQUEST, SEPARATE = "80C98000", "80E18402"
OTHER_RETRIES = '{"x/y":{"UUID":"u-1","Times":2}}'
OTHER_RECORDS = (
    '{"x/y":{"JobID":"x/y","TotalRescheduleTimes":7,"RescheduleRecords":[{"LogFileFormatTime":"I1231 00:00:00",'
    '"RescheduleTimeStamp":1767139200,"ReasonOfTask":[{"RescheduleReason":"pod-failed","PodName":"p","NodeName":"n9",'
    '"NodeRankIndex":"1"}]}]}}'
)
THEIRS = {VCJOB: ("remain-retry-times", OTHER_RETRIES), RECORDS: ("recent-reschedule-records", OTHER_RECORDS)}
SOLE: dict[str, Any] = {
    "documents": {
        "reset_config": {"create": True},
        "vcjob_fault_npu_cm": {"sole_writer": True},
        "job_reschedule_reason": {"sole_writer": True},
    }
}
ALL = [pytest.param(place, id=place[1]) for place in (RESET, VCJOB, RECORDS)]
SHARED = [pytest.param(place, id=place[1]) for place in (VCJOB, RECORDS)]

Rival = Callable[[Hand, Random, int], Awaitable[Finish]]


class Make(Protocol):
    """Empties the namespaces and makes a Bench; `documents` are there before it looks, without a manager."""

    async def __call__(self, seed: int = 0, **settings: Any) -> Bench: ...


def moving(bench: Bench, rivals: list[Rival], *, orderly: bool = False) -> Callable[[], Awaitable[None]]:
    """Between two calls of ours some rival reads, or one that has read before writes.

    `orderly`: one write in a second of the clock, for Volcano writes at the end of a session and ClusterD waits between
    its steps; what two of them do within a second to a reader that sleeps is no matter of ours.
    """

    async def move() -> None:
        chance = bench.chance
        if bench.open_moves and chance.random() < 0.35 and not (orderly and bench.moved_at == bench.now):
            bench.moved_at = bench.now
            await bench.open_moves.pop(chance.randrange(len(bench.open_moves)))()
        if chance.random() < 0.25:
            bench.open_moves.append(await chance.choice(rivals)(bench.hand, chance, bench.now))

    return move


async def all_end(bench: Bench) -> None:
    """Whoever has read writes; nobody moves any more."""
    bench.store.move = None
    for finish in bench.open_moves:
        await bench.advance(1)
        await finish()
    bench.open_moves.clear()
    await bench.advance(1)


async def assert_settled(bench: Bench) -> None:
    """Nothing of others was lost, and left alone nothing is written any more."""
    assert bench.store.lost == []
    writes = len(bench.store.writes)
    await bench.advance(200)
    assert len(bench.store.writes) == writes
    assert Reason.INTERNAL not in {one.reason for one in bench.told}
    assert bench.coordinator.idle


def _reschedules(pod_level: bool) -> Rival:
    return lambda hand, _, now: volcano_reschedules(hand, *RESET, now, pod_level=pod_level)


def _clusterd(operation: str) -> Rival:
    async def rival(hand: Hand, chance: Random, now: int) -> Finish:
        first = 4 * chance.randrange(2)
        return await clusterd_writes(hand, *RESET, operation, now, range(first, first + 4))

    return rival


def _exits(hand: Hand, chance: Random, now: int) -> Awaitable[Finish]:
    del now
    return volcano_exits(hand, *RESET, chance.randrange(2))


CLEARING = [
    _reschedules(True),
    _reschedules(False),
    *map(_clusterd, ("notifyFaultFlushing", "clear", "restartAllProcess")),
]
"""What leaves the pods alive."""
EVERYBODY = [*CLEARING, _clusterd("fault"), _exits]


async def a_user_makes_reset_config(hand: Hand) -> None:
    """As it is born with the job, and with a key and a note of somebody's."""
    data = {"reset.json": '{"status":"initializing"}', "checkCode": "", "notes": "theirs"}
    assert await hand.create(a_map(*RESET, data, labels={"reset": "true"}, annotations={"note": "kept"}))


async def a_recovery(bench: Bench, device: int) -> None:
    """A fault, its end some time later, and what follows until the recovery is over."""
    for what, spans in (("occur", (1, 5, 40)), ("recover", (1, 20, 100))):
        bench.event(REQUEST, what, device)
        await bench.settle()
        for _ in range(6):
            await bench.advance(bench.chance.choice(spans) / 6)


async def want(bench: Bench, place: tuple[str, str]) -> None:
    """Something happens for which the document has to be written."""
    bench.event(REQUEST if place == RESET else SEPARATE)
    await bench.settle()
    if place == RECORDS:
        bench.replaced()
        await bench.settle()


def is_as_wanted(place: tuple[str, str], data: dict[str, str]) -> bool:
    """The document shows what `want` has made to happen."""
    if place == RESET:
        listed = json.loads(data["reset.json"])["RankList"]
        return [one["Status"] for one in listed] == ["unrecovered"] * 4
    if place == VCJOB:
        retries = json.loads(data["remain-retry-times"])
        nodes = [one["NodeName"] for one in json.loads(data["fault-node"])]
        return nodes == ["n1"] and retries[DEMO_JOB] == {"UUID": DEMO_UID, "Times": 3}
    record = json.loads(data["recent-reschedule-records"])[DEMO_JOB]
    (task,) = record["RescheduleRecords"][0]["ReasonOfTask"]
    return (record["TotalRescheduleTimes"], task["RescheduleReason"]) == (1, "CardUnhealthy")


class RacesContract:
    # --- races

    async def test_recoveries_among_writers_that_clear_the_list_leave_training_running(
        self, make: Make, seeds: int
    ) -> None:
        for seed in range(seeds):
            bench = await make(seed)
            await a_user_makes_reset_config(bench.hand)
            async with bench:
                bench.readers_look()
                bench.store.move = moving(bench, CLEARING, orderly=True)
                for device in (2, 1, 0):
                    await a_recovery(bench, device)
                begun = [one for one in bench.told if one.reason is Reason.RECOVERY_STARTED]
                assert begun, seed
                await all_end(bench)
                await (await clusterd_writes(bench.hand, *RESET, "clear", bench.now))()
                await bench.advance(600)
                await assert_settled(bench)
                data = await bench.data(RESET)
                bench.readers_look()
                assert [pod.state for pod in bench.pods.values()] == [RUNNING, RUNNING], seed
                assert json.loads(data["reset.json"])["RankList"] == [], seed
                assert not any(ledger.courses for ledger in bench.book.ledgers.values()), seed
                assert len(bench.store.writes) <= 40, seed

    async def test_whatever_they_write_into_reset_json_theirs_stays_and_ours_leaves(
        self, make: Make, seeds: int
    ) -> None:
        for seed in range(seeds):
            bench = await make(1000 + seed)
            await a_user_makes_reset_config(bench.hand)
            async with bench:
                bench.store.move = moving(bench, EVERYBODY)
                for device in (2, 1, 0):
                    await a_recovery(bench, device)
                begun = [one for one in bench.told if one.reason is Reason.RECOVERY_STARTED]
                assert begun, seed
                await all_end(bench)
                await bench.advance(600)
                await assert_settled(bench)
                listed = json.loads((await bench.data(RESET))["reset.json"])["RankList"] or []
                assert [one for one in listed if "RecoveryId" in one] == [], seed
                assert not any(ledger.courses for ledger in bench.book.ledgers.values()), seed

    async def test_a_retry_time_that_others_set_back_keeps_no_survivor_asleep(self, make: Make) -> None:
        bench = await make()
        await a_user_makes_reset_config(bench.hand)
        async with bench:
            bench.event(REQUEST)
            await bench.advance(5)
            bench.event(REQUEST, "recover")
            await bench.advance(100)
            assert json.loads((await bench.data(RESET))["reset.json"])["RetryTime"] == 1
            await (await volcano_reschedules(bench.hand, *RESET, bench.now, pod_level=False))()
            await bench.settle()
            assert json.loads((await bench.data(RESET))["reset.json"])["RetryTime"] == 0
            bench.event(REQUEST, device=1)
            await bench.advance(31)
            listed = json.loads((await bench.data(RESET))["reset.json"])["RankList"]
            assert {one["Status"] for one in listed} == {"failed"}
            assert [pod.state for pod in bench.pods.values()] == [KILLED, KILLED]
            await bench.advance(125)
            found = json.loads((await bench.data(RESET))["reset.json"])
            # Readers stand at 1: a 1 would start nobody.
            assert (found["RankList"], found["RetryTime"]) == ([], 2)
            bench.readers_look()
            assert [pod.state for pod in bench.pods.values()] == [RUNNING, RUNNING]

    @pytest.mark.parametrize("place", SHARED)
    async def test_beside_the_plugin_a_shared_document_is_its_own_from_its_first_write_on(
        self, make: Make, seeds: int, place: tuple[str, str]
    ) -> None:
        key, text = THEIRS[place]
        for seed in range(seeds):
            bench = await make(2000 + seed)
            async with bench:
                bench.store.move = moving(bench, [lambda hand, *_: volcano_saves(hand, *place, {key: text})])
                await want(bench, place)
                await all_end(bench)
                await (await volcano_saves(bench.hand, *place, {key: text}))()
                await bench.settle()
                writes = len(bench.store.writes)
                bench.event(SEPARATE, device=1)
                await bench.settle()
                await assert_settled(bench)
                assert [one for one in bench.store.writes[writes:] if one.name == place[1]] == [], seed
                assert (await bench.data(place))[key] == text, seed
                assert bench.last(place).reason is Reason.FOREIGN_WRITER_LIVE, seed

    @pytest.mark.parametrize("place", SHARED)
    async def test_a_plugin_that_was_declared_gone_and_lives_ends_in_an_alarm_and_loses_nothing(
        self, make: Make, seeds: int, place: tuple[str, str]
    ) -> None:
        key, text = THEIRS[place]
        for seed in range(seeds):
            bench = await make(3000 + seed, **SOLE)
            async with bench:
                await want(bench, place)
                before = len(bench.store.writes)
                for _ in range(12):
                    await (await volcano_saves(bench.hand, *place, {key: text}))()
                    await bench.settle()
                    bench.now = Millis(bench.now + 1000)
                written = len(bench.store.writes) - before
                assert 5 <= written <= 8, (seed, written)
                assert bench.reasons(place).count(Reason.FOREIGN_WRITER_LIVE) >= 1, seed
                await bench.advance(30)
                await assert_settled(bench)
                data = await bench.data(place)
                assert is_as_wanted(place, data), seed
                assert json.loads(data[key])["x/y"] == json.loads(text)["x/y"], seed

    # --- what may have happened to a document

    @pytest.mark.parametrize("place", ALL)
    async def test_deleted_it_is_made_again_or_its_absence_is_told(self, make: Make, place: tuple[str, str]) -> None:
        async with await make() as bench:
            await want(bench, place)
            assert is_as_wanted(place, await bench.data(place))
            await bench.hand.delete(*place)
            await bench.settle()
            await assert_settled(bench)
            data = await bench.data(place)
            if place == RESET:
                # Its entries are gone with it: workers that they had stopped are told to start.
                found = json.loads(data["reset.json"])
                assert (found["RankList"], found["RetryTime"]) == ([], 1)
            else:
                assert is_as_wanted(place, data)
            assert bench.last(place).reason is Reason.WRITTEN

    @pytest.mark.parametrize("place", ALL)
    async def test_made_by_another_a_moment_before_us_it_is_that_one_that_is_written_to(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        async with await make(**SOLE) as bench:

            async def another() -> None:
                await bench.hand.delete(*place)
                made = a_map(*place, {"mine": "1"}, labels={"reset": "true", "team": "blue"})
                assert await bench.hand.create(made)

            bench.store.first[place] = another
            await want(bench, place)
            assert bench.store.first == {}
            live = await bench.live(place)
            assert live is not None
            assert (live["data"]["mine"], live["metadata"]["labels"]["team"]) == ("1", "blue")
            assert is_as_wanted(place, live["data"])
            assert bench.store.lost == []

    async def test_a_reset_config_that_we_may_not_make_is_waited_for(self, make: Make) -> None:
        async with await make(documents={"reset_config": {"create": False}}) as bench:
            await want(bench, RESET)
            assert bench.last(RESET).reason is Reason.NO_RESET_CONFIG
            assert await bench.live(RESET) is None
            await a_user_makes_reset_config(bench.hand)
            await bench.settle()
            assert is_as_wanted(RESET, await bench.data(RESET))
            await bench.hand.delete(*RESET)
            await bench.settle()
            assert bench.last(RESET).reason is Reason.NO_RESET_CONFIG
            await a_user_makes_reset_config(bench.hand)
            await bench.settle()
            found = json.loads((await bench.data(RESET))["reset.json"])
            assert (found["RankList"], found["RetryTime"]) == ([], 1)
            await bench.advance(400)
            await assert_settled(bench)

    @pytest.mark.parametrize("place", ALL)
    async def test_another_object_of_its_name_gets_what_the_first_had_and_keeps_its_own(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        async with await make(**SOLE) as bench:
            await want(bench, place)
            first = await bench.live(place)
            await bench.hand.delete(*place)
            assert await bench.hand.create(a_map(*place, {"mine": "1"}, labels={"reset": "true", "team": "blue"}))
            await bench.settle()
            await assert_settled(bench)
            second = await bench.live(place)
            assert first is not None
            assert second is not None
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            assert second["metadata"]["labels"] == {"reset": "true", "team": "blue"}
            assert second["data"]["mine"] == "1"
            assert bench.last(place).reason is Reason.WRITTEN
            if place == RESET:
                found = json.loads(second["data"]["reset.json"])
                assert (found["RankList"], found["RetryTime"]) == ([], 1)
            else:
                assert is_as_wanted(place, second["data"])

    @pytest.mark.parametrize("place", ALL)
    async def test_immutable_it_is_refused_left_as_it_is_and_written_once_it_may_be(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        bench = await make(**SOLE)
        fixed = {**a_map(*place, {"mine": "1"}, labels={"reset": "true"}), "immutable": True}
        assert await bench.hand.create(fixed)
        async with bench:
            await want(bench, place)
            refused = bench.last(place)
            assert (refused.reason, "immutable" in refused.detail) == (Reason.DOCUMENT_REFUSED, True)
            assert await bench.data(place) == {"mine": "1"}
            await bench.hand.delete(*place)
            assert await bench.hand.create({**fixed, "immutable": False})
            await bench.settle()
            data = await bench.data(place)
            assert is_as_wanted(place, data)
            assert data["mine"] == "1"
            assert bench.store.lost == []

    @pytest.mark.parametrize("place", ALL)
    async def test_erased_labels_are_left_to_their_owner_and_of_the_one_that_matters_it_is_told(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        bench = await make(**SOLE)
        assert await bench.hand.create(a_map(*place, {"mine": "1"}))
        async with bench:
            await want(bench, place)
            written = bench.last(place)
            assert written.reason is Reason.WRITTEN
            told = [one.document for one in bench.told if one.reason is Reason.NO_RESET_LABEL]
            assert told == (["/".join(place)] if place == RESET else [])
            live = await bench.live(place)
            assert live is not None
            assert "labels" not in live["metadata"]
            assert is_as_wanted(place, live["data"])
            assert bench.store.lost == []

    @pytest.mark.parametrize("place", ALL)
    async def test_what_cannot_be_read_is_left_as_it_is_until_it_can_but_for_retries(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        bench = await make(**SOLE)
        key = {RESET: "reset.json", **{one: theirs[0] for one, theirs in THEIRS.items()}}[place]
        assert await bench.hand.create(a_map(*place, {key: '{"RankList":', "mine": "1"}, labels={"reset": "true"}))
        async with bench:
            await want(bench, place)
            told = bench.last(place)
            if place == VCJOB:
                # Half a map fails every job that waits, and nobody can read it: it is made anew.
                said = [one.detail for one in bench.told if one.document == "/".join(place)]
                assert [one.partition(" (")[0].partition("; ")[2] for one in said] == [
                    "remain-retry-times was unreadable",
                    "",
                ]
                assert told.reason is Reason.WRITTEN
            else:
                assert told.reason is Reason.DOCUMENT_UNREADABLE
                assert (await bench.data(place))[key] == '{"RankList":'
                await set_data(bench.hand, *place, **{key.replace(".", "__"): "{}"})
                await bench.settle()
            data = await bench.data(place)
            assert is_as_wanted(place, data)
            assert data["mine"] == "1"
            assert bench.store.lost == []

    @pytest.mark.parametrize("place", ALL)
    async def test_filled_by_keys_of_others_it_is_refused_theirs_stay_and_it_is_written_once_there_is_room(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        bench = await make(**SOLE)
        assert await bench.hand.create(a_map(*place, {"mine": "x" * 1_048_570}, labels={"reset": "true"}))
        async with bench:
            await want(bench, place)
            assert bench.last(place).reason is Reason.DOCUMENT_REFUSED
            assert {key: len(text) for key, text in (await bench.data(place)).items()} == {"mine": 1_048_570}
            await set_data(bench.hand, *place, mine="x")
            await bench.settle()
            data = await bench.data(place)
            assert is_as_wanted(place, data)
            assert data["mine"] == "x"
            assert bench.store.lost == []

    @pytest.mark.parametrize("place", SHARED)
    async def test_beside_keys_of_others_that_leave_little_room_nothing_of_other_jobs_goes(
        self, make: Make, place: tuple[str, str]
    ) -> None:
        """Between our own budget of 1,000,000 bytes and the server's end."""
        key, text = THEIRS[place]
        bench = await make(**SOLE)
        assert await bench.hand.create(a_map(*place, {"mine": "x" * 1_010_000, key: text}))
        async with bench:
            await want(bench, place)
            data = await bench.data(place)
            assert len(data["mine"]) == 1_010_000
            assert json.loads(data[key])["x/y"] == json.loads(text)["x/y"]
            assert bench.store.lost == []
            await assert_settled(bench)


__all__ = ["LABELS", "NAMESPACES", "Make", "RacesContract"]
