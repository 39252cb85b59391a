//! Checkpoints that are made of the one before, on a disk: as those of the state alone, whatever happens between two of them.

use super::*;

impl Member {
    /// The last checkpoint's stream as it is on the disk.
    fn stored(&self, info: &CheckpointInfo) -> Vec<u8> {
        let reader = self.saver.checkpoints().open(info.position).unwrap();
        reader.flat_map(Result::unwrap).collect()
    }

    /// What a checkpoint of the state alone would have.
    fn alone(&self) -> Vec<u8> {
        let chunks = self.machine.checkpoint().chunks;
        chunks.placed().flatten().collect()
    }

    /// Writes a checkpoint, which has the same as one of the state alone. Returns whether it was made of the one before.
    fn saves_the_same(&mut self) -> bool {
        let before = self.saver.merged();
        let info = self.save().unwrap();
        assert_eq!(self.saver.take_unmerged(), None);
        assert!(self.stored(&info) == self.alone(), "they differ");
        assert_eq!(self.restored(&info).hash().unwrap(), self.hash());
        self.saver.merged() > before
    }

    /// From its newest checkpoint, which has all that was applied.
    fn starts_again(&mut self) {
        let info = self.save().unwrap();
        self.saver = saver(&self.disk, Some(4));
        self.saver.drop_unused().unwrap();
        self.machine = self.restored(&info);
        self.saver.goes_on_from(info.position, &self.machine);
        self.put("started", "again and again");
    }

    fn put_some(&mut self, round: u64) {
        for number in 0..20 {
            let key = (round * 7 + number * number) % 60;
            self.put(&format!("key {key}"), &format!("value {round} {number}"));
        }
    }

    fn compact_to(&mut self, revision: i64) {
        self.apply(Operation::Compact(Compact { revision }));
        self.machine.reclaim(1000);
    }
}

/// A checkpoint is made of the one before and of what has changed since: it must be what it would be without that one.
#[test]
fn checkpoint_made_of_the_one_before_is_as_one_of_the_state_alone() {
    let mut member = Member::new(Some(4));
    let mut merged = Vec::new();
    for round in 0..40_u64 {
        member.put_some(round);
        match round % 8 {
            3 if round < 20 => member.compact_to(i64::try_from(round * 15).unwrap().max(2)),
            // The log of revisions does not reach back to the last checkpoint any more.
            3 => member.compact_to(member.machine.view().revision()),
            // It fails with its values moved: what the last one says of them is not true any more.
            5 => {
                member.disk.set_faults(Faults {
                    fail_sync: Some(3),
                    ..Faults::default()
                });
                member.save().unwrap_err();
                member.disk.set_faults(Faults::default());
            }
            6 => member.starts_again(),
            7 => member.saver = saver(&member.disk, Some(4)),
            _ => {}
        }
        merged.push(member.saves_the_same());
    }
    let alone: Vec<usize> = (0..40).filter(|round| !merged[*round]).collect();
    assert!(
        alone
            .iter()
            .all(|round| [3, 4, 5, 7].contains(&(round % 8)) || *round == 0),
        "{alone:?}"
    );
    assert!(
        merged[3..].chunks(8).any(|eight| eight[0]),
        "none with a compaction: {alone:?}"
    );
}

/// What one checkpoint has of a machine says nothing of another one's, as after one that came from the leader.
#[test]
fn checkpoint_of_another_machine_is_not_built_upon() {
    let mut member = Member::new(Some(4));
    member.put_some(1);
    let info = member.save().unwrap();
    member.put_some(2);
    assert!(member.saves_the_same());
    member.machine = member.restored(&info);
    for round in 3..5 {
        member.put_some(round);
        assert_eq!(member.saves_the_same(), round > 3, "round {round}");
    }
}

/// A damaged place that only the last checkpoint has would be in each that is made of it.
#[test]
fn checkpoint_is_written_anew_once_it_is_asked_for() {
    let mut member = Member::new(Some(4));
    for (round, merged) in [false, true, false, true].into_iter().enumerate() {
        member.put_some(round as u64);
        if round == 2 {
            member.saver.write_anew();
        }
        assert_eq!(member.saves_the_same(), merged, "round {round}");
    }
}

/// The rows that a checkpoint is made of are damaged: it is written from memory, and why is known.
#[test]
fn checkpoint_over_a_damaged_one_is_written_from_memory() {
    let mut member = Member::new(Some(4));
    member.put_some(1);
    let info = member.save().unwrap();
    for byte in [60, info.bytes / 2, info.bytes - 30] {
        member.put_some(byte);
        let (before, last) = (
            member.saver.merged(),
            member.saver.checkpoints().list().unwrap()[0],
        );
        let name = format!(
            "checkpoints/{:016x}-{:016x}.checkpoint",
            last.index, last.term
        );
        member.disk.flip_bit(&name, byte, 1).unwrap();
        let info = member.save().unwrap();
        let why = member.saver.take_unmerged().expect("it could not be used");
        assert!(why.contains(&name), "{why}");
        assert_eq!(member.saver.merged(), before);
        assert!(member.stored(&info) == member.alone());
    }
}

/// A checkpoint that is made of the one before had the damaged place again, and so had the next start.
#[test]
fn healed_value_is_not_where_the_last_checkpoint_has_it() {
    let mut members = [Member::new(Some(4)), Member::new(None)];
    // Longer than what a file has besides: it would be worn, and its values would move.
    let value = |key: &str| format!("value of {key}: {}", key.repeat(80));
    for member in &mut members {
        for key in ["a", "b"] {
            member.put(key, &value(key));
        }
        member.save().unwrap();
    }
    let [mut member, other] = members;
    member.put("c", &value("c"));
    assert!(member.saves_the_same());
    assert!(member.saver.worn().is_empty());
    member.damage(1, &value("a"));
    member.read("a").unwrap_err();
    assert_eq!(member.heal_from(&other), 1);
    member.put("d", &value("d"));
    let info = member.save().unwrap();
    member.machine = member.restored(&info);
    assert_eq!(member.read("a").unwrap(), value("a"));
}
