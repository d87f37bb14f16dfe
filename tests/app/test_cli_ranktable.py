"""`ranktable`, as a person and as a machine see it."""

import json
from pathlib import Path
from typing import Any

import pytest
from a3table import A3_TABLE, a3_document
from click.testing import CliRunner, Result

from agent.app.cli.ranktable import ranktable
from agent.errors import BadUsage, CannotRun

ENV = "HCCL_OP_RETRY_ENABLE=L1:1,L2:1\nHCCL_OP_EXPANSION_MODE=AI_CPU\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(ranktable, [str(one) for one in arguments])


def answered(*arguments: str | Path, exit_code: int = 0) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    answer: list[dict[str, Any]] = json.loads(result.stdout)
    return answer


def written(folder: Path, text: str, name: str = "hccl.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_table_is_told_with_its_mode_and_what_was_not_judged(tmp_path: Path) -> None:
    path = written(tmp_path, A3_TABLE)
    result = run("check", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{path}: version 1.2, super-pod mode, 16 ranks on 4 servers in 2 super-pods",
        f"{path}: not judged: DEVICE_ID_RANGE: the devices of 4 of 4 servers are not known; --cluster tells them",
        f"{path}: 0 errors, 0 warnings, 1 rule not judged without --cluster or --env (mode doc)",
    ]


def test_a_12_table_without_super_pods_says_in_which_mode_hccl_reads_it(tmp_path: Path) -> None:
    document = a3_document()
    del document["super_pod_list"]
    result = run("check", written(tmp_path, json.dumps(document)))
    assert result.exit_code == 0
    assert "version 1.2, AI-server mode (no super_pod_list), 16 ranks on 4 servers" in result.stdout
    assert "warning MODE_AI_SERVER" in result.stdout


def test_an_error_is_told_at_its_line_and_makes_the_exit_code_1(tmp_path: Path) -> None:
    path = written(tmp_path, A3_TABLE.replace('"device_port": "16666"', '"device_port": "0"', 1))
    result = run("check", path)
    assert result.exit_code == 1
    assert (
        f"{path}:3:76: error PORT_RANGE: /server_list/0/device/0/device_port: 0 is outside 1 to 65535 "
        "[document and HCCL]" in result.stdout.splitlines()
    )


def test_for_machines_each_table_is_an_element(tmp_path: Path) -> None:
    document = a3_document()
    del document["server_list"][0]["host_ip"]
    path = written(tmp_path, json.dumps(document))
    (unknown,) = answered("check", path)
    assert (unknown["errors"], unknown["effective_mode"], unknown["mode"]) == (0, "super_pod", "doc")
    assert unknown["rules"][0] == {
        "code": "HOST_IP_REQUIRED",
        "standing": "not judged",
        "why": "1 place, first /server_list/0/host_ip: needed if HCCL_OP_RETRY_ENABLE is on, which is not known",
    }
    env = written(tmp_path, ENV, "job.env")
    (known,) = answered("check", path, "--env", env, exit_code=1)
    assert [(one["code"], one["by"], one["line"]) for one in known["findings"]] == [("HOST_IP_REQUIRED", "doc", 1)]
    (source,) = answered("check", path, "--env", env, "--mode", "source")
    assert [(one["code"], one["severity"]) for one in source["findings"]] == [("HOST_IP_REQUIRED", "warning")]


def test_many_findings_of_a_code_are_counted_and_not_left_out_for_machines(tmp_path: Path) -> None:
    document = a3_document()
    for server in document["server_list"]:
        for die in server["device"]:
            die["device_port"], die["host_port"] = "0", "0"
    path = written(tmp_path, json.dumps(document))
    result = run("check", path)
    assert result.stdout.count("error PORT_RANGE") == 20
    assert f"{path}: … and 12 more of PORT_RANGE (--json of check lists up to 1000)" in result.stdout
    (whole,) = answered("check", path, exit_code=1)
    assert len([one for one in whole["findings"] if one["code"] == "PORT_RANGE"]) == 32


def test_comments_are_refused_with_a_hint_and_left_out_on_wish(tmp_path: Path) -> None:
    path = written(tmp_path, A3_TABLE.replace(' "version"', ' // usable\n "version"', 1))
    result = run("check", path)
    assert result.exit_code == 1
    assert "comments are not JSON: remove them, or give --lenient" in result.stdout
    assert run("check", path, "--lenient").exit_code == 0


CONFIG_MAP = """apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {{name: other, namespace: train}}
  data: {{a: b}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {{name: rings-config-demo, namespace: train}}
  data:
    version: "0"
    hccl.json: |
{table}
"""


def in_config_map(text: str) -> str:
    return CONFIG_MAP.format(table="\n".join(f"      {row}" for row in text.splitlines()))


def test_the_tables_in_a_dump_of_configmaps_are_judged(tmp_path: Path) -> None:
    path = written(tmp_path, in_config_map(A3_TABLE), "rings.yaml")
    (one,) = answered("check", path)
    assert (one["file"], one["errors"]) == (f"{path} rings-config-demo hccl.json", 0)
    initializing = in_config_map(A3_TABLE.replace("completed", "initializing"))
    (not_ready,) = answered("check", written(tmp_path, initializing, "rings.yaml"), exit_code=1)
    assert [finding["code"] for finding in not_ready["findings"]] == ["STATUS_NOT_READY"]
    assert not_ready["stopped"] == "STATUS_NOT_READY"


def places(path: Path) -> list[tuple[int, int]]:
    return [(finding["line"], finding["column"]) for finding in answered("check", path, exit_code=1)[0]["findings"]]


def test_places_in_a_dump_are_lines_and_columns_of_the_file(tmp_path: Path) -> None:
    table = A3_TABLE.replace('"rank_id": "4"', '"rank_id": "0"')
    path = written(tmp_path, in_config_map(table), "rings.yaml")
    (line, column), *_ = places(path)
    assert path.read_text(encoding="utf-8").splitlines()[line - 1][column - 1 :].startswith('"rank_id": "0"}')
    (alone, at), *_ = places(written(tmp_path, table))
    assert (line - alone, column - at) == (13, 6)


def test_equal_tables_in_a_dump_each_have_their_own_place(tmp_path: Path) -> None:
    dump = in_config_map(A3_TABLE.replace('"rank_id": "4"', '"rank_id": "0"'))
    path = written(tmp_path, f"{dump}---\n{dump}", "rings.yaml")
    first, second = (one["findings"][0]["line"] for one in answered("check", path, exit_code=1))
    assert second - first == dump.count("\n") + 1


def test_a_table_that_is_one_quoted_line_of_its_dump_has_its_own_lines(tmp_path: Path) -> None:
    table = A3_TABLE.replace('"rank_id": "4"', '"rank_id": "0"')
    object_ = {"kind": "ConfigMap", "metadata": {"name": "rings-config-demo"}, "data": {"hccl.json": table}}
    assert places(written(tmp_path, json.dumps(object_), "rings.yaml")) == places(written(tmp_path, table))


QUOTED = """\
kind: List
items:
- kind: ConfigMap
  metadata:
    name: rings-config-a
    annotations:
      last-applied-configuration: |
        {{"data":{{"hccl.json":"{{}}"}},"kind":"ConfigMap"}}
    managedFields: [{{fieldsV1: {{"f:data": {{"f:hccl.json": {{}}}}}}}}]
  data:
    "hccl.json": {table}
- kind: ConfigMap
  metadata: {{name: rings-config-b}}
  data:
    version: "1"
    hccl.json: {table}
- kind: ConfigMap
  metadata: {{name: rings-config-c}}
  data:
    hccl.json: |
      {{
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        pytest.param("rings.yaml", QUOTED.format(table=json.dumps('{\n"status":')), [11, 16, None], id="yaml"),
        pytest.param(
            "rings.json",
            json.dumps(
                {
                    "kind": "List",
                    "items": [
                        {
                            "kind": "ConfigMap",
                            "metadata": {"name": "rings-config-a", "annotations": {"last": '{"hccl.json": "{}"}'}},
                            "data": {"hccl.json": '{\n"status":'},
                        },
                        {
                            "kind": "ConfigMap",
                            "metadata": {"name": "rings-config-b"},
                            "data": {"a": "1", "hccl.json": '{\n"status":'},
                        },
                    ],
                },
                indent=1,
            ),
            [13, 23],
            id="json",
        ),
    ],
)
def test_of_a_quoted_table_the_line_of_its_key_stands_behind_the_file(
    tmp_path: Path, name: str, text: str, lines: list[int | None]
) -> None:
    path = written(tmp_path, text, name)
    told = answered("check", path, exit_code=1)
    assert [one["file"] for one in told] == [
        f"{path}{'' if line is None else f':{line}'} rings-config-{job} hccl.json"
        for line, job in zip(lines, "abc", strict=False)
    ]
    for line in filter(None, lines):
        assert "hccl.json" in text.splitlines()[line - 1]
    assert {(one["findings"][0]["line"], one["findings"][0]["code"]) for one in told[:2]} == {(2, "JSON_INVALID")}
    assert f"\n{path}:{lines[1]} rings-config-b hccl.json:2:" in run("check", path).stdout


def test_where_a_key_is_written_in_a_way_that_is_not_found_again_no_line_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, '{"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"hccl\\u002ejson": "{"}}')
    (one,) = answered("check", path, exit_code=1)
    assert one["file"] == f"{path} a hccl.json"


@pytest.mark.parametrize("table", ["", "{", "\n\n", '{\n"status":'], ids=["empty", "open", "blank", "cut off"])
def test_a_broken_table_in_a_dump_is_told_and_breaks_nothing(tmp_path: Path, table: str) -> None:
    (one,) = answered("check", written(tmp_path, in_config_map(table), "rings.yaml"), exit_code=1)
    assert [finding["code"] for finding in one["findings"]] == ["JSON_INVALID"]


def test_a_dump_without_a_table_is_wrong_use(tmp_path: Path) -> None:
    path = written(tmp_path, "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", "pods.yaml")
    result = run("check", path)
    assert isinstance(result.exception, BadUsage)
    assert "rings-config-<job>" in str(result.exception)


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    assert isinstance(run("check", tmp_path / "none.json").exception, CannotRun)
    assert isinstance(run("check", written(tmp_path, A3_TABLE), "--env", tmp_path / "none").exception, CannotRun)


def test_one_environment_is_enough(tmp_path: Path) -> None:
    path = written(tmp_path, A3_TABLE)
    result = run("check", path, "--env", path, "--cluster", path)
    assert isinstance(result.exception, BadUsage)


POD = """apiVersion: v1
kind: Pod
metadata: {{name: p{n}, namespace: train, uid: u{n}}}
spec:
  nodeName: n{n}
  containers:
  - name: main
    command: [python, train.py]
    env:
    - {{name: HCCL_OP_RETRY_ENABLE, value: "{levels}"}}
status: {{phase: Running, hostIP: 172.16.0.10{n}}}
"""


@pytest.mark.parametrize(
    ("levels", "standing"), [("L1:1", "broken"), ("L1:0", "holds"), ("L9", "not judged")], ids=["on", "off", "wrong"]
)
def test_the_environment_is_read_from_the_pods_of_the_cluster(tmp_path: Path, levels: str, standing: str) -> None:
    document = a3_document()
    del document["server_list"][3]["host_ip"]
    document["server_list"][3]["server_id"] = "u3"
    document["super_pod_list"][1]["server_list"][1]["server_id"] = "u3"
    path = written(tmp_path, json.dumps(document))
    pods = written(tmp_path, "---\n".join(POD.format(n=n, levels=levels) for n in range(4)), "pods.yaml")
    result = run("check", path, "--cluster", pods, "--json")
    (answer,) = json.loads(result.stdout)
    assert answer["rules"][0]["standing"] == standing
    assert result.exit_code == (1 if standing == "broken" else 0)


def test_servers_that_no_pod_of_the_cluster_belongs_to_are_why_it_is_not_known(tmp_path: Path) -> None:
    document = a3_document()
    for server in document["server_list"]:
        del server["host_ip"]
    pods = written(tmp_path, "---\n".join(POD.format(n=n, levels="L1:1") for n in range(4)), "pods.yaml")
    result = run("check", written(tmp_path, json.dumps(document)), "--cluster", pods, "--json")
    why = (
        "; 4 of 4 servers have no pod in the cluster (they are matched by the pod's UID, host_ip or the pod's address)"
    )
    rules = {one["code"]: one["why"] for one in json.loads(result.stdout)[0]["rules"]}
    assert rules["HOST_IP_REQUIRED"] == (
        f"4 places, first /server_list/0/host_ip: needed if HCCL_OP_RETRY_ENABLE is on, which is not known{why}"
    )
    assert rules["DEVICE_ID_RANGE"] == f"the devices of 4 of 4 servers are not known{why}"


def test_of_a_folder_the_tables_in_it_are_judged(tmp_path: Path) -> None:
    written(tmp_path, A3_TABLE, "a.json")
    written(tmp_path, "kind: Pod\napiVersion: v1\nmetadata: {name: p, namespace: train}\n", "b.yaml")
    written(tmp_path, in_config_map(A3_TABLE), "c.yaml")
    assert [one["file"].split()[0] for one in answered("check", tmp_path, exit_code=1)] == [
        str(tmp_path / "a.json"),
        str(tmp_path / "c.yaml"),
    ]


@pytest.mark.parametrize("asked", ["train.demo/hccl.json", "train.demo"], ids=["the file", "the job's folder"])
def test_a_table_on_a_shared_volume_is_read_beside_its_version_file(tmp_path: Path, asked: str) -> None:
    (tmp_path / "train.demo").mkdir()
    path = written(tmp_path / "train.demo", A3_TABLE, "hccl.json")
    written(tmp_path / "train.demo", "1767225600000", "version")
    (one,) = answered("check", tmp_path / asked)
    assert (one["file"], one["version"], one["errors"]) == (str(path), "1.2", 0)


def test_a_folder_without_a_table_is_wrong_use(tmp_path: Path) -> None:
    assert "no file of" in str(run("check", tmp_path).exception)


def test_tables_given_together_are_those_of_processes_that_share_chips(tmp_path: Path) -> None:
    paths = [written(tmp_path, A3_TABLE, name) for name in ("a.json", "b.json")]
    first, second = answered("check", *paths, exit_code=1)
    assert (first["errors"], {one["code"] for one in second["findings"]}) == (0, {"SHARED_PORT"})
    assert second["findings"][0]["message"].endswith(f"by {paths[0]} too")
    assert {one["line"] > 0 for one in second["findings"]} == {True}
