//! What a checkpoint costs that is made of the one before: `cargo test --profile instructions -p quorate-core --lib merge_cost -- --ignored
//! --nocapture`. Not part of other runs, since it needs release speed.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::persist::tests::Member;

const KEYS: u64 = 1_000_000;
/// About as many as 64 MiB of log have.
const CHANGES: u64 = 190_000;
/// They repeat only after all keys: neither this nor four less has a factor in common with [`KEYS`].
const STRIDE: u64 = 7_368_787;

/// Processor time of this thread.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(first.expect("a number"))
}

fn put(member: &mut Member, number: u64) {
    member.apply(Operation::Put(Put {
        key: format!("small/{number:026}").into(),
        value: Bytes::copy_from_slice(&[number as u8; 256]),
        ..Put::default()
    }));
}

#[test]
#[ignore = "needs release speed"]
fn merge_cost() {
    let mut member = Member::new(Some(64));
    for number in 0..KEYS {
        put(&mut member, number * STRIDE % KEYS);
    }
    member.save().expect("the first one");
    let mut next = 0;
    for round in 1..=5 {
        for _ in 0..CHANGES {
            next += 1;
            put(&mut member, next * (STRIDE - 4) % KEYS);
        }
        let before = used();
        member.save().expect("one more");
        println!("{:?}", used() - before);
        assert_eq!(member.saver.merged(), round, "made of the one before");
    }
}
