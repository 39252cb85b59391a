//! Both kinds of sockets for clients: TCP ports and Unix sockets.
//!
//! An existing file is replaced only if it is a socket on which no server answers any more; etcd
//! removes any file, even the socket of a running server. Never speaks a protocol.

use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Idle time after which the kernel sends a TCP keepalive.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A bound socket that does not belong to a runtime yet.
#[derive(Debug)]
pub(in crate::server) enum Bound {
    Port(StdTcpListener),
    File(SocketFile, StdUnixListener),
}

/// A socket that a runtime accepts on.
pub(in crate::server) enum Listener {
    Port(TcpListener),
    File {
        /// Removed before the socket closes: fields are dropped in order.
        _file: SocketFile,
        listener: UnixListener,
    },
}

/// A connection that is passed from one runtime to another.
pub(in crate::server) enum Accepted {
    Port(StdTcpStream),
    File(StdUnixStream),
}

/// An open connection.
pub(in crate::server) enum Socket {
    Port(TcpStream),
    File(UnixStream),
}

/// The file of a Unix socket; removed when dropped, unless another socket has replaced it.
#[derive(Debug)]
pub(in crate::server) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        // The working directory may be a different one by the time it is removed.
        let path = std::path::absolute(path)?;
        Ok(SocketFile {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the socket's file");
        }
    }
}

/// Listens on a file. `AddrInUse` when a server answers there already, `AlreadyExists` when the
/// file is no socket.
pub(in crate::server) fn listen_on_file(path: &Path, backlog: i32) -> io::Result<Bound> {
    make_room(path)?;
    let listener = StdUnixListener::bind(path)?;
    let file = SocketFile::of(path)?;
    socket2::SockRef::from(&listener).listen(backlog)?;
    listener.set_nonblocking(true)?;
    Ok(Bound::File(file, listener))
}

/// Removes the socket of a server that is gone.
fn make_room(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something that is no socket is there: remove it, or give another path",
            ));
        }
        Ok(_) => {}
    }
    match is_answered(path) {
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "removing the socket of a server that is gone");
            fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a server listens; one that is too busy to accept does.
fn is_answered(path: &Path) -> io::Result<()> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

impl Listener {
    /// Attaches a bound socket to the current runtime.
    pub(in crate::server) fn from_bound(bound: Bound) -> io::Result<Listener> {
        Ok(match bound {
            Bound::Port(listener) => Listener::Port(TcpListener::from_std(listener)?),
            Bound::File(file, listener) => Listener::File {
                _file: file,
                listener: UnixListener::from_std(listener)?,
            },
        })
    }

    /// The next connection; none is lost when it is cancelled.
    pub(in crate::server) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Port(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.into_std().map(Accepted::Port)
            }
            Listener::File { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                stream.into_std().map(Accepted::File)
            }
        }
    }
}

impl Accepted {
    /// The address of the client; a Unix socket has none.
    pub(in crate::server) fn from(&self) -> Option<IpAddr> {
        match self {
            Accepted::Port(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Accepted::File(_) => None,
        }
    }
}

impl Socket {
    /// Attaches a connection to the current runtime.
    pub(in crate::server) fn from_accepted(accepted: Accepted) -> io::Result<Socket> {
        match accepted {
            Accepted::Port(stream) => {
                let stream = TcpStream::from_std(stream)?;
                // Without it, small responses wait for the client's acknowledgement.
                stream.set_nodelay(true)?;
                // A client whose machine is gone sends no FIN; as in etcd, keepalives detect that.
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok(Socket::Port(stream))
            }
            Accepted::File(stream) => UnixStream::from_std(stream).map(Socket::File),
        }
    }

    /// Waits until the client has sent data, or is gone.
    pub(in crate::server) async fn readable(&self) -> io::Result<()> {
        match self {
            Socket::Port(stream) => stream.readable().await,
            Socket::File(stream) => stream.readable().await,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Port(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::File(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Port(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::File(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Port(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::File(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Port(stream) => stream.is_write_vectored(),
            Socket::File(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Port(stream) => Pin::new(stream).poll_flush(context),
            Socket::File(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Port(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::File(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::listen_on_file;
    use std::io::ErrorKind;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn live_socket_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("s");
        let first = listen_on_file(&path, 1).expect("bound");
        let error = listen_on_file(&path, 1).expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        // Nothing accepts, so each check stays in the backlog: when it is full, the server still
        // counts as listening.
        for _ in 0..8 {
            let error = listen_on_file(&path, 1).expect_err("taken");
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
        }
        drop(first);
        assert!(!path.exists(), "removed with its server");
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("s");
        // The standard library does not remove it: the file that a killed server leaves.
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let bound = listen_on_file(&path, 1).expect("taken over");
        UnixStream::connect(&path).expect("answered");
        drop(bound);
        std::fs::write(&path, "precious").expect("written");
        let error = listen_on_file(&path, 1).expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("read"), b"precious");
    }

    #[test]
    fn server_removes_only_its_own_socket() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("s");
        let old = listen_on_file(&path, 1).expect("bound");
        std::fs::remove_file(&path).expect("removed by somebody");
        let new = listen_on_file(&path, 1).expect("bound");
        drop(old);
        UnixStream::connect(&path).expect("the new one's file is there");
        drop(new);
    }
}
