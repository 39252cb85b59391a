//! The trace that a request belongs to: W3C's `traceparent` and `tracestate` of its metadata, and whether it is sampled.
//! A request with a valid parent is sampled as the parent was; the others by the trace's ID, so many in a million.
//!
//! Never trusts the length of what a client sends, and takes what is malformed for no parent.

use tonic::metadata::MetadataMap;

/// The flag of a trace that is sampled.
pub(in crate::server) const SAMPLED: u8 = 1;
/// Bytes of a `tracestate` that are passed on, as many as the standard asks for.
const STATE: usize = 512;

/// A trace's ID, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct TraceId(pub(in crate::server) [u8; 16]);

/// A span's ID, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct SpanId(pub(in crate::server) [u8; 8]);

/// The caller's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Parent {
    pub(in crate::server) trace: TraceId,
    pub(in crate::server) span: SpanId,
    pub(in crate::server) flags: u8,
}

/// The span of a request that is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Sampled {
    pub(in crate::server) trace: TraceId,
    pub(in crate::server) parent: Option<SpanId>,
    pub(in crate::server) flags: u8,
    /// The caller's `tracestate`.
    pub(in crate::server) state: String,
}

impl Parent {
    /// The caller's span, if its request says so.
    pub(in crate::server) fn of(metadata: &MetadataMap) -> Option<Parent> {
        parse(metadata.get("traceparent")?.to_str().ok()?.trim())
    }

    fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl TraceId {
    /// In lower-case hexadecimal.
    pub(in crate::server) fn hex(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Which requests without a parent are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Sampler {
    /// Below this the last eight bytes of a trace's ID are, halved.
    below: u64,
}

impl Sampler {
    /// So many in a million.
    pub(in crate::server) fn per_million(rate: u32) -> Sampler {
        let below = (u128::from(rate) << 63) / 1_000_000;
        Sampler {
            below: u64::try_from(below).unwrap_or(u64::MAX),
        }
    }

    /// The span of this request, if it is sampled; `random` gives 64 bits for the ID of a new trace.
    pub(in crate::server) fn judge(
        self,
        metadata: &MetadataMap,
        random: impl FnMut() -> u64,
    ) -> Option<Sampled> {
        match Parent::of(metadata) {
            Some(parent) => parent.is_sampled().then(|| Sampled {
                trace: parent.trace,
                parent: Some(parent.span),
                flags: parent.flags,
                state: state(metadata),
            }),
            None => self.judge_root(random),
        }
    }

    fn judge_root(self, mut random: impl FnMut() -> u64) -> Option<Sampled> {
        let low = random();
        if self.below == 0 || low >> 1 >= self.below {
            return None;
        }
        // An ID of zeros alone would be none.
        let id = (u128::from(random().max(1)) << 64) | u128::from(low);
        Some(Sampled {
            trace: TraceId(id.to_be_bytes()),
            parent: None,
            flags: SAMPLED,
            state: String::new(),
        })
    }
}

/// As `version-trace-span-flags`. Later versions than 00 may have more behind.
fn parse(text: &str) -> Option<Parent> {
    let mut parts = text.split('-');
    let [version] = hex(parts.next()?)?;
    let trace = hex(parts.next()?)?;
    let span = hex(parts.next()?)?;
    let [flags] = hex(parts.next()?)?;
    let more = parts.next().is_some();
    let valid = version != 0xff && !(version == 0 && more);
    (valid && trace != [0; 16] && span != [0; 8]).then_some(Parent {
        trace: TraceId(trace),
        span: SpanId(span),
        flags,
    })
}

/// Exactly so many bytes in lower-case hexadecimal.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The caller's `tracestate`; empty if it is longer than has to be passed on.
fn state(metadata: &MetadataMap) -> String {
    let all = metadata.get_all("tracestate").iter();
    let texts: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    let text = texts.join(",");
    if text.len() > STATE {
        String::new()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn metadata(headers: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in headers {
            metadata.append(*name, value.parse().expect("a value"));
        }
        metadata
    }

    /// The examples of W3C's Trace Context, and what it calls invalid.
    #[test]
    fn parents_are_parsed_as_the_standard_says() {
        let parent = parse(PARENT).expect("valid");
        assert_eq!(parent.trace.hex(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span.0[..2], [0xb7, 0xad]);
        assert!(parent.is_sampled());
        assert!(parse(&PARENT.replace("00-0", "01-0")).is_some());
        assert!(parse(&(PARENT.replace("00-0", "cc-0") + "-more")).is_some());
        for invalid in [
            String::new(),
            PARENT.to_uppercase(),
            PARENT.replace("00-0", "ff-0"),
            format!("{PARENT}-more"),
            format!("{PARENT}0"),
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("-01", "-0g"),
            PARENT.replace('-', "_"),
            "é".repeat(27) + "x",
        ] {
            assert_eq!(parse(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_parent_decides_whatever_the_rate_is() {
        let unsampled = PARENT.replace("-01", "-00");
        for rate in [0, 1_000_000] {
            let sampler = Sampler::per_million(rate);
            let headers = [
                ("traceparent", PARENT),
                ("tracestate", "a=1"),
                ("tracestate", "b=2"),
            ];
            let sampled = sampler
                .judge(&metadata(&headers), || 0)
                .expect("as its parent");
            assert_eq!(sampled.parent.map(|span| span.0[0]), Some(0xb7));
            assert_eq!(sampled.state, "a=1,b=2");
            let not = metadata(&[("traceparent", &unsampled)]);
            assert_eq!(sampler.judge(&not, || 0), None);
        }
        let long = "a=".to_owned() + &"x".repeat(STATE);
        let headers = [("traceparent", PARENT), ("tracestate", &long)];
        let sampled = Sampler::per_million(0).judge(&metadata(&headers), || 0);
        assert_eq!(sampled.expect("as its parent").state, "");
    }

    #[test]
    fn so_many_in_a_million_are_sampled_without_a_parent() {
        let none = MetadataMap::new();
        let broken = metadata(&[("traceparent", "00-broken")]);
        for (rate, random, want) in [
            (0, 0, false),
            (1_000_000, u64::MAX, true),
            (250_000, u64::MAX / 4 - 9, true),
            (250_000, u64::MAX / 4 + 9, false),
        ] {
            for metadata in [&none, &broken] {
                let sampled = Sampler::per_million(rate).judge(metadata, || random);
                assert_eq!(sampled.is_some(), want, "{rate} {random}");
            }
        }
        let sampled = Sampler::per_million(1).judge(&none, || 0).expect("sampled");
        assert_eq!((sampled.parent, sampled.flags), (None, SAMPLED));
        assert_ne!(sampled.trace.0, [0; 16]);
    }
}
