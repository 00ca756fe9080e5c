"""Ensures a sandbox, runs a command, writes, lists and reads a file, and deletes the sandbox, by a
client that is generated from the served description."""

import io
import os

from issuebox_api.client import AuthenticatedClient
from issuebox_api.api.sandboxes import delete_sandbox, ensure_sandbox
from issuebox_api.api.work import exec_in_sandbox, list_files, read_file, write_file
from issuebox_api.models import (
    EnsureRequest,
    ErrorCode,
    ExecCall,
    Failure,
    FileKind,
    Outcome,
    Phase,
)
from issuebox_api.types import File

api = AuthenticatedClient(
    base_url=os.environ["ISSUEBOX_URL"],
    token=os.environ["ISSUEBOX_TOKEN"],
    timeout=60,
)

ensured = ensure_sandbox.sync(
    client=api, body=EnsureRequest(issue_id="python-client"), wait=30
)
assert ensured.outcome == Outcome.CREATED, ensured
assert ensured.data.phase == Phase.RUNNING, ensured
assert ensured.data.created_at.tzinfo is not None, ensured
sandbox = ensured.data.id

ran = exec_in_sandbox.sync(sandbox, client=api, body=ExecCall(command=["echo", "hello"]))
assert (ran.data.exit_code, ran.data.stdout) == (0, "hello\n"), ran

written = write_file.sync_detailed(
    sandbox, client=api, path="notes/a.txt", body=File(payload=io.BytesIO(b"some bytes"))
)
assert written.status_code == 201, written
entries = list_files.sync(sandbox, client=api, path="notes").data.entries
assert [(entry.kind, entry.size) for entry in entries] == [(FileKind.FILE, 10)], entries
assert read_file.sync(sandbox, client=api, path="notes/a.txt").payload.read() == b"some bytes"

missing = read_file.sync(sandbox, client=api, path="missing")
assert isinstance(missing, Failure), missing
assert missing.error.code == ErrorCode.FILE_NOT_FOUND, missing

deleted = delete_sandbox.sync(sandbox, client=api, wait=30)
assert deleted.data.phase is None, deleted
print("ok")
