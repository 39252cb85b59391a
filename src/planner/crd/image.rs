//! References of container images: `[registry[:port]/]repository[:tag][@digest]`, by the grammar that kubelets and
//! registries share. Reads and writes them. Never says what an image contains: a tag is a name that somebody chose, and
//! what runs is reported by the server that runs.

use std::fmt;
use std::str::FromStr;

use kube_core::Rule;

/// The longest repository, without its registry, that registries take.
const LONGEST_REPOSITORY: usize = 255;
/// The longest tag.
const LONGEST_TAG: usize = 128;
/// The digests that registries know, and the hexadecimal digits of each.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// A reference, in its parts as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Why a text is no reference of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Nothing was given.
    #[error("an image is missing: give a reference such as registry.example/quorate:0.1.0")]
    Empty,
    /// What is before the first slash names no host.
    #[error(
        "{0:?} is no registry: give a host name, an IPv4 address, or an IPv6 address in brackets"
    )]
    Registry(String),
    /// What follows the registry's colon.
    #[error("{0:?} is no port of a registry: give a number from 1 to 65535")]
    Port(String),
    /// A part of the repository.
    #[error(
        "{0:?} is no part of a repository: it has lowercase letters and digits, and between them '.', '_', '__' or dashes"
    )]
    Repository(String),
    /// The repository is too long.
    #[error("a repository has at most 255 characters, and this one has {0}")]
    Long(usize),
    /// What follows the colon.
    #[error(
        "{0:?} is no tag: it has at most 128 letters, digits, '_', '.' and '-', and begins with neither of the last two"
    )]
    Tag(String),
    /// What follows the `@`.
    #[error("{0:?} is no digest: give sha256: and 64 lowercase hexadecimal digits")]
    Digest(String),
}

impl ImageReference {
    /// Registry and repository.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. Kubelets do not use it where there is a digest.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, with its algorithm.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for ImageReference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        if text.is_empty() {
            return Err(ImageError::Empty);
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (text, None),
        };
        // Colons before the last slash are those of a port, or of an IPv6 address.
        let last = named.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match named[last..].find(':') {
            Some(colon) => (&named[..last + colon], Some(&named[last + colon + 1..])),
            None => (named, None),
        };
        check_repository(repository)?;
        tag.map_or(Ok(()), check_tag)?;
        digest.map_or(Ok(()), check_digest)?;
        Ok(ImageReference {
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }
}

fn check_repository(name: &str) -> Result<(), ImageError> {
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if is_registry(first) => (Some(first), path),
        _ => (None, name),
    };
    registry.map_or(Ok(()), check_registry)?;
    if path.len() > LONGEST_REPOSITORY {
        return Err(ImageError::Long(path.len()));
    }
    path.split('/').try_for_each(check_part)
}

/// Without one of these it is the first part of a repository at the kubelet's own registry.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':', '[']) || first == "localhost"
}

fn check_registry(registry: &str) -> Result<(), ImageError> {
    let wrong = || ImageError::Registry(registry.to_owned());
    let (is_host, port) = match registry.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or_else(wrong)?;
            let port = match port.strip_prefix(':') {
                None if port.is_empty() => None,
                None => return Err(wrong()),
                port => port,
            };
            (address.parse::<core::net::Ipv6Addr>().is_ok(), port)
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (host.split('.').all(is_label), Some(port)),
            None => (registry.split('.').all(is_label), None),
        },
    };
    if !is_host {
        return Err(wrong());
    }
    let is_port = |port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|number| number > 0)
    };
    match port {
        Some(port) if !is_port(port) => Err(ImageError::Port(port.to_owned())),
        _ => Ok(()),
    }
}

/// A part of a host name between dots. Host names may be in uppercase, repositories not.
fn is_label(label: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let ends = label.starts_with('-') || label.ends_with('-');
    !label.is_empty() && !ends && label.bytes().all(fits)
}

fn check_part(part: &str) -> Result<(), ImageError> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let between = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    let ends = part.starts_with(is_word) && part.ends_with(is_word);
    if ends && part.split(is_word).all(between) {
        return Ok(());
    }
    Err(ImageError::Repository(part.to_owned()))
}

fn check_tag(tag: &str) -> Result<(), ImageError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let begins = !tag.is_empty() && !tag.starts_with(['.', '-']);
    if begins && tag.len() <= LONGEST_TAG && tag.bytes().all(fits) {
        return Ok(());
    }
    Err(ImageError::Tag(tag.to_owned()))
}

fn check_digest(digest: &str) -> Result<(), ImageError> {
    let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let known = digest.split_once(':').is_some_and(|(algorithm, digits)| {
        DIGESTS.contains(&(algorithm, digits.len())) && digits.bytes().all(is_lower)
    });
    if known {
        return Ok(());
    }
    Err(ImageError::Digest(digest.to_owned()))
}

/// The same grammar for the API server, but for the lengths, the numbers of ports, and what IPv6 addresses are.
pub(super) fn rule() -> Rule {
    let label = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?";
    let port = ":[0-9]{1,5}";
    let address = r"\\[[0-9A-Fa-f:.]+\\]";
    let registry = format!("({label}([.]{label})+({port})?|{label}{port}|{address}({port})?)/");
    let part = "[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*";
    let tag = "[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}";
    let digests = DIGESTS.map(|(algorithm, digits)| format!("{algorithm}:[0-9a-f]{{{digits}}}"));
    let digest = digests.join("|");
    Rule::new(format!(
        "self.matches('^({registry})?{part}(/{part})*(:{tag})?(@({digest}))?$')"
    ))
    .message("image must be a reference such as registry.example/quorate:0.1.0: [registry[:port]/]repository[:tag][@sha256:digest], the repository in lowercase; leave the field out for the operator's own")
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
