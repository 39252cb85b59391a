#!/usr/bin/env python3
"""What is in the folder that make release wrote, checked file by file: that each is there, names the right image and the right
digests, and contains the same binary as the others. Runs nothing of it.

    tests/release/check.py FOLDER IMAGE URL             IMAGE and URL as they were given to make release
    tests/release/check.py --pieces FOLDER IMAGE URL    what tests/release/pieces.sh makes: no image and no bill of materials,
                                                        and binaries that are none
"""

import gzip
import hashlib
import io
import json
import pathlib
import re
import struct
import subprocess
import sys
import tarfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"amd64": 0x3E, "arm64": 0xB7}  # e_machine of ELF
PLUGINS = ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64"]
COMMITTED = int(subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=True, stdout=subprocess.PIPE).stdout)
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def members(data):
    """The files of an archive with their contents. Owner, time and mode must not tell who made it, or when."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {}
        for entry in archive:
            expect((entry.uid, entry.gid) == (0, 0) and {entry.uname, entry.gname} <= {"", "root"}, f"{entry.name} has the owner {entry.uname or entry.uid}")
            expect(not entry.mode & 0o022 and entry.mode & 0o044 == 0o044 or entry.name.endswith("host.env"), f"{entry.name} has the mode {entry.mode:o}")
            expect(entry.mtime == COMMITTED, f"{entry.name} has another time than the commit")
            if entry.isfile():
                found[entry.name.removeprefix("./")] = archive.extractfile(entry).read()
        return found


def is_static(binary, architecture, what):
    expect(binary[:4] == b"\x7fELF", f"{what} is no ELF binary")
    expect(struct.unpack_from("<H", binary, 18)[0] == MACHINES[architecture], f"{what} is not for {architecture}")
    offset, size, count = struct.unpack_from("<Q", binary, 32)[0], *struct.unpack_from("<HH", binary, 54)
    kinds = {struct.unpack_from("<I", binary, offset + size * at)[0] for at in range(count)}
    expect(3 not in kinds, f"{what} asks for a dynamic linker")  # PT_INTERP


def is_plugin(binary, name):
    system, architecture = name.split("-")
    if system == "linux":
        is_static(binary, architecture, f"the plugin for {name}")
    elif system == "darwin":
        kind = {"amd64": 0x01000007, "arm64": 0x0100000C}[architecture]
        expect(struct.unpack_from("<II", binary, 0) == (0xFEEDFACF, kind), f"the plugin for {name} is no such Mach-O binary")
    else:
        at = struct.unpack_from("<I", binary, 0x3C)[0]
        expect(binary[:2] == b"MZ" and binary[at : at + 6] == b"PE\0\0\x64\x86", f"the plugin for {name} is no such PE binary")


class Release:
    def __init__(self, folder, image, url, pieces):
        self.folder, self.image, self.url, self.pieces = pathlib.Path(folder), image, url, pieces
        self.version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        self.pinned = (self.folder / "image.txt").read_text().strip()

    def read(self, name):
        return (self.folder / name.replace("VERSION", self.version)).read_bytes()

    def names(self):
        files = ["quorate-VERSION.tgz", "install.yaml", "quorate-VERSION-kustomize.tar.gz", "quorate-VERSION-olm-bundle.tar.gz"]
        files += ["quorate-VERSION-olm-bundle-image.tar", "olm-bundle-image.txt"]
        files += ["quorate.krew.yaml", "image.txt"] + [f"kubectl-quorate-VERSION-{one}.tar.gz" for one in PLUGINS]
        files += [f"quorate_VERSION_{one}.deb" for one in MACHINES]
        if not self.pieces:
            files += [f"quorate-VERSION-linux-{one}.tar.gz" for one in MACHINES]
            files += ["quorate-VERSION-image.tar", "quorate-VERSION.cdx.json", "SHA256SUMS"]
        signed = (self.folder / "SHA256SUMS.sig").exists()
        if signed:
            files += ["SHA256SUMS.sig", "SHA256SUMS.pub"]
        if signed or self.pieces:
            files += ["quorate-VERSION-image.sig.tar", "quorate-VERSION-olm-bundle-image.sig.tar"]
        wanted = {name.replace("VERSION", self.version) for name in files}
        found = {path.name for path in self.folder.iterdir()}
        expect(found == wanted, f"too much or too little: {sorted(found ^ wanted)}")

    def sums(self):
        listed = dict(reversed(line.split("  ", 1)) for line in self.read("SHA256SUMS").decode().splitlines())
        signatures = lambda name: name.startswith("SHA256SUMS") or name.endswith(".sig.tar")
        there = {path.name: sha256(path.read_bytes()) for path in self.folder.iterdir() if not signatures(path.name)}
        expect(listed == there, "SHA256SUMS is not of the files beside it")

    def layout(self, name):
        """The manifests at the top of an archive of an image layout, and what reads a part of it."""
        layout = members(self.read(name))
        expect(json.loads(layout["oci-layout"])["imageLayoutVersion"] == "1.0.0", f"{name} is no image layout")
        for file, data in layout.items():
            if file.startswith("blobs/"):
                expect(file.endswith(sha256(data)), f"{file} of {name} is not the digest of what it holds")
        return json.loads(layout["index.json"])["manifests"], lambda digest: layout[f"blobs/{digest.replace(':', '/')}"]

    def oci(self):
        """The image: both architectures, each layer with the binary of the archive for hosts."""
        top, blob = self.layout("quorate-VERSION-image.tar")
        expect(len(top) == 1 and self.pinned == f"{self.image}:{self.version}@{top[0]['digest']}", f"image.txt is {self.pinned}")
        images = json.loads(blob(top[0]["digest"]))["manifests"]
        expect({one["platform"]["architecture"] for one in images} == set(MACHINES), "the image has other architectures")
        for one in images:
            architecture = one["platform"]["architecture"]
            manifest = json.loads(blob(one["digest"]))
            config = json.loads(blob(manifest["config"]["digest"]))
            expect(config["architecture"] == architecture, f"an image says {config['architecture']} and {architecture}")
            expect(config["config"]["User"] == "65532:65532" and config["config"]["Entrypoint"] == ["/quorate"], "user or entry point")
            expect(config["config"]["Labels"]["org.opencontainers.image.version"] == self.version, "the image's label has another version")
            binaries = [files["quorate"] for layer in manifest["layers"] if "quorate" in (files := members(blob(layer["digest"])))]
            host = members(self.read(f"quorate-VERSION-linux-{architecture}.tar.gz"))["quorate"]
            expect(binaries == [host], f"the image for {architecture} has another binary than the archive")
            is_static(host, architecture, f"the server for {architecture}")

    def chart(self):
        files = members(self.read("quorate-VERSION.tgz"))
        chart, values = (yaml.safe_load(files[f"quorate/{name}"]) for name in ("Chart.yaml", "values.yaml"))
        expect((chart["version"], chart["appVersion"]) == (self.version, self.version), "the chart has another version")
        named = "/".join(filter(None, [values["image"]["registry"], values["image"]["repository"]]))
        expect(named == self.image, f"the chart's image is {named}")
        expect(f"`{values['image']['repository']}`" in files["quorate/README.md"].decode(), "the chart's README has other defaults")
        expect(self.pinned in chart["annotations"]["artifacthub.io/images"], "the chart's annotation has another image")

    def install(self):
        text = self.read("install.yaml").decode()
        images = set(re.findall(r"(?:image: |--image=)(\S+)$", text, re.M))
        expect(images == {self.pinned}, f"install.yaml has the images {images}")
        kustomize = members(self.read("quorate-VERSION-kustomize.tar.gz"))
        expect(kustomize["install.yaml"].decode() == text, "the base of kustomize has another install.yaml")
        expect(yaml.safe_load(kustomize["kustomization.yaml"])["resources"] == ["install.yaml"], "the base has other resources")

    def bundle(self):
        files = members(self.read("quorate-VERSION-olm-bundle.tar.gz"))
        crds = {f"manifests/{path.name}": path.read_bytes() for path in (ROOT / "crds").iterdir()}
        expect(crds.items() <= files.items(), "the bundle has other definitions")
        csv = yaml.safe_load(files["manifests/quorate.clusterserviceversion.yaml"])
        spec, examples = csv["spec"], json.loads(csv["metadata"]["annotations"]["alm-examples"])
        expect(csv["metadata"]["name"] == f"quorate.v{self.version}" and spec["version"] == self.version, "the bundle has another version")
        kinds = sorted(one["kind"] for one in spec["customresourcedefinitions"]["owned"])
        expect(kinds == sorted(one["kind"] for one in examples), f"the bundle owns {kinds}, and not each has an example")
        expect(len(kinds) == len(crds), "the bundle does not own every definition")
        expect(spec["relatedImages"] == [{"name": "quorate", "image": self.pinned}], "the bundle names another image")
        pod = spec["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        expect(container["image"] == self.pinned and f"--image={self.pinned}" in container["args"], "the bundle runs another image")
        expect(not {"runAsUser", "runAsGroup"} & pod["securityContext"].keys(), "the bundle names a user, which OpenShift refuses")
        targets = [one for one in container["env"] if one["name"] == "QUORATE_WATCH_NAMESPACES"]
        expect(len(targets) == 1 and "olm.targetNamespaces" in str(targets), "the operator is not told its namespaces")
        expect(all(mode["supported"] for mode in spec["installModes"]) and len(spec["installModes"]) == 4, "install modes")
        rights = spec["install"]["spec"]
        rules = lambda *names: [rule for name in names for rule in yaml.safe_load((ROOT / f"charts/quorate/files/rules-{name}.yaml").read_text())]
        expect(rights["permissions"][0]["rules"] == rules("namespaced", "lease"), "the bundle has other rights than the chart")
        expect(rights["clusterPermissions"][0]["rules"] == rules("cluster"), "the bundle has other rights in the cluster than the chart")
        for granted in rights["permissions"] + rights["clusterPermissions"]:
            expect(granted["serviceAccountName"] == pod["serviceAccountName"] and granted["rules"], "rights for another account, or none")

    def bundle_image(self):
        """The bundle as an image: its labels, and in its only layer what the archive has, for both architectures."""
        top, blob = self.layout("quorate-VERSION-olm-bundle-image.tar")
        named = self.read("olm-bundle-image.txt").decode().strip()
        expect(len(top) == 1 and named == f"{self.image}-bundle:{self.version}@{top[0]['digest']}", f"olm-bundle-image.txt is {named}")
        expect(top[0]["annotations"]["org.opencontainers.image.ref.name"] == self.version, "the bundle's image has another tag")
        files = members(self.read("quorate-VERSION-olm-bundle.tar.gz"))
        labels = yaml.safe_load(files["metadata/annotations.yaml"])["annotations"]
        wanted = {name: data for name, data in files.items() if name != "Dockerfile"}
        images = json.loads(blob(top[0]["digest"]))["manifests"]
        expect([one["platform"] for one in images] == [{"architecture": one, "os": "linux"} for one in MACHINES], "the bundle's image has other architectures")
        for one in images:
            manifest = json.loads(blob(one["digest"]))
            config = json.loads(blob(manifest["config"]["digest"]))
            expect(config["config"]["Labels"] == labels, f"the labels of the bundle's image are {config['config']['Labels']}")
            expect({"architecture": config["architecture"], "os": config["os"]} == one["platform"], "the bundle's image says another platform")
            layers = [blob(layer["digest"]) for layer in manifest["layers"]]
            expect(len(layers) == 1 and members(layers[0]) == wanted, "the bundle's image has other files than the bundle")
            unpacked = [f"sha256:{sha256(gzip.decompress(layer))}" for layer in layers]
            expect(config["rootfs"]["diff_ids"] == unpacked, "the bundle's image has another layer than its configuration says")
        for part in [top[0], *images]:
            expect(part["size"] == len(blob(part["digest"])), "a size in the bundle's image")

    def replaced(self):
        """The bundle names the release before this one, of those that the changelog names with their commits."""
        releases = re.findall(r"^## (\S+)\n\nCommit ", (ROOT / "CHANGELOG.md").read_text(), re.M)
        earlier = [one for one in releases if one != self.version]
        csv = yaml.safe_load(members(self.read("quorate-VERSION-olm-bundle.tar.gz"))["manifests/quorate.clusterserviceversion.yaml"])
        expect(csv["spec"].get("replaces") == (f"quorate.v{earlier[0]}" if earlier else None), f"the bundle replaces {csv['spec'].get('replaces')}")

    def signatures(self):
        """Of each image one, of its digest. Whether the key fits is for openssl to say (signature.sh)."""
        if not (self.folder / f"quorate-{self.version}-image.sig.tar").exists():
            return
        for name, text in (("image", self.pinned), ("olm-bundle-image", self.read("olm-bundle-image.txt").decode().strip())):
            digest = text.split("@")[1]
            top, blob = self.layout(f"quorate-VERSION-{name}.sig.tar")
            tag = top[0]["annotations"]["org.opencontainers.image.ref.name"]
            expect(len(top) == 1 and tag == digest.replace(":", "-") + ".sig", f"the signature of the {name} has the tag {tag}")
            layers = json.loads(blob(top[0]["digest"]))["layers"]
            payload = json.loads(blob(layers[0]["digest"]))["critical"]
            expect(payload["image"] == {"docker-manifest-digest": digest}, f"the signature of the {name} is of {payload['image']}")

    def plugins(self):
        krew = yaml.safe_load(self.read("quorate.krew.yaml"))
        expect(krew["spec"]["version"] == f"v{self.version}", "krew's manifest has another version")
        platforms = {"-".join(one["selector"]["matchLabels"].values()): one for one in krew["spec"]["platforms"]}
        expect(sorted(platforms) == sorted(PLUGINS), f"krew's manifest has the platforms {sorted(platforms)}")
        for name, platform in platforms.items():
            file = f"kubectl-quorate-{self.version}-{name}.tar.gz"
            data = self.read(file)
            expect(platform["uri"] == f"{self.url}/{file}" and platform["sha256"] == sha256(data), f"krew's manifest is not of {file}")
            files = members(data)
            expect(set(files) == {"LICENSE", platform["bin"]}, f"{file} has {sorted(files)}")
            if not self.pieces:
                is_plugin(files[platform["bin"]], name)

    def debian(self):
        for architecture in MACHINES:
            path = self.folder / f"quorate_{self.version}_{architecture}.deb"
            fields = dict(line.split(": ", 1) for line in tool("dpkg-deb", "--field", path).decode().splitlines() if not line.startswith(" "))
            expect((fields["Version"], fields["Architecture"]) == (self.version, architecture), f"{path.name} says {fields}")
            files = members(tool("dpkg-deb", "--fsys-tarfile", path))
            expect(b"ExecStart=/usr/bin/quorate server" in files["usr/lib/systemd/system/quorate.service"], "the unit runs another binary")
            if not self.pieces:
                host = members(self.read(f"quorate-VERSION-linux-{architecture}.tar.gz"))["quorate"]
                expect(files["usr/bin/quorate"] == host, f"{path.name} has another binary than the archive")

    def materials(self):
        bom = json.loads(self.read("quorate-VERSION.cdx.json"))
        expect(bom["bomFormat"] == "CycloneDX" and bom["metadata"]["component"]["name"] == "quorate", "no bill of materials of quorate")
        names = {one["name"] for one in bom["components"]}
        expect({"tokio", "rustls", "aws-lc-sys", "kube-client", "quorate-core", "quorate-planner"} <= names, "the bill lacks crates")
        unlicensed = [one["name"] for one in bom["components"] if not one.get("licenses")]
        expect(not unlicensed, f"the bill names no licence of {unlicensed}")


def tool(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def main(arguments):
    pieces = arguments[:1] == ["--pieces"]
    if len(arguments) != 3 + pieces:
        sys.exit(__doc__)
    release = Release(*arguments[pieces:], pieces)
    checks = [release.names, release.chart, release.install, release.bundle, release.bundle_image, release.replaced]
    checks += [release.signatures, release.plugins, release.debian]
    if not pieces:
        checks += [release.sums, release.oci, release.materials]
    for check in checks:
        check()
    for failure in failures:
        print(f"release: {failure}")
    if failures:
        sys.exit(1)
    print(f"release: {release.version}, {len(checks)} checks of {len(list(release.folder.iterdir()))} files passed")


if __name__ == "__main__":
    main(sys.argv[1:])
