//! A user's merged permissions: spans of keys, merged where they touch. Independent of users and roles.

use crate::mutants::mutant;
use bytes::Bytes;

use super::{Permission, PermissionKind};

/// The keys that a user may read and may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Permitted {
    pub(super) read: Spans,
    pub(super) write: Spans,
}

/// Spans of keys in order; no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<(Bytes, End)>);

/// Where a span ends. The order of the variants is the order of the ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Before(Bytes),
    Open,
}

impl Permitted {
    /// Adds permissions up.
    pub(super) fn merge<'a>(permissions: impl Iterator<Item = &'a Permission>) -> Permitted {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for permission in permissions {
            let span = (
                permission.key.clone(),
                end(&permission.key, &permission.range_end),
            );
            match PermissionKind::try_from(permission.kind) {
                Ok(PermissionKind::Read) => read.push(span),
                Ok(PermissionKind::Write) => write.push(span),
                Ok(PermissionKind::ReadWrite) => {
                    read.push(span.clone());
                    write.push(span);
                }
                Err(_) => {}
            }
        }
        Permitted {
            read: Spans::merge(read),
            write: Spans::merge(write),
        }
    }
}

impl Spans {
    fn merge(mut spans: Vec<(Bytes, End)>) -> Spans {
        spans.retain(|(from, end)| *end > End::Before(from.clone()));
        spans.sort();
        let mut merged: Vec<(Bytes, End)> = Vec::with_capacity(spans.len());
        for (from, end) in spans {
            match merged.last_mut() {
                // Spans that touch hold all keys of their union.
                Some((_, last)) if *last >= End::Before(from.clone()) => {
                    if end > *last {
                        *last = end;
                    }
                }
                _ => merged.push((from, end)),
            }
        }
        Spans(merged)
    }

    /// Whether every key of a request's span lies in one of these. A span that does not end behind
    /// its beginning holds no key; as in etcd, it is allowed where its beginning is.
    pub(super) fn cover(&self, key: &[u8], range_end: &[u8]) -> bool {
        let behind = self.0.partition_point(|(from, _)| from[..] <= *key);
        let Some((_, last)) = behind.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return false;
        };
        let inside = match last {
            End::Open => true,
            End::Before(last) => key < &last[..],
        };
        match range_end {
            [] => inside,
            [0] => *last == End::Open || mutant!(OpenEndedSpan),
            end => {
                let ends_inside = match last {
                    End::Open => true,
                    End::Before(last) => end <= &last[..],
                };
                inside && ends_inside
            }
        }
    }
}

/// The end of a permission's span: one key ends before its own successor.
fn end(key: &Bytes, range_end: &Bytes) -> End {
    match range_end[..] {
        [] => {
            let mut next = key.to_vec();
            next.push(0);
            End::Before(next.into())
        }
        [0] => End::Open,
        _ => End::Before(range_end.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(spans: &[(&str, &str)]) -> Spans {
        let permissions: Vec<Permission> = spans
            .iter()
            .map(|(key, range_end)| Permission {
                kind: PermissionKind::Read.into(),
                key: Bytes::copy_from_slice(key.as_bytes()),
                range_end: Bytes::copy_from_slice(range_end.as_bytes()),
            })
            .collect();
        Permitted::merge(permissions.iter()).read
    }

    /// Permissions, request, whether it is allowed: the cases of etcd's own test of its cache,
    /// and those of its advisories.
    #[test]
    fn requests_outside_permissions_are_denied() {
        type Case<'a> = (&'a [(&'a str, &'a str)], (&'a str, &'a str), bool);
        let cases: &[Case<'_>] = &[
            (&[], ("a", ""), false),
            (&[("a", "")], ("a", ""), true),
            (&[("a", "")], ("b", ""), false),
            (&[("a", "")], ("a", "b"), false),
            (&[("a", "")], ("a", "a\0"), true),
            (&[("a", "")], ("a", "\0"), false),
            (&[("a", "c")], ("a", ""), true),
            (&[("a", "c")], ("c", ""), false),
            (&[("a", "c")], ("a", "c"), true),
            (&[("a", "c")], ("b", "c"), true),
            (&[("a", "c")], ("a", "d"), false),
            (&[("b", "c")], ("a", "c"), false),
            (&[("a", "b"), ("b", "c")], ("a", "c"), true),
            (&[("a", "b"), ("c", "d")], ("a", "d"), false),
            (&[("a", "d"), ("b", "c")], ("a", "d"), true),
            (&[("a", "d"), ("b", "c")], ("c", ""), true),
            (&[("a", ""), ("a\0", "c")], ("a", "c"), true),
            (&[("a", "\0")], ("a", "\0"), true),
            (&[("a", "\0")], ("z", "\0"), true),
            (&[("a", "\0")], ("b", "zz"), true),
            (&[("b", "\0")], ("a", "\0"), false),
            (&[("a", "z")], ("a", "\0"), false),
            (&[("a", "b"), ("b", "\0")], ("a", "\0"), true),
            (&[("\0", "\0")], ("\0", "\0"), true),
            (&[("\0", "\0")], ("anything", ""), true),
            (&[("a", "z")], ("d", "c"), true),
            (&[("a", "z")], ("d", "a"), true),
            (&[("b", "")], ("b", "b"), true),
            (&[("a", "b"), ("c", "z")], ("d", "b"), true),
            (&[("a", "c")], ("d", "b"), false),
        ];
        for (granted, (key, end), allowed) in cases {
            let covered = spans(granted).cover(key.as_bytes(), end.as_bytes());
            assert_eq!(covered, *allowed, "{granted:?} {key:?} {end:?}");
        }
    }

    /// Every short key over three bytes: the bounds of all spans below, and what lies between.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for first in 0..3 {
            keys.push(vec![first]);
            for second in 0..3 {
                keys.push(vec![first, second]);
                keys.extend((0..3).map(|third| vec![first, second, third]));
            }
        }
        keys.sort();
        keys
    }

    fn holds(key: &[u8], (from, end): &(Vec<u8>, Vec<u8>)) -> bool {
        match end[..] {
            [] => key == &from[..],
            [0] => key >= &from[..],
            _ => key >= &from[..] && key < &end[..],
        }
    }

    /// Compared with a check key by key: all bounds of spans are among the keys and their direct successors, so what
    /// holds for these holds for every key between them.
    #[test]
    fn random_permissions_agree_with_each_key() {
        use rand::{RngExt as _, SeedableRng as _};
        let all = keys();
        for seed in 0..300 {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut span = || {
                let from = all[random.random_range(0..all.len())].clone();
                let end = match random.random_range(0..4) {
                    0 => Vec::new(),
                    1 => vec![0],
                    _ => all[random.random_range(0..all.len())].clone(),
                };
                (from, end)
            };
            let granted: Vec<_> = (0..4).map(|_| span()).collect();
            let permissions: Vec<Permission> = granted
                .iter()
                .map(|(key, end)| Permission {
                    kind: PermissionKind::Read.into(),
                    key: Bytes::copy_from_slice(key),
                    range_end: Bytes::copy_from_slice(end),
                })
                .collect();
            let merged = Permitted::merge(permissions.iter()).read;
            let one = |key: &[u8]| granted.iter().any(|span| holds(key, span));
            for _ in 0..50 {
                let request = span();
                let (from, end) = &request;
                let at = format!("seed {seed}: {granted:?} {request:?}");
                if !end.is_empty() && *end != [0] && end <= from {
                    continue;
                }
                let mut inside = all.iter().filter(|key| holds(key, &request));
                let expected = inside.all(|key| {
                    let behind = [&key[..], &[0]].concat();
                    one(key) && (!holds(&behind, &request) || one(&behind))
                });
                assert_eq!(merged.cover(from, end), expected, "{at}");
            }
        }
    }

    #[test]
    fn empty_span_grants_nothing() {
        assert_eq!(spans(&[("b", "a"), ("c", "c")]), Spans::default());
        let unknown = Permission {
            kind: 7,
            key: "a".into(),
            range_end: "\0".into(),
        };
        assert_eq!(
            Permitted::merge([&unknown].into_iter()),
            Permitted::default()
        );
    }
}
