"""Apache Kafka through aiokafka: fault source, report log and feed, dead letters, journal, topics.

The one rule: nothing here waits without an end, and nothing of aiokafka's is trusted to come back by itself; a client
that has failed is let go of and made anew.

    settings      how to reach a cluster            errors       foreign errors in our words
    clients       bounded start and stop            topicrequest metadata with the topic's id
    lookout       questions about a topic           reader       consumer that can be made anew
    places        resume token                      source       FaultSource
    drain         read a topic once                 reportfeed   ReportFeed
    writer        producer that can be made anew    reportlog    ReportLog
    letters       DeadLetters, Journal              topics       create and check
"""

from agent.adapters.kafka.letters import KafkaDeadLetters, KafkaJournal
from agent.adapters.kafka.reportfeed import KafkaReportFeed
from agent.adapters.kafka.reportlog import KafkaReportLog
from agent.adapters.kafka.settings import KafkaSettings
from agent.adapters.kafka.source import KafkaFaultSource
from agent.adapters.kafka.topics import Finding, TopicPlan, check, create, plan_of

__all__ = [
    "Finding",
    "KafkaDeadLetters",
    "KafkaFaultSource",
    "KafkaJournal",
    "KafkaReportFeed",
    "KafkaReportLog",
    "KafkaSettings",
    "TopicPlan",
    "check",
    "create",
    "plan_of",
]
