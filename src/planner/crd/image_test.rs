//! What is a reference of an image, and what is none: by the parser, and by the rule of the API server.

use super::*;
use crate::crd::{EtcdCluster, parse};

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Repositories, tags, and whether there is a digest.
const GOOD: &[(&str, &str, bool)] = &[
    ("quorate", "", false),
    ("quorate", "0.1.0", false),
    ("quorate", "", true),
    ("a/b/quorate", "x", false),
    ("registry.example/quorate", "", false),
    ("registry.example:5000/a/quorate", "", false),
    ("registry.example:5000/quorate", "0.2.0-rc.1", false),
    ("Registry.Example/quorate", "X_y", false),
    ("localhost/quorate", "test", false),
    ("localhost:5000/quorate", "", true),
    ("10.0.0.1:5000/quorate", "main", true),
    ("[::1]:5000/quorate", "0.1.0", false),
    ("[fd00::10]/a/quorate", "", true),
    ("my-org/my_quorate--1.0/a__b", "2026.11.28", false),
    // Without a slash it is no port.
    ("host", "5000", false),
];

const BAD: &[(&str, &str)] = &[
    ("", "an image is missing"),
    ("two words", "is no part of a repository"),
    (":0.1.0", "\"\" is no part of a repository"),
    ("@D", "\"\" is no part of a repository"),
    (
        "Quorate",
        "\"Quorate\" is no part of a repository: it has lowercase letters",
    ),
    ("MyOrg/quorate", "\"MyOrg\" is no part of a repository"),
    (
        "registry.example/Quorate:1",
        "\"Quorate\" is no part of a repository",
    ),
    (
        "registry.example//quorate",
        "\"\" is no part of a repository",
    ),
    ("registry.example/", "\"\" is no part of a repository"),
    ("a/-quorate", "\"-quorate\" is no part of a repository"),
    ("a/quorate_", "\"quorate_\" is no part of a repository"),
    ("a/quo..rate", "\"quo..rate\" is no part of a repository"),
    ("a/quo___rate", "\"quo___rate\" is no part of a repository"),
    ("a/quo.-rate", "\"quo.-rate\" is no part of a repository"),
    ("a/q\u{fc}orate", "is no part of a repository"),
    (
        "https://registry.example/quorate",
        "\"\" is no port of a registry",
    ),
    ("registry.example:/quorate", "\"\" is no port of a registry"),
    (
        "registry.example:http/quorate",
        "\"http\" is no port of a registry",
    ),
    (
        "registry.example:+80/quorate",
        "\"+80\" is no port of a registry",
    ),
    (
        "-registry.example/quorate",
        "\"-registry.example\" is no registry",
    ),
    (
        "registry..example/quorate",
        "\"registry..example\" is no registry",
    ),
    ("[::1/quorate", "\"[::1\" is no registry"),
    ("[::1]5000/quorate", "\"[::1]5000\" is no registry"),
    ("quorate:", "\"\" is no tag"),
    ("quorate:-1", "\"-1\" is no tag"),
    ("quorate:a:b", "\"a:b\" is no tag"),
    ("quorate:a b", "\"a b\" is no tag"),
    ("quorate@", "\"\" is no digest"),
    ("quorate@sha256:abc", "\"sha256:abc\" is no digest"),
    (
        "quorate@sha1:9f86d081884c7d659a2feaa0c55ad015",
        "is no digest",
    ),
    ("quorate@D:0.1.0", "is no digest"),
    ("quorate@D@D", "is no digest"),
];

fn with_digest(text: &str) -> String {
    text.replace('D', DIGEST)
}

fn resource(image: &str) -> Result<EtcdCluster, crate::crd::ParseError> {
    let image = serde_json::to_string(image).expect("a text");
    parse(&format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: demo, namespace: d}}\nspec: {{image: {image}}}\n"
    ))
}

#[test]
fn references_are_read_and_written() {
    for (repository, tag, pinned) in GOOD {
        let tag = Some(*tag).filter(|tag| !tag.is_empty());
        let digest = pinned.then_some(DIGEST);
        let mut text = (*repository).to_owned();
        text.extend(tag.map(|tag| format!(":{tag}")));
        text.extend(digest.map(|digest| format!("@{digest}")));
        let read: Result<ImageReference, _> = text.parse();
        let read = read.unwrap_or_else(|error| panic!("{text}: {error}"));
        let parts = (read.repository(), read.tag(), read.digest());
        assert_eq!(parts, (*repository, tag, digest), "{text}");
        assert_eq!(read.to_string(), text);
        assert!(resource(&text).is_ok(), "the API server refuses {text}");
    }
}

/// `registry.example/Quorate` and `quorate@sha256:abc` were admitted: the kubelet refused them, one member down, as
/// InvalidImageName.
#[test]
fn other_texts_are_refused_with_what_is_wrong() {
    for (text, says) in BAD {
        let text = with_digest(text);
        let error = text.parse::<ImageReference>().expect_err(&text).to_string();
        assert!(error.contains(says), "{text}: {error}");
        let error = resource(&text).expect_err(&text).to_string();
        assert!(
            error.contains("image must be a reference"),
            "{text}: {error}"
        );
    }
}

/// What the rule of the API server does not count, the operator does.
#[test]
fn lengths_and_numbers_have_limits() {
    let long = |count: usize| "a".repeat(count);
    for (text, fits) in [
        (format!("registry.example/{}", long(255)), true),
        (format!("registry.example/{}", long(256)), false),
        (format!("quorate:{}", long(128)), true),
        (format!("quorate:{}", long(129)), false),
        ("registry.example:65535/quorate".to_owned(), true),
        ("registry.example:65536/quorate".to_owned(), false),
        ("registry.example:0/quorate".to_owned(), false),
        ("[::g]/quorate".to_owned(), false),
        ("[1:2]/quorate".to_owned(), false),
        (format!("quorate@sha512:{}", long(128)), true),
        (format!("quorate@sha512:{}", long(64)), false),
        (format!("quorate@sha256:{}", "A".repeat(64)), false),
    ] {
        assert_eq!(text.parse::<ImageReference>().is_ok(), fits, "{text}");
    }
}
