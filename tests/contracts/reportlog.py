"""What every ReportLog must do. A filler's test gives the fixture `log`."""

from agent.domain.vocab import NodeName
from agent.ports import ReportLog

N1, N2 = NodeName("n1"), NodeName("rack-7.n2")


class ReportLogContract:
    async def test_an_empty_log_has_no_reports(self, log: ReportLog) -> None:
        assert dict(await log.latest()) == {}

    async def test_the_newest_report_of_each_node_is_kept_byte_for_byte(self, log: ReportLog) -> None:
        await log.publish({N1: b"1", N2: b"\x00\xff\n"})
        await log.publish({N1: b'{"seq":2}'})
        assert dict(await log.latest()) == {N1: b'{"seq":2}', N2: b"\x00\xff\n"}

    async def test_publishing_nothing_changes_nothing(self, log: ReportLog) -> None:
        await log.publish({N1: b"1"})
        await log.publish({})
        assert dict(await log.latest()) == {N1: b"1"}

    async def test_what_was_given_out_does_not_change_afterwards(self, log: ReportLog) -> None:
        await log.publish({N1: b"1"})
        before = await log.latest()
        await log.publish({N1: b"2"})
        assert dict(before) == {N1: b"1"}
