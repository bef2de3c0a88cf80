"""From drawn films to a viewer with search, by commands as an operator types them, with a real archive."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.browser.test_reading import install_ohif
from tests.e2e.work import COMMAND
from tests.needed import needed
from tests.orthanc import INSTALL, find_orthanc, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMANDS: Final = """
mkdir -p trial && cd trial
recoquest sample-data samples --images 200 --dicom
recoquest train demo-radiographs --data samples/radiographs --out run
cat > orthanc.json <<'END'
{
  "StorageDirectory": "archive", "IndexDirectory": "archive", "HttpPort": 8042, "DicomServerEnabled": false,
  "RemoteAccessAllowed": false, "AuthenticationEnabled": false,
  "Plugins": [
    "/usr/share/orthanc/plugins/libOrthancDicomWeb.so", "/usr/share/orthanc/plugins/libOrthancGdcm.so"
  ],
  "DicomWeb": { "Enable": true, "Root": "/dicom-web/", "StudiesMetadata": "Full", "SeriesMetadata": "Full" }
}
END
/usr/sbin/Orthanc orthanc.json > orthanc.log 2>&1 &
until curl -sf localhost:8042/system > stored.json; do sleep 1; done
for film in samples/dicom/*; do curl -sf -o stored.json --data-binary @"$film" localhost:8042/instances; done
export RECOQUEST_HOME=$PWD/home RECOQUEST_PACS_URL=http://localhost:8042/dicom-web RECOQUEST_DICOMWEB=true
export RECOQUEST_PACS_SYNC=films
recoquest pacs sync films --bundle run/bundle
KEY=$(recoquest keys create reader --role judge --role curator)
recoquest worker > worker.log 2>&1 &
recoquest serve > serve.log 2>&1 &
until curl -sf localhost:8000/readyz > ready.json; do sleep 1; done
STUDY=$(curl -sf -H "Authorization: Bearer $KEY" localhost:8000/dicomweb/studies |
  python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["0020000D"]["Value"][0])')
echo "http://localhost:8000/reading#study=$STUDY with the key $KEY"
"""
CHECKS: Final = """
curl -sf -H "Authorization: Bearer $KEY" localhost:8000/v1/studies/$STUDY/similar > similar.json
curl -sf localhost:8000/reading > reading.html
curl -sf localhost:8000/viewer > viewer.html
kill $(jobs -p)
wait
"""


def test_the_commands_lead_from_nothing_to_similar_cases_in_a_viewer(tmp_path: Path) -> None:
    needed(find_orthanc(), "Orthanc", INSTALL)
    (tmp_path / "trial" / "home").mkdir(parents=True)
    install_ohif(tmp_path / "trial" / "home")
    program = tmp_path / "bin" / "recoquest"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    archive, service = str(free_port()), str(free_port())
    script = f"{COMMANDS}{CHECKS}".replace("8042", archive).replace("localhost:8000", f"localhost:{service}")
    script = script.replace("recoquest serve", f"recoquest serve --port {service}")
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "RECOQUEST_DEVICE": "cpu"}
    running = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, errors = running.communicate(timeout=800)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, errors
    assert re.search(r"200 instances found = 200 taken", said), said
    similar = json.loads((tmp_path / "trial" / "similar.json").read_text())
    assert (similar["state"], similar["collection"]) == ("indexed", "films")
    assert len(similar["hits"]) == 10
    assert re.search(rf"http://localhost:{service}/reading#study=[\d.]+ with the key \S+", said), said
    assert "app.bundle" in (tmp_path / "trial" / "viewer.html").read_text()
