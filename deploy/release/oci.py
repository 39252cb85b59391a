#!/usr/bin/env python3
"""Writes image layouts of files alone, which need no container runtime: the bundle's image, and an image's signature in the
form in which cosign stores and finds it.

    oci.py bundle FOLDER TAG LAYOUT               the image of FOLDER's manifests and metadata, with its Dockerfile's labels
    oci.py signature IMAGE DIGEST KEY LAYOUT      KEY's signature of the image IMAGE (without tag) with this DIGEST

Prints the digest of what it wrote. SOURCE_DATE_EPOCH is the time in it. The key is any that openssl signs with: Ed25519 signs
the payload itself, every other one the SHA-256 of it, which is how cosign verifies them.
"""

import base64
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
# The files are for every machine, but a node takes an image only for its own.
ARCHITECTURES = ("amd64", "arm64")


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def encoded(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


class Layout:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "blobs/sha256").mkdir(parents=True)

    def blob(self, data, kind, **more):
        digest = digest_of(data)
        (self.folder / "blobs" / digest.replace(":", "/")).write_bytes(data)
        return {"mediaType": kind, "digest": digest, "size": len(data), **more}

    def manifest(self, config, layers, **more):
        content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        return self.blob(encoded(content), MANIFEST, **more)

    def finish(self, top, tag):
        named = {**top, "annotations": {"org.opencontainers.image.ref.name": tag}}
        (self.folder / "index.json").write_bytes(encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}))
        (self.folder / "oci-layout").write_bytes(encoded({"imageLayoutVersion": "1.0.0"}))
        return top["digest"]


def config(layer, architecture="", system="", labels=None):
    """An image's configuration; `layer` is what the only layer holds when it is unpacked. A signature is for no machine."""
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return encoded(
        {
            "architecture": architecture,
            "os": system,
            "created": created,
            "config": {"Labels": labels} if labels else {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        }
    )


def packed(folder, names):
    """A tar of these folders, in which nothing tells who made it, or when."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for name in names for path in [folder / name, *(folder / name).rglob("*")]):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.mtime, entry.mode = EPOCH, 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def labels_of(dockerfile):
    lines = [line.removeprefix("LABEL ") for line in dockerfile.read_text().splitlines() if line.startswith("LABEL ")]
    return dict(line.split("=", 1) for line in lines)


def bundle(folder, tag, layout):
    folder = pathlib.Path(folder)
    plain = packed(folder, ("manifests", "metadata"))
    labels = labels_of(folder / "Dockerfile")
    layer = layout.blob(gzip.compress(plain, mtime=0), LAYER)
    images = []
    for architecture in ARCHITECTURES:
        described = layout.blob(config(plain, architecture, "linux", labels), CONFIG)
        platform = {"architecture": architecture, "os": "linux"}
        images.append(layout.manifest(described, [layer], platform=platform))
    top = layout.blob(encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": images}), INDEX)
    return layout.finish(top, tag)


def signed(data, key):
    tool = lambda *words, **more: subprocess.run(["openssl", *words], check=True, stdout=subprocess.PIPE, **more).stdout
    if tool("pkey", "-in", key, "-noout", "-text").lower().startswith(b"ed25519"):
        # openssl reads what Ed25519 signs from a file alone.
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return tool("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", file.name)
    return tool("dgst", "-sha256", "-sign", key, input=data)


def signature(image, digest, key, layout):
    critical = {
        "identity": {"docker-reference": image},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    payload = encoded({"critical": critical, "optional": None})
    annotations = {SIGNATURE: base64.b64encode(signed(payload, key)).decode()}
    layer = layout.blob(payload, PAYLOAD, annotations=annotations)
    described = layout.blob(config(payload), CONFIG)
    return layout.finish(layout.manifest(described, [layer]), f"{digest.replace(':', '-')}.sig")


def main(arguments):
    match arguments:
        case ["bundle", folder, tag, out]:
            print(bundle(folder, tag, Layout(out)))
        case ["signature", image, digest, key, out]:
            print(signature(image, digest, key, Layout(out)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
