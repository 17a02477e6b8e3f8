"""Each recipe of docs/sources/recipes.md reads its data, in a join without Spark; its first tuple is of its time."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.request.request import request_of
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spool.writer import SpoolWriter
from tests.support.documents import page

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RECIPES = re.split(r"^## ", page("docs/sources/recipes.md").text, flags=re.MULTILINE)[1:]
_DATA = re.compile(r"^`([^`]+)`(?:, messages of `([^`]+)`)?:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STANZA = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIRST = re.compile(r"^The first tuple is of (\S+Z)\.$", re.MULTILINE)


@pytest.mark.parametrize("recipe", _RECIPES, ids=lambda text: text.splitlines()[0])
def test_a_recipe_reads_its_data(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, topic, text = _DATA.findall(recipe)[0]
    if topic:
        with SpoolWriter(Path(name)) as writer:
            writer.append([(topic.encode(), line.encode()) for line in text.splitlines()])
    else:
        Path(name).write_text(text)
    (stanza,) = _STANZA.findall(recipe)
    (stream,) = tomllib.loads(stanza)["streams"]
    (first,) = _FIRST.findall(recipe)
    moment = datetime.fromisoformat(first.replace("Z", "+00:00"))
    beside = [f"{(moment + timedelta(seconds=n)).astimezone(timezone.utc).isoformat()},{n}" for n in range(0, 600, 10)]
    Path("clock.csv").write_text("\n".join(["ts,n", *beside, ""]))
    join = 'window = "0s"\non = ["clock.n >= 0"]\n'
    Path("join.toml").write_text(f'{join}\n{stanza}\n[streams.clock]\nsource = "clock.csv"\n')
    request = request_of(Path("join.toml"), {})
    request.join.run_local("matches", "checkpoint", available_now=True).awaitTermination()
    found = scanned(DeltaTable("matches")).to_table()
    rejects = scanned(DeltaTable("matches_rejects")).to_table().to_pylist()
    assert not rejects
    assert found["event_time"].to_pylist()[0] == moment
    assert f"{stream}_seq" in found.column_names
