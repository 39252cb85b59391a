//! Addresses in the format of etcd's flags: `http://host:port`, `https://host:port`, and for
//! clients `unix://path` and `unixs://path` as well.
//!
//! Never resolves a name and never opens a socket.

use std::fmt;
use std::path::PathBuf;

/// One parsed URL of a listen or advertise flag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// `https`: the port uses TLS.
    pub tls: bool,
    /// Host without brackets: a name or an address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A scheme other than http or https.
    #[error("{0:?} must begin with http:// or https://")]
    Scheme(String),
    /// A Unix socket, where connections from other hosts have to be accepted.
    #[error("{0:?}: members meet over TCP alone; give http:// or https:// with host and port")]
    Unix(String),
    /// A unix URL without a file.
    #[error(
        "{0:?} must have the form unix:///path/of/socket, or unix://name for one in the working directory"
    )]
    UnixPath(String),
    /// No port, or not a number.
    #[error("{0:?} must have the form http://host:port")]
    HostPort(String),
    /// More than host and port.
    #[error("{0:?} must not contain a path")]
    Path(String),
}

impl Endpoint {
    /// Parses one URL; surrounding whitespace is ignored.
    pub fn parse(text: &str) -> Result<Endpoint, UrlError> {
        let text = text.trim();
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(("unix" | "unixs", _)) => return Err(UrlError::Unix(text.to_owned())),
            _ if text.starts_with("unix:") => return Err(UrlError::Unix(text.to_owned())),
            _ => return Err(UrlError::Scheme(text.to_owned())),
        };
        if rest.contains(['/', '?', '#']) {
            return Err(UrlError::Path(text.to_owned()));
        }
        let wrong = || UrlError::HostPort(text.to_owned());
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(inner) => inner,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        if host.contains(['@', ' ', '[', ']']) {
            return Err(wrong());
        }
        Ok(Endpoint {
            tls,
            host: host.to_owned(),
            port,
        })
    }

    /// `host:port`, with brackets if the host is an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority())
    }
}

/// Where clients connect: a port, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientUrl {
    /// `http` or `https`.
    Port(Endpoint),
    /// `unix` or `unixs`.
    File(SocketUrl),
}

/// A Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketUrl {
    /// `unixs`: it uses TLS.
    pub tls: bool,
    /// The file; a relative path is relative to the working directory.
    pub path: PathBuf,
    /// The text as given, which is what clients see.
    text: String,
}

impl ClientUrl {
    /// Parses one URL. In unix URLs everything after the slashes is the path, so that
    /// `unix://localhost:2379` is a file with that name; `unix:/path` is an absolute path.
    pub fn parse(text: &str) -> Result<ClientUrl, UrlError> {
        let text = text.trim();
        let (tls, rest) = match text.split_once(':') {
            Some(("unix", rest)) => (false, rest),
            Some(("unixs", rest)) => (true, rest),
            _ => return Endpoint::parse(text).map(ClientUrl::Port),
        };
        let path = match rest.strip_prefix("//") {
            Some(path) => path,
            // etcd binds `unix:name` to an unnamed address, where no client can connect.
            None if rest.starts_with('/') => rest,
            None => "",
        };
        // Characters that Go's URL parser would remove from the path.
        if path.is_empty() || path.ends_with('/') || path.contains(['?', '#', '%', '@', '\0']) {
            return Err(UrlError::UnixPath(text.to_owned()));
        }
        Ok(ClientUrl::File(SocketUrl {
            tls,
            path: PathBuf::from(path),
            text: text.to_owned(),
        }))
    }

    /// Whether it uses TLS.
    #[must_use]
    pub fn tls(&self) -> bool {
        match self {
            ClientUrl::Port(endpoint) => endpoint.tls,
            ClientUrl::File(socket) => socket.tls,
        }
    }

    /// The host; a Unix socket has none.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            ClientUrl::Port(endpoint) => Some(&endpoint.host),
            ClientUrl::File(_) => None,
        }
    }
}

impl fmt::Display for ClientUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientUrl::Port(endpoint) => endpoint.fmt(formatter),
            ClientUrl::File(socket) => formatter.write_str(&socket.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientUrl, Endpoint, UrlError};
    use std::path::Path;

    #[test]
    fn url_round_trips() {
        for text in [
            "http://127.0.0.1:2379",
            "https://a.b.svc:2380",
            "http://[::1]:1",
            "http://:80",
        ] {
            assert_eq!(
                Endpoint::parse(text).map(|url| url.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn invalid_urls_are_refused_with_reasons() {
        type Reason = fn(String) -> UrlError;
        let cases: [(&str, Reason); 8] = [
            ("127.0.0.1:2379", UrlError::Scheme),
            ("ftp://h:1", UrlError::Scheme),
            ("http://h", UrlError::HostPort),
            ("http://h:99999", UrlError::HostPort),
            ("http://::1:80", UrlError::HostPort),
            // Formatted again it would be a different host.
            ("http://[[a]]:80", UrlError::HostPort),
            ("http://h:1/path", UrlError::Path),
            ("unix://socket", UrlError::Unix),
        ];
        for (text, error) in cases {
            assert_eq!(Endpoint::parse(text), Err(error(text.to_owned())), "{text}");
        }
    }

    /// The paths are those that etcd 3.7.3 was observed to bind.
    #[test]
    fn unix_socket_urls_are_for_clients_only() {
        for (text, tls, path) in [
            ("unix://localhost:2379", false, "localhost:2379"),
            ("unixs://a.sock", true, "a.sock"),
            ("unix:///run/a.sock", false, "/run/a.sock"),
            ("unix:/run/a.sock", false, "/run/a.sock"),
            ("unix://run/a.sock", false, "run/a.sock"),
        ] {
            let url = ClientUrl::parse(text).expect(text);
            assert_eq!((url.to_string().as_str(), url.tls()), (text, tls));
            let ClientUrl::File(socket) = url else {
                unreachable!("{text} is no port");
            };
            assert_eq!(socket.path, Path::new(path), "{text}");
        }
        let port = Endpoint::parse("http://h:1").expect("url");
        assert_eq!(ClientUrl::parse("http://h:1"), Ok(ClientUrl::Port(port)));
        for text in [
            "unix://",
            "unix:",
            "unix:name",
            "unix:///",
            "unix:///a/",
            "unix:///a?b",
            "unix://user@a",
            "unixs:///a%20b",
        ] {
            let error = UrlError::UnixPath(text.to_owned());
            assert_eq!(ClientUrl::parse(text), Err(error), "{text}");
        }
        let error = UrlError::Scheme("unixx://a".to_owned());
        assert_eq!(ClientUrl::parse("unixx://a"), Err(error));
    }
}
