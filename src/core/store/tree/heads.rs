//! Finds a key among the sorted keys of a node by eight bytes of each: those behind the prefix that all of them share.
//! They lie side by side in the node, where the keys themselves are somewhere else in memory each. Never holds a key.

use std::cmp::Ordering;

use arrayvec::ArrayVec;

use crate::mutants::mutant;

/// Of up to `N` keys in ascending order, their heads in the same order.
#[derive(Clone, Debug)]
pub(super) struct Heads<const N: usize> {
    /// Bytes that all keys share.
    skip: usize,
    /// The eight bytes from there on, with zeros behind a key's end, as a number that sorts as they do.
    heads: ArrayVec<u64, N>,
}

impl<const N: usize> Heads<N> {
    /// The heads of `count` keys, at most `N`.
    pub(super) fn of<'a>(count: usize, key_at: impl Fn(usize) -> &'a [u8]) -> Self {
        let skip = match count {
            0 => 0,
            _ => shared(key_at(0), key_at(count - 1)),
        };
        let heads = (0..count).map(|at| head(key_at(at), skip)).collect();
        Heads { skip, heads }
    }

    /// Where a key is, if it is among them. `key_at` gives the keys.
    pub(super) fn find<'a>(&self, key: &[u8], key_at: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        // A key with another prefix may lead to any place, where it is not found either.
        self.among_equal_heads(key, key_at).ok()
    }

    /// Where a key is, or else where it would be.
    pub(super) fn search<'a>(
        &self,
        key: &[u8],
        key_at: impl Fn(usize) -> &'a [u8],
    ) -> Result<usize, usize> {
        if self.skip > 0 && !self.heads.is_empty() && !mutant!(TreePrefixIgnored) {
            let prefix = &key[..key.len().min(self.skip)];
            match prefix.cmp(&key_at(0)[..self.skip]) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.heads.len()),
                Ordering::Equal => {}
            }
        }
        self.among_equal_heads(key, key_at)
    }

    fn among_equal_heads<'a>(
        &self,
        key: &[u8],
        key_at: impl Fn(usize) -> &'a [u8],
    ) -> Result<usize, usize> {
        let head = head(key, self.skip);
        // Without a branch for each, which would be mispredicted for every other one.
        let (mut from, mut to) = (0, 0);
        for other in &self.heads {
            from += usize::from(*other < head);
            to += usize::from(*other <= head);
        }
        while from < to {
            let middle = usize::midpoint(from, to);
            match key_at(middle).cmp(key) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// Where a key is, if it is among them and no other has its head.
    pub(super) fn near(&self, key: &[u8]) -> usize {
        let head = head(key, self.skip);
        self.heads.iter().filter(|other| **other < head).count()
    }

    /// Loads them.
    pub(super) fn touch(&self) -> u64 {
        // One of each line of memory.
        let some = self.heads.iter().step_by(8).chain(self.heads.last());
        some.fold(0, |all, head| all ^ head)
    }

    /// Follows an insertion at `at`; `key_at` gives the keys after it.
    pub(super) fn inserted<'a>(&mut self, at: usize, key_at: impl Fn(usize) -> &'a [u8]) {
        let key = key_at(at);
        let neighbour = if at == 0 { 1 } else { at - 1 };
        let count = self.heads.len() + 1;
        if count == 1 || key.get(..self.skip) != Some(&key_at(neighbour)[..self.skip]) {
            *self = Self::of(count, key_at);
        } else {
            self.heads.insert(at, head(key, self.skip));
        }
    }

    /// Follows a removal at `at`; `key_at` gives the keys after it.
    pub(super) fn removed<'a>(&mut self, at: usize, key_at: impl Fn(usize) -> &'a [u8]) {
        self.heads.remove(at);
        let count = self.heads.len();
        // The others may share more without what was the first or the last one.
        let outermost = at == 0 || at == count;
        if outermost && count > 0 && shared(key_at(0), key_at(count - 1)) > self.skip {
            *self = Self::of(count, key_at);
        }
    }
}

fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut eight = [0; 8];
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(eight)
}

/// How many bytes two keys have in common at their beginning.
fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
impl<const N: usize> Heads<N> {
    /// Checks that these are the heads of keys in strictly ascending order.
    pub(super) fn check(&self, keys: &[&[u8]]) {
        assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
        let prefix = keys.first().map_or(&b""[..], |key| &key[..self.skip]);
        assert!(keys.iter().all(|key| key.starts_with(prefix)), "{keys:?}");
        let heads: ArrayVec<u64, N> = keys.iter().map(|key| head(key, self.skip)).collect();
        assert_eq!(self.heads, heads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that end in zeros, that begin with each other, and that differ only behind their heads.
    const HARD: [&[u8]; 9] = [
        b"/registry/",
        b"/registry/\0",
        b"/registry/\0\0",
        b"/registry/a",
        b"/registry/aaaaaaaa",
        b"/registry/aaaaaaaa\0",
        b"/registry/aaaaaaaab",
        b"/registry/aaaaaaaac",
        b"/registry/\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];

    const OTHERS: [&[u8]; 6] = [
        b"",
        b"/registr",
        b"/registry.",
        b"/registry/aaaaaaaa\0\0",
        b"/registry/aaaaaaab",
        b"0",
    ];

    #[test]
    fn search_is_that_of_the_keys_themselves() {
        for from in 0..HARD.len() {
            for to in from..=HARD.len() {
                let keys = &HARD[from..to];
                let heads: Heads<9> = Heads::of(keys.len(), |at| keys[at]);
                for key in HARD.iter().chain(&OTHERS) {
                    let expected = keys.binary_search(key);
                    assert_eq!(heads.search(key, |at| keys[at]), expected, "{key:?}");
                    assert_eq!(heads.find(key, |at| keys[at]), expected.ok(), "{key:?}");
                    let near = heads.near(key);
                    if let Ok(at) = expected {
                        assert_eq!(head(keys[near], heads.skip), head(keys[at], heads.skip));
                    }
                }
            }
        }
    }

    #[test]
    fn insertions_and_removals_are_followed_in_any_order() {
        for first in 0..HARD.len() {
            let mut keys: Vec<&[u8]> = Vec::new();
            let mut heads: Heads<16> = Heads::of(0, |_| &[]);
            for key in HARD.iter().cycle().skip(first).take(HARD.len()) {
                let at = heads.search(key, |at| keys[at]).expect_err("it is new");
                keys.insert(at, key);
                heads.inserted(at, |at| keys[at]);
                assert!(keys.is_sorted());
            }
            while !keys.is_empty() {
                let at = (keys.len() + first) % keys.len();
                keys.remove(at);
                heads.removed(at, |at| keys[at]);
                for key in HARD {
                    assert_eq!(heads.search(key, |at| keys[at]), keys.binary_search(&key));
                }
            }
        }
    }
}
