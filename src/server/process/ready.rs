//! Announces once that this member serves clients: with etcd's log line, which test frameworks wait
//! for, and to systemd, whose units for etcd have `Type=notify`.
//!
//! Decides nothing: readiness of probes is determined by the member.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::server::etcd::Services;

/// Waits until clients are served, and announces it.
pub(in crate::server) async fn announce(services: Services) {
    if !services.served().await {
        return;
    }
    // A reader of the line may query the health at once.
    if !services.proven().await {
        tracing::warn!(
            "no read was answered yet: there may be no leader, and the health checks fail"
        );
    }
    tracing::info!("ready to serve client requests");
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = notify(&socket)
    {
        tracing::warn!(%error, "cannot notify the init daemon");
    }
}

/// Sends one datagram to a path, or to a name in Linux's abstract namespace, which begins with `@`.
fn notify(socket: &std::ffi::OsStr) -> std::io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => of_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn of_abstract_name(name: &[u8]) -> std::io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn of_abstract_name(_: &[u8]) -> std::io::Result<SocketAddr> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::notify;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn systemd_is_notified() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        notify(path.as_os_str()).expect("notified");
        let mut text = [0; 32];
        let length = socket.recv(&mut text).expect("heard");
        assert_eq!(&text[..length], b"READY=1");
        assert!(notify("/nowhere/at/all".as_ref()).is_err());
    }
}
