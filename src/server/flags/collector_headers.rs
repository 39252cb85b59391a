//! Headers for the collector of traces, from OpenTelemetry's variables of the environment: `name=value,name=value`, with
//! values percent-encoded, as its specification of exporters has it.
//!
//! A value may be a secret: none is in an error, a log line or what `Debug` prints.

use std::collections::BTreeMap;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};

/// The variables, the one that counts first in front: the second is for all signals, and the first for traces alone.
pub const VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

/// What gRPC itself sends: a collector would be told two things.
const RESERVED: [&str; 4] = ["content-type", "host", "te", "user-agent"];

/// The headers; of a name that is given twice the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorHeaders(Vec<(AsciiMetadataKey, AsciiMetadataValue)>);

impl CollectorHeaders {
    /// Those of the variable that counts; an empty one counts as not set.
    ///
    /// # Errors
    /// What is wrong with which entry and what to give, without its value.
    pub(in crate::server) fn of(
        environment: &BTreeMap<String, String>,
    ) -> Result<CollectorHeaders, String> {
        let set = |variable: &&&str| environment.get(**variable).is_some_and(|it| !it.is_empty());
        let Some(variable) = VARIABLES.iter().find(set) else {
            return Ok(CollectorHeaders::default());
        };
        parse(&environment[*variable]).map_err(|(number, why)| {
            format!(
                "environment variable {variable}: header {number} {why}; give name=value,name=value, with every character of a value that is no letter or digit percent-encoded"
            )
        })
    }

    /// Adds them to a request.
    pub(in crate::server) fn add_to(&self, metadata: &mut MetadataMap) {
        for (name, value) in &self.0 {
            metadata.insert(name.clone(), value.clone());
        }
    }
}

/// The headers, or which one is wrong, counted from 1, and why.
fn parse(text: &str) -> Result<CollectorHeaders, (usize, String)> {
    let mut headers = BTreeMap::new();
    for (number, entry) in (1..).zip(text.split(',')) {
        let (name, value) = header(entry).map_err(|why| (number, why))?;
        headers.insert(name.as_str().to_owned(), (name, value));
    }
    Ok(CollectorHeaders(headers.into_values().collect()))
}

fn header(entry: &str) -> Result<(AsciiMetadataKey, AsciiMetadataValue), String> {
    let Some((name, value)) = entry.split_once('=') else {
        // It may be a part of a value: not even its beginning is told.
        return Err("has no '='".to_owned());
    };
    let name = name.trim().to_ascii_lowercase();
    let Ok(key) = name.parse::<AsciiMetadataKey>() else {
        return Err(match name.ends_with("-bin") {
            true => format!("has the name {name:?}, which is one of binary values"),
            false => "has a name that is no name of a header".to_owned(),
        });
    };
    if RESERVED.contains(&key.as_str()) || key.as_str().starts_with("grpc-") {
        return Err(format!("has the name {name:?}, which gRPC sets itself"));
    }
    let damaged = || format!("({name}) has a '%' without two hexadecimal digits after it");
    let value = percent_decoded(value.trim()).ok_or_else(damaged)?;
    let unprintable = || format!("({name}) has a value that is not of printable ASCII");
    let printable = value.iter().all(|byte| (b' '..=b'~').contains(byte));
    let value = AsciiMetadataValue::try_from(value.as_slice()).ok();
    let mut value = value.filter(|_| printable).ok_or_else(unprintable)?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// `None`: a `%` is followed by something else than two hexadecimal digits.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(16 * high + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment = variables.iter().map(owned).collect();
        let mut metadata = MetadataMap::new();
        CollectorHeaders::of(&environment)?.add_to(&mut metadata);
        let headers = metadata.into_headers();
        let shown = |value: &http::HeaderValue| value.to_str().expect("ASCII").to_owned();
        let all = headers.iter();
        Ok(all
            .map(|(name, value)| (name.to_string(), shown(value)))
            .collect())
    }

    fn general(text: &str) -> Result<Vec<(String, String)>, String> {
        of(&[("OTEL_EXPORTER_OTLP_HEADERS", text)])
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        wanted.iter().map(owned).collect()
    }

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let read = general("Authorization=Bearer%20a%3Db%2Cc==, x-tenant = one ,empty=");
        let wanted = [
            ("authorization", "Bearer a=b,c=="),
            ("empty", ""),
            ("x-tenant", "one"),
        ];
        assert_eq!(read.expect("valid"), pairs(&wanted));
        let last = general("a=1,A=2").expect("valid");
        assert_eq!(last, pairs(&[("a", "2")]));
        assert_eq!(general("").expect("as if not set"), pairs(&[]));
    }

    #[test]
    fn headers_of_traces_count_instead_of_those_of_all_signals() {
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=1");
        // What does not count is not read either.
        let all = ("OTEL_EXPORTER_OTLP_HEADERS", "broken");
        assert_eq!(of(&[traces, all]).expect("valid"), pairs(&[("a", "1")]));
        let empty = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "");
        let refused = of(&[empty, all]).expect_err("that one counts");
        assert!(refused.contains("OTEL_EXPORTER_OTLP_HEADERS: header 1 has no '='"));
    }

    /// A value may be a password, and an error goes to a log.
    #[test]
    fn what_is_wrong_is_told_without_a_value() {
        for (text, wanted) in [
            ("a=1,secret", "header 2 has no '='; give name=value"),
            ("a=1,", "header 2 has no '='"),
            ("=secret", "header 1 has a name that is no name of a header"),
            ("se cret=1", "header 1 has a name that is no name"),
            ("a=secret%2", "header 1 (a) has a '%' without two"),
            ("a=secret%zz", "header 1 (a) has a '%' without two"),
            ("a=secret%+1", "header 1 (a) has a '%' without two"),
            ("a=secret%0A", "(a) has a value that is not of printable"),
            ("a=secret\u{e9}", "(a) has a value that is not of printable"),
            ("a-bin=secret", "which is one of binary values"),
            ("TE=secret", "has the name \"te\", which gRPC sets itself"),
            ("grpc-timeout=secret", "which gRPC sets itself"),
        ] {
            let refused = general(text).expect_err(text);
            assert!(refused.contains(wanted), "{text}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn no_value_is_printed() {
        let environment = [(VARIABLES[1].to_owned(), "a=secret".to_owned())];
        let headers = CollectorHeaders::of(&environment.into()).expect("valid");
        let printed = format!("{headers:?}");
        assert!(printed.contains("\"a\""), "{printed}");
        assert!(!printed.contains("secret"), "{printed}");
    }
}
