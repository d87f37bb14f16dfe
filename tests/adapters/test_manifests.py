"""Objects out of the text of a file: the forms people write, and what one bad document costs."""

import pytest

from agent.adapters.manifests import read_documents


def test_a_list_is_taken_apart_and_a_typed_one_gives_its_kind() -> None:
    text = """
kind: List
items:
- {kind: Node, metadata: {name: n1}}
- kind: PodList
  apiVersion: v1
  items:
  - metadata: {name: p, namespace: train}
"""
    read = read_documents(text.encode(), "x.yaml")
    assert [item for _, item in read.objects] == [
        {"kind": "Node", "metadata": {"name": "n1"}},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "train"}},
    ]
    assert read.findings == ()


def test_a_bad_item_of_a_list_is_named_by_its_pointer() -> None:
    read = read_documents(b'{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n1"}}, 7]}', "x.json")
    assert len(read.objects) == 1
    assert read.findings == ("x.json /items/1: no Kubernetes object but a number",)


def test_times_stay_text_as_kubernetes_reads_them() -> None:
    read = read_documents(b"kind: Node\nmetadata: {name: n1, creationTimestamp: 2026-01-01T00:00:00Z}", "x.yaml")
    assert read.objects[0][1]["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("---\n", id="only a marker"),
        pytest.param("# a comment\n---\n# another\n---\n...\n", id="comments"),
        pytest.param("%YAML 1.1\n---\nnull\n", id="null"),
    ],
)
def test_nothing_is_no_finding(text: str) -> None:
    assert read_documents(text.encode(), "x.yaml") == read_documents(b"", "x.json")


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        pytest.param("kind: [\n", "x.yaml:8: no YAML", id="syntax"),
        pytest.param("a: 1\n  b: 2\n", "x.yaml:8: no YAML: mapping values are not allowed", id="line of the mistake"),
        pytest.param("just text\n", "x.yaml:7: no Kubernetes object but text", id="scalar"),
        pytest.param("[1]\n", "x.yaml:7: no Kubernetes object but a list", id="list"),
        pytest.param("metadata: {name: x}\n", "x.yaml:7: /kind is missing", id="no kind"),
        pytest.param("kind: 1\nmetadata: {name: x}\n", "x.yaml:7: /kind is missing or no text", id="kind is number"),
        pytest.param("kind: Pod\n", "x.yaml:7: /metadata/name of a Pod is missing", id="no metadata"),
        pytest.param("kind: Pod\nmetadata: {name: 7}\n", "/metadata/name of a Pod is missing or no text", id="name"),
        pytest.param("kind: Pod\nmetadata: {name: x, namespace: 7}\n", "/metadata/namespace", id="namespace"),
        pytest.param("kind: Pod\n1: x\n", "key 1 is no text", id="key is number"),
        pytest.param("kind: !!python/object:os.system x\n", "no YAML: could not determine", id="unsafe tag"),
        pytest.param("kind: !!binary AAE=\n", "holds a bytes", id="binary"),
        pytest.param("kind: !!set {a}\n", "holds a set", id="set"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a}\n", "merge keys", id="merge"),
        pytest.param("a: *none\n", "found undefined alias", id="unknown alias"),
        pytest.param("a: &a [*a]\n", "nested deeper than 100", id="alias of itself"),
        pytest.param("[" * 5000 + "\n", "no YAML", id="deep"),
        pytest.param("a: !!int x\n", "no YAML", id="bad number"),
        pytest.param("a: !!timestamp x\n", "no YAML", id="bad time"),
        pytest.param("a: !!bool x\n", "no YAML", id="bad truth"),
        pytest.param("a: !!int ''\n", "no YAML", id="no number"),
        pytest.param('a: "\\ud800"\n', "no YAML: found invalid Unicode", id="half a surrogate pair"),
    ],
)
def test_a_bad_document_costs_only_itself(bad: str, finding: str) -> None:
    before = "kind: Node\nmetadata:\n  name: n1\n  x: |\n    ---\n"
    read = read_documents(f"{before}---\n{bad}---\nkind: Node\nmetadata: {{name: n2}}\n".encode(), "x.yaml")
    assert [item["metadata"]["name"] for _, item in read.objects] == ["n1", "n2"]
    assert len(read.findings) == 1
    assert finding in read.findings[0]


def test_aliases_that_expand_to_too_much_are_refused() -> None:
    rows = ["kind: Node", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    read = read_documents("\n".join(rows).encode(), "x.yaml")
    assert read.objects == ()
    assert read.findings == ("x.yaml:1: aliases expand to too much",)


def test_aliases_in_measure_are_read() -> None:
    read = read_documents(b"kind: Node\nmetadata: {name: n1, labels: &l {a: b}, annotations: *l}", "x.yaml")
    assert read.objects[0][1]["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("raw", "place", "finding"),
    [
        pytest.param(b"kind: Node\nname: \xff\n", "x.yaml", "x.yaml:2: is not UTF-8", id="yaml"),
        pytest.param(b'{\n"kind": "\xff"}', "x.json", "x.json:", id="json not UTF-8"),
        pytest.param(b'{"kind":\n}', "x.json", "x.json:2: no JSON", id="json"),
        pytest.param(b"\x00", "x.yaml", "x.yaml:1: no YAML", id="control character"),
    ],
)
def test_a_file_that_is_no_text_is_a_finding(raw: bytes, place: str, finding: str) -> None:
    read = read_documents(raw, place)
    assert read.objects == ()
    assert read.findings[0].startswith(finding)


def test_a_byte_order_mark_is_no_mistake() -> None:
    for place, text in [
        ("x.yaml", "kind: Node\nmetadata: {name: n}"),
        ("x.json", '{"kind":"N","metadata":{"name":"n"}}'),
    ]:
        assert len(read_documents(b"\xef\xbb\xbf" + text.encode(), place).objects) == 1
