"""An application that has nothing but the files of a connection Secret, with the Python client
etcd-sdk-python: connect.py DIRECTORY OTHER. The CA of OTHER is not that of the members.

Prints a line for each chapter that passed. A line that begins with "please" is a request to
the test around it, which answers with a line on standard input.
"""

import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pyetcd


# On the page docs/tasks/clients.md.
def connect(directory):
    def read(name):
        return (directory / name).read_bytes().decode()

    endpoint = urlsplit(read("endpoints").split(",")[0])
    files = {"ca_cert": directory / "ca.crt", "cert_cert": directory / "tls.crt", "cert_key": directory / "tls.key"}
    login = {}
    if (directory / "password").exists():
        login = {"user": read("username"), "password": read("password")}
    return pyetcd.client(endpoint.hostname, endpoint.port, timeout=10, **files, **login)


def refused(code, call):
    """The call fails with this code; the library passes some errors on as they are, and has its own for others."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError("not refused")


def keys(etcd, prefix):
    etcd.put(prefix + "a", "1")
    assert [value for value, _ in etcd.get_prefix(prefix)] == [b"1"]


def watch(etcd, prefix):
    seen = []
    one = threading.Event()

    def on(answer):
        seen.extend(answer.events)
        one.set()

    number = etcd.add_watch_prefix_callback(prefix, on)
    etcd.put(prefix + "a", "2")
    assert one.wait(30), "nothing watched"
    assert seen[0].value == b"2", seen
    etcd.cancel_watch(number)


def lease(etcd, prefix):
    lease = etcd.lease(600)
    etcd.put(prefix + "leased", "1", lease=lease)
    assert lease.refresh()[0].TTL == 600
    lease.revoke()
    assert etcd.get(prefix + "leased")[0] is None


def transaction(etcd, prefix):
    done, _ = etcd.transaction(
        compare=[etcd.transactions.value(prefix + "a") == "2"],
        success=[etcd.transactions.put(prefix + "a", "3")],
        failure=[],
    )
    assert done


def nothing_else(etcd, _):
    refused(grpc.StatusCode.PERMISSION_DENIED, lambda: etcd.put("/other/a", "1"))
    refused(grpc.StatusCode.PERMISSION_DENIED, lambda: etcd.get("/other/a"))


def please(what):
    print("please", what, flush=True)
    sys.stdin.readline()


def forgotten(directory, prefix):
    """The members forget the token of a login, as they do in a restart: the library does not log in again."""
    etcd = connect(directory)
    please("forget the tokens")
    if (directory / "password").exists():
        refused(grpc.StatusCode.UNAUTHENTICATED, lambda: etcd.put(prefix + "a", "4"))
        etcd = connect(directory)
    etcd.put(prefix + "a", "4")


def other_authority(other, prefix):
    """Members with a certificate of another CA are not trusted."""
    try:
        connect(other).get(prefix + "a")
    except (grpc.RpcError, pyetcd.exceptions.Etcd3Exception):
        return
    raise AssertionError("a certificate of another CA was accepted")


def renewed(directory, prefix):
    """The password before is worth nothing, and the files read again are enough."""
    before = connect(directory)
    has_password = (directory / "password").exists()
    please("renew the Secret")
    if has_password:
        refused(grpc.StatusCode.UNAUTHENTICATED, lambda: before.put(prefix + "a", "5"))
    connect(directory).put(prefix + "a", "6")


def main():
    directory, other = map(Path, sys.argv[1:3])
    prefix = "/" + (directory / "username").read_text() + "/"
    etcd = connect(directory)
    for name, chapter in [
        ("keys", keys),
        ("a watch", watch),
        ("a lease", lease),
        ("a transaction", transaction),
        ("nothing else", nothing_else),
    ]:
        chapter(etcd, prefix)
        print("ok:", name, flush=True)
    forgotten(directory, prefix)
    print("ok: a lost token", flush=True)
    other_authority(other, prefix)
    print("ok: another CA", flush=True)
    renewed(directory, prefix)
    print("ok: a renewed Secret", flush=True)


main()
