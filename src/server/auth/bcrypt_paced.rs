//! A bcrypt comparison that yields its core again and again.
//!
//! The `bcrypt` crate runs all rounds in one step, a tenth of a second at etcd's cost. A kernel
//! gives a thread of low priority its share in slices of milliseconds, and threads that serve
//! clients on the same core wait that long. The rounds here use the `blowfish` crate, as `bcrypt`
//! does, and a test compares the two. Never hashes a new password, and chooses no salt.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use bcrypt::{BASE_64, HashParts, Version};
use blowfish::Blowfish;

use super::password::LONGEST;

/// The text that bcrypt encrypts: "OrpheanBeholderScryDoubt".
const BEGINNING: [u32; 6] = [
    0x4f72_7068,
    0x6561_6e42,
    0x6568_6f6c,
    0x6465_7253,
    0x6372_7944,
    0x6f75_6274,
];
/// Letters of the hash itself, after version, cost and salt.
const LETTERS: usize = 31;

/// Whether a password has this hash; a damaged hash matches none. `pause` is called about every
/// hundred microseconds.
pub(super) fn matches(password: &str, hash: &str, pause: &dyn Fn()) -> bool {
    let Ok(parts) = hash.parse::<HashParts>() else {
        return false;
    };
    let cost = parts.get_cost();
    if !(4..=31).contains(&cost) {
        return false;
    }
    let made = BASE_64.encode(raw(cost, parts.get_salt_raw(), password, pause));
    let stored = parts.format_for_version(Version::TwoA);
    let stored = stored.as_bytes().iter().rev().take(LETTERS).rev();
    let stored: Vec<u8> = stored.copied().collect();
    verify_slices_are_equal(made.as_bytes(), &stored).is_ok()
}

fn raw(cost: u32, salt: [u8; 16], password: &str, pause: &dyn Fn()) -> [u8; 23] {
    // The terminating zero is part of the key, if it fits.
    let mut key = password.as_bytes().to_vec();
    key.push(0);
    key.truncate(LONGEST);
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(&salt, &key);
    for _ in 0..1_u64 << cost {
        // Two of them take about a hundred microseconds.
        state.bc_expand_key(&key);
        state.bc_expand_key(&salt);
        pause();
    }
    let mut output = [0; 24];
    for (pair, out) in BEGINNING.chunks_exact(2).zip(output.chunks_exact_mut(8)) {
        let mut block = [pair[0], pair[1]];
        for _ in 0..64 {
            block = state.bc_encrypt(block);
        }
        out[..4].copy_from_slice(&block[0].to_be_bytes());
        out[4..].copy_from_slice(&block[1].to_be_bytes());
    }
    let mut shown = [0; 23];
    shown.copy_from_slice(&output[..23]);
    shown
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::matches;

    /// A guess used its share of a core in slices of four milliseconds and more, and puts waited
    /// for it.
    #[test]
    fn paced_bcrypt_equals_the_bcrypt_crate() {
        let longest = "x".repeat(72);
        let letters = "\u{20ac}uro \u{0} and a zero";
        for (number, password) in ["", "a", "root", letters, &longest].iter().enumerate() {
            for cost in [4, 5] {
                let salt = [number as u8 * 17 + 3; 16];
                let hash = bcrypt::hash_with_salt(password, cost, salt).expect("hashed");
                for version in [bcrypt::Version::TwoA, bcrypt::Version::TwoB] {
                    let text = hash.format_for_version(version);
                    let pauses = Cell::new(0);
                    let pause = || pauses.set(pauses.get() + 1);
                    assert!(matches(password, &text, &pause), "{password:?}");
                    assert_eq!(pauses.get(), 1 << cost);
                    assert!(!matches("b", &text, &|| ()), "{password:?}");
                    let other = format!("{password}.");
                    let same = bcrypt::verify(&other, &text).expect("compared");
                    assert_eq!(matches(&other, &text, &|| ()), same, "{password:?}");
                }
            }
        }
    }

    #[test]
    fn damaged_hash_matches_no_password() {
        let whole = "$2a$04$......................LAtw7/ohmmBAhnXqmkuIz83Rl5Qdjhm";
        for hash in ["", "root", &whole[..59], &whole.replace("$04$", "$03$")] {
            assert!(!matches("", hash, &|| ()), "{hash}");
            assert!(!matches("root", hash, &|| ()), "{hash}");
        }
    }
}
