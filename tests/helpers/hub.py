"""A small Hub on the loopback device: the endpoints that an upload uses, real HTTP, files kept in memory.

It speaks the plain LFS protocol, not Xet. What it cannot show: the Hub's own rules on names, sizes and rights.
"""

import base64
import json
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """``repos``: visibility by name; ``files``: content by path; ``commits``: their messages; ``refuse``: a status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, bool] = {}
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}
        self.sent: list[str] = []
        self.commits: list[str] = []
        self.refuse = 0
        self.break_after: int | None = None  # uploads after which the connection is refused

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self) -> None:
        self.answer({"error": "Repository not found"}, 404) if not self.server.repos else self.answer({"siblings": []})

    def do_POST(self) -> None:
        hub, content = self.server, self.body()
        if hub.refuse:
            self.answer({"error": "not today"}, hub.refuse)
        elif self.path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            status = 409 if name in hub.repos else 200
            hub.repos.setdefault(name, asked.get("private", asked.get("visibility") == "private"))
            self.answer({"url": f"{hub.url}/{name}", "name": name}, status)
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(content)["files"]
            chosen = [{"path": f["path"], "uploadMode": _mode(f["path"]), "shouldIgnore": False} for f in files]
            self.answer({"files": chosen})
        elif self.path.endswith("/info/lfs/objects/batch"):
            self.answer(
                {"transfer": "basic", "objects": [self.place(entry) for entry in json.loads(content)["objects"]]}
            )
        elif "/commit/" in self.path:
            self.commit([json.loads(line) for line in content.splitlines()])
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    def place(self, entry: dict) -> dict:
        """Where a large file is to be sent; nowhere if it is here."""
        there = entry["oid"] in self.server.large
        action = {"upload": {"href": f"{self.server.url}/upload/{entry['oid']}"}}
        return {"oid": entry["oid"], "size": entry["size"], **({} if there else {"actions": action})}

    def do_PUT(self) -> None:
        hub, content = self.server, self.body()
        oid = self.path.rpartition("/")[2]
        if hub.break_after is not None and len(hub.sent) >= hub.break_after:
            self.answer({"error": "broken"}, 403)
            return
        assert sha256(content).hexdigest() == oid
        hub.large[oid] = content
        hub.sent.append(oid)
        self.answer({})

    def commit(self, lines: list[dict]) -> None:
        hub = self.server
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                hub.commits.append(value["summary"])
            elif line["key"] == "file":
                hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                hub.files[value["path"]] = hub.large[value["oid"]]
        oid = sha256(str(len(hub.commits)).encode()).hexdigest()[:40]
        self.answer({"commitUrl": f"{hub.url}/{next(iter(hub.repos))}/commit/{oid}", "commitOid": oid, "success": True})


def _mode(path: str) -> str:
    return "lfs" if path.endswith(".safetensors") else "regular"
