//! Addresses as etcd's flags write them: `http://host:port`, `https://host:port`.
//!
//! Never resolves a name and never opens a socket.

use std::fmt;

/// One parsed URL of a listen or advertise flag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// `https`: the port speaks TLS.
    pub tls: bool,
    /// Host without brackets: a name or an address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme than http or https.
    #[error("{0:?} must begin with http:// or https://")]
    Scheme(String),
    /// Sockets of the file system.
    #[error("{0:?}: unix sockets are not served; give http:// or https:// with host and port")]
    Unix(String),
    /// No port, or not a number.
    #[error("{0:?} must have the form http://host:port")]
    HostPort(String),
    /// More than host and port.
    #[error("{0:?} must not contain a path")]
    Path(String),
}

impl Endpoint {
    /// Parses one URL; blanks around it are ignored.
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
        if host.contains(['@', ' ']) {
            return Err(wrong());
        }
        Ok(Endpoint {
            tls,
            host: host.to_owned(),
            port,
        })
    }

    /// `host:port`, with brackets where the host is an IPv6 address.
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

#[cfg(test)]
mod tests {
    use super::{Endpoint, UrlError};

    #[test]
    fn reads_back_what_it_writes() {
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
    fn refuses_with_the_reason() {
        type Reason = fn(String) -> UrlError;
        let cases: [(&str, Reason); 7] = [
            ("127.0.0.1:2379", UrlError::Scheme),
            ("ftp://h:1", UrlError::Scheme),
            ("http://h", UrlError::HostPort),
            ("http://h:99999", UrlError::HostPort),
            ("http://::1:80", UrlError::HostPort),
            ("http://h:1/path", UrlError::Path),
            ("unix://socket", UrlError::Unix),
        ];
        for (text, error) in cases {
            assert_eq!(Endpoint::parse(text), Err(error(text.to_owned())), "{text}");
        }
    }
}
