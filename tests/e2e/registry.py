#!/usr/bin/env python3
"""A registry of images for the end-to-end tests: read only, by TLS, for one user with a password.

    registry.py ADDRESS:PORT CERTIFICATE KEY USER:PASSWORD REPOSITORY TAG ARCHIVE

serves the image of an archive, as buildah writes it for Docker, under this name and tag, and prints its digest. Each request is
a line of its log on standard error: the status, the method and the path.
"""
import base64, hashlib, http.server, json, ssl, sys, tarfile

OCI = "application/vnd.oci.image"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read(archive):
    """The digest of the image's manifest, and all that it consists of: media type and bytes, by digest."""
    blobs = {}

    def keep(kind, data):
        blobs[digest(data)] = (f"{OCI}.{kind}", data)
        return {"mediaType": f"{OCI}.{kind}", "digest": digest(data), "size": len(data)}

    with tarfile.open(archive) as tar:
        def member(name):
            return tar.extractfile(name).read()

        [image] = json.loads(member("manifest.json"))
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": keep("config.v1+json", member(image["Config"])),
            "layers": [keep("layer.v1.tar", member(name)) for name in image["Layers"]],
        }
    return keep("manifest.v1+json", json.dumps(manifest).encode())["digest"], blobs


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, kind, data, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_GET(self):
        if self.headers.get("Authorization") != self.server.credentials:
            self.answer(401, "application/json", b"{}", [("WWW-Authenticate", 'Basic realm="registry"')])
            return
        path = self.path.removeprefix("/v2/")
        if path == "":
            self.answer(200, "application/json", b"{}")
            return
        name, _, reference = path.rpartition("/")
        repository, _, _ = name.rpartition("/")
        reference = self.server.manifest if reference == self.server.tag else reference
        if repository != self.server.repository or reference not in self.server.blobs:
            self.answer(404, "application/json", b"{}")
            return
        kind, data = self.server.blobs[reference]
        self.answer(200, kind, data, [("Docker-Content-Digest", reference)])

    do_HEAD = do_GET

    def log_request(self, code="-", size="-"):
        print(int(code), self.command, self.path, file=sys.stderr, flush=True)


def main():
    address, certificate, key, credentials, repository, tag, archive = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    server = http.server.ThreadingHTTPServer((host, int(port)), Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.credentials = "Basic " + base64.b64encode(credentials.encode()).decode()
    server.repository, server.tag = repository, tag
    server.manifest, server.blobs = read(archive)
    print(server.manifest, flush=True)
    server.serve_forever()


main()
