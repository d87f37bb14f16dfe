"""`ranktable backup`: what it prints is what `ranktable check` passes."""

import json
from pathlib import Path

from a3table import A3_TABLE, a3_document
from click.testing import CliRunner

from agent.app.cli.ranktable import ranktable
from agent.app.cli.ranktablebackup import backup_command
from agent.errors import BadUsage


def bare() -> str:
    document = a3_document()
    for server in document["server_list"]:
        for die in server["device"]:
            del die["backup_device_ip"], die["backup_device_port"]
    return json.dumps(document)


def test_what_is_printed_is_a_table_that_check_passes(tmp_path: Path) -> None:
    path, made, env = tmp_path / "hccl.json", tmp_path / "with.json", tmp_path / "job.env"
    path.write_text(bare(), encoding="utf-8")
    env.write_text("HCCL_OP_RETRY_ENABLE=L1:1,L2:1\n", encoding="utf-8")
    result = CliRunner().invoke(backup_command, [str(path)])
    assert result.exit_code == 0
    assert result.stderr == f"{path}: added: backups 16, ports 16\n"
    made.write_text(result.stdout, encoding="utf-8")
    checked = CliRunner().invoke(ranktable, ["check", str(made), "--env", str(env), "--json"])
    assert checked.exit_code == 0
    (answer,) = json.loads(checked.stdout)
    assert answer["findings"] == []


def test_where_nothing_can_be_proposed_nothing_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "hccl.json"
    path.write_text(bare().replace('"host_ip": "172.16.0.101", ', ""), encoding="utf-8")
    result = CliRunner().invoke(backup_command, [str(path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "/server_list/1/host_ip: HOST_IP_REQUIRED" in result.stderr


def test_of_several_tables_none_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "rings.json"
    maps = [{"kind": "ConfigMap", "metadata": {"name": name}, "data": {"hccl.json": A3_TABLE}} for name in "ab"]
    path.write_text(json.dumps({"kind": "List", "items": maps}), encoding="utf-8")
    assert isinstance(CliRunner().invoke(backup_command, [str(path)]).exception, BadUsage)
