"""One slot per document: what a lost race, a refusal, an unreadable object or a mode makes of it."""

import functools
from dataclasses import replace

import pytest

from agent.adapters.memory import MemoryDocumentStore
from agent.app.publisher import CONFLICT_TRIES, Publisher, Rendered, let_go
from agent.domain.vocab import Mode, Reason
from agent.errors import BadDocument, Conflict, Fenced, Refused, Unavailable
from agent.ports import ConfigMap

NAME = ("train", "doc")


def wanted(**data: str) -> Rendered:
    return Rendered(Reason.WRITTEN, data, "detail", labels={"reset": "true"})


def counted(live: ConfigMap | None) -> Rendered:
    """One more than the live object holds."""
    number = int(live.data.get("n", "0")) if live is not None else 0
    return Rendered(Reason.WRITTEN, {"n": str(number + 1)})


def _always(rendered: Rendered, _: ConfigMap | None) -> Rendered:
    return rendered


async def test_a_document_that_is_not_there_is_made_with_its_labels() -> None:
    store = MemoryDocumentStore()
    done = await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))
    assert (done.reason, done.changed) == (Reason.WRITTEN, True)
    live = await store.get(*NAME)
    assert live is not None
    assert (live.data, live.labels) == ({"a": "1"}, {"reset": "true"})


async def test_foreign_keys_labels_and_annotations_stay() -> None:
    theirs = ConfigMap(*NAME, {"a": "0", "b": "theirs"}, {"team": "blue"}, {"note": "x"}, extra={"immutable": False})
    store = MemoryDocumentStore([theirs])
    await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))
    live = await store.get(*NAME)
    assert live is not None
    assert live.data == {"a": "1", "b": "theirs"}
    assert (live.labels, live.extra) == ({"team": "blue"}, {"immutable": False})
    assert live.annotations == {"note": "x", "fault-agent/cluster": "east"}


async def test_the_same_again_writes_nothing() -> None:
    store = MemoryDocumentStore()
    publisher = Publisher(store, "east")
    first = await publisher.publish(*NAME, lambda _: wanted(a="1"))
    second = await publisher.publish(*NAME, lambda _: wanted(a="1"))
    assert (second.reason, second.changed) == (Reason.UNCHANGED, False)
    assert first.live == second.live


async def test_an_annotation_that_goes_with_the_data_is_put_on_and_taken_off_also_where_the_data_is_right() -> None:
    store = MemoryDocumentStore()
    publisher = Publisher(store, "east")
    await publisher.publish(*NAME, lambda _: wanted(a="1"))
    marks: list[tuple[dict[str, str | None], str, dict[str, str]]] = [
        ({"proof": "x"}, "as it was, with annotation proof", {"proof": "x"}),
        ({"proof": "x"}, "detail", {"proof": "x"}),
        ({"proof": None}, "as it was, with annotation proof", {}),
    ]
    for annotations, detail, held in marks:
        now = functools.partial(_always, replace(wanted(a="1"), annotations=annotations))
        done = await publisher.publish(*NAME, now)
        assert done.detail == detail
        assert done.live is not None
        assert done.live.annotations == {"fault-agent/cluster": "east", **held}


async def test_a_lost_race_is_rendered_anew_from_what_the_other_wrote() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"n": "1"})])
    other = store.as_manager("other")
    raced = False

    async def race() -> None:
        live = await other.get(*NAME)
        assert live is not None
        await other.put(replace(live, data={"n": "10"}))

    class Racing(MemoryDocumentStore):
        async def put(self, document: ConfigMap) -> ConfigMap:
            nonlocal raced
            if not raced:
                raced = True
                await race()
            return await super().put(document)

    ours = Racing()
    ours._objects = store._objects
    done = await Publisher(ours, "east").publish(*NAME, counted)
    assert done.reason is Reason.WRITTEN
    live = await store.get(*NAME)
    assert live is not None
    assert live.data == {"n": "11"}


@pytest.mark.parametrize("error", [Conflict("lost"), Unavailable("away")], ids=["conflict", "unavailable"])
async def test_what_may_go_through_later_is_tried_a_few_times_and_then_handed_on(error: Conflict | Unavailable) -> None:
    store = MemoryDocumentStore()
    store.failures.fail_next(*[error] * 2)
    publisher = Publisher(store, "east")
    assert (await publisher.publish(*NAME, lambda _: wanted(a="1"))).reason is Reason.WRITTEN
    store.failures.fail_next(*[error] * CONFLICT_TRIES)
    with pytest.raises(type(error)):
        await publisher.publish(*NAME, lambda _: wanted(a="2"))


async def test_an_answer_that_got_lost_is_not_written_twice() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"n": "1"})])
    publisher = Publisher(store, "east")

    class Losing(MemoryDocumentStore):
        lost = False

        async def put(self, document: ConfigMap) -> ConfigMap:
            stored = await super().put(document)
            if not self.lost:
                self.lost = True
                raise Unavailable("the answer got lost")
            return stored

    losing = Losing()
    losing._objects = store._objects
    publisher = Publisher(losing, "east")
    done = await publisher.publish(*NAME, lambda _: wanted(n="2"))
    assert done.reason is Reason.UNCHANGED
    live = await store.get(*NAME)
    assert live is not None
    assert live.data == {"n": "2"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refused("no right to"), Reason.DOCUMENT_REFUSED),
        (BadDocument("no JSON", place="train/doc"), Reason.DOCUMENT_UNREADABLE),
    ],
)
async def test_a_no_parks_this_document_alone(error: Refused | BadDocument, reason: Reason) -> None:
    store = MemoryDocumentStore()
    store.failures.fail_next(error)
    publisher = Publisher(store, "east")
    done = await publisher.publish(*NAME, lambda _: wanted(a="1"))
    assert (done.reason, done.detail, done.changed) == (reason, str(error), False)
    assert (await publisher.publish("train", "other", lambda _: wanted(a="1"))).reason is Reason.WRITTEN


async def test_a_render_that_cannot_read_the_live_object_leaves_it() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"a": "{"})])

    def render(live: ConfigMap | None) -> Rendered:
        raise BadDocument("no JSON", place="a")

    done = await Publisher(store, "east").publish(*NAME, render)
    assert done.reason is Reason.DOCUMENT_UNREADABLE
    live = await store.get(*NAME)
    assert live is not None
    assert live.data == {"a": "{"}


async def test_fenced_is_no_matter_of_one_document() -> None:
    store = MemoryDocumentStore()
    store.failures.fail_next(Fenced("another leads"))
    with pytest.raises(Fenced):
        await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))


@pytest.mark.parametrize(
    ("mode", "reason"), [(Mode.OBSERVE, Reason.OBSERVE), (Mode.DISABLED, Reason.DISABLED)], ids=str
)
async def test_short_of_act_nothing_is_written(mode: Mode, reason: Reason) -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"a": "0"})])
    done = await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"), mode)
    assert (done.reason, done.changed) == (reason, False)
    live = await store.get(*NAME)
    assert live is not None
    assert live.data == {"a": "0"}


async def test_observing_what_is_already_so_is_unchanged() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"a": "1"})])
    done = await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"), Mode.OBSERVE)
    assert done.reason is Reason.UNCHANGED


async def test_what_is_right_but_does_not_say_whose_it_is_gets_the_annotation_and_no_other_change() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"a": "1", "b": "theirs"}, annotations={"note": "x"})])
    done = await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))
    assert (done.reason, done.changed) == (Reason.WRITTEN, True)
    live = await store.get(*NAME)
    assert live is not None
    assert (live.data, live.annotations) == ({"a": "1", "b": "theirs"}, {"note": "x", "fault-agent/cluster": "east"})
    assert (await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))).reason is Reason.UNCHANGED


async def test_a_document_of_an_agent_of_another_cluster_id_is_left_alone() -> None:
    store = MemoryDocumentStore()
    await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))
    before = await store.get(*NAME)
    done = await Publisher(store, "west").publish(*NAME, lambda _: wanted(a="2"))
    assert (done.reason, done.changed) == (Reason.FOREIGN_WRITER_LIVE, False)
    assert "'east'" in done.detail
    assert "'west'" in done.detail
    assert await store.get(*NAME) == before
    again = await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="3"))
    assert (again.reason, again.changed) == (Reason.WRITTEN, True)


async def test_of_two_agents_that_come_at_once_one_gets_the_document() -> None:
    store = MemoryDocumentStore()

    class Racing(MemoryDocumentStore):
        async def put(self, document: ConfigMap) -> ConfigMap:
            if await store.get(*NAME) is None:
                await Publisher(store, "west").publish(*NAME, lambda _: wanted(a="west"))
            return await super().put(document)

    east = Racing()
    east._objects = store._objects
    done = await Publisher(east, "east").publish(*NAME, lambda _: wanted(a="east"))
    assert done.reason is Reason.FOREIGN_WRITER_LIVE
    live = await store.get(*NAME)
    assert live is not None
    assert (live.data, live.annotations) == ({"a": "west"}, {"fault-agent/cluster": "west"})


async def test_a_document_that_was_let_go_of_keeps_its_content_and_may_be_another_agent_s() -> None:
    store = MemoryDocumentStore([ConfigMap(*NAME, {"b": "theirs"}, annotations={"note": "x"})])
    await Publisher(store, "east").publish(*NAME, lambda _: wanted(a="1"))
    assert (await let_go(store, *NAME, "west")).reason is Reason.UNCHANGED
    assert (await let_go(store, *NAME, "east")).reason is Reason.WRITTEN
    live = await store.get(*NAME)
    assert live is not None
    assert (live.data, live.annotations) == ({"a": "1", "b": "theirs"}, {"note": "x"})
    assert (await let_go(store, *NAME, "east")).reason is Reason.UNCHANGED
    done = await Publisher(store, "west").publish(*NAME, lambda _: wanted(a="2"))
    assert done.reason is Reason.WRITTEN


async def test_nothing_is_let_go_of_where_there_is_no_document() -> None:
    done = await let_go(MemoryDocumentStore(), *NAME, "east")
    assert (done.reason, done.live) == (Reason.UNCHANGED, None)
