"""The files with which a service manager starts a join again: their managers read them, and the join in them starts."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from streamjoin_ds.cli.run import command
from streamjoin_ds.request.request import request_of

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def flags_of(arguments: list[str]) -> list[str]:
    """Return the flags of `streamjoin run` that a command has, once the command itself has read them."""
    assert arguments[:2] == ["streamjoin", "run"]
    return [name for name, value in command.make_context("run", arguments[2:]).params.items() if value]


def test_the_unit_of_systemd() -> None:
    text = (DEPLOY / "streamjoin.service").read_text(encoding="utf-8")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(text)
    start = shlex.split(unit["Service"]["ExecStart"])
    assert flags_of(start[start.index("streamjoin") :]) == ["config", "restart"]
    assert unit["Service"]["RestartPreventExitStatus"] == "2"  # of an error that a restart cannot mend
    if shutil.which("systemd-analyze"):
        asked = ["systemd-analyze", "verify", str(DEPLOY / "streamjoin.service")]
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, "")


def test_the_manifest_of_kubernetes(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    config, pods = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (config["kind"], pods["kind"], pods["spec"]["replicas"]) == ("ConfigMap", "StatefulSet", 1)
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert flags_of(container["args"]) == ["config"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"][-1] == f"{mounted['config']}/{next(iter(config['data']))}"
    (tmp_path / "join.toml").write_text(config["data"]["join.toml"], encoding="utf-8")
    request = request_of(tmp_path / "join.toml", {})
    assert request.run == {"restart": True}
    assert all(str(path).startswith(mounted["data"]) for path in (request.to, request.checkpoint))
