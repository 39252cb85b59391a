//! The values of an answer that are in files: read once all of them are known, so that neighbours take one read. Never
//! gives an answer that lacks one.

use super::pace::Pace;
use super::value::Place;
use super::{DamagedValue, KeyValue};

/// What has to be read for an answer.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The number of a key in the answer, and where its value is.
    wanted: Vec<(usize, Place)>,
}

impl Reads {
    /// The value of this key of the answer is in a file.
    pub(super) fn want(&mut self, key: usize, place: Place) {
        self.wanted.push((key, place));
    }

    /// Reads the values into their keys.
    ///
    /// # Errors
    /// The first value that cannot be read; the answer must not be used then.
    pub(super) fn fill(
        mut self,
        kvs: &mut [KeyValue],
        pace: &Pace<'_>,
    ) -> Result<(), DamagedValue> {
        self.wanted
            .sort_unstable_by_key(|(_, place)| (place.file.number(), place.offset));
        let of_files = self
            .wanted
            .chunk_by(|(_, one), (_, other)| one.file.number() == other.file.number());
        for of_file in of_files {
            let places: Vec<(u64, u32)> = of_file
                .iter()
                .map(|(_, place)| (place.offset, place.length))
                .collect();
            // There is one in each.
            let file = &of_file[0].1.file;
            file.read_many(&places, &mut |number, value| {
                pace.step();
                kvs[of_file[number].0].value = value;
            })?;
        }
        Ok(())
    }
}
