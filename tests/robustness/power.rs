//! The effect of a power loss on files: writes that were not synced are lost, whole or in part. The library in the
//! server's process records the bytes that every write replaces (`faults.c`); this restores them after the process has
//! been killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::traffic::client::Generator;

/// The header of a note: five numbers of eight bytes.
const HEAD: usize = 40;
/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

/// A write that was not synced.
struct Write<'a> {
    offset: u64,
    size_before: u64,
    had: &'a [u8],
}

/// Reverts the writes that were not synced according to the notes; returns their number.
pub(crate) fn lose_unsynced(notes: &Path, seed: u64) -> std::io::Result<u64> {
    let notes = std::fs::read(notes)?;
    let mut generator = Generator::new(seed);
    let mut lost = 0;
    for (path, writes) in unsynced(&notes)? {
        let Ok(file) = File::options().read(true).write(true).open(path) else {
            continue; // removed or renamed since
        };
        // Either all these writes to the file are lost, or each sector of them by chance.
        let whole = generator.one_in(2);
        for write in writes.iter().rev() {
            for (at, sector) in write.had.chunks(SECTOR).enumerate() {
                if whole || generator.one_in(2) {
                    file.write_all_at(sector, write.offset + (at * SECTOR) as u64)?;
                }
            }
            if whole && file.metadata()?.len() > write.size_before {
                file.set_len(write.size_before)?;
            }
            lost += 1;
        }
    }
    Ok(lost)
}

fn unsynced(notes: &[u8]) -> std::io::Result<BTreeMap<&str, Vec<Write<'_>>>> {
    let mut files: BTreeMap<&str, Vec<Write<'_>>> = BTreeMap::new();
    let mut rest = notes;
    // The last note may be cut off: then its write did not happen.
    while let Some((head, after)) = rest.split_at_checked(HEAD) {
        let field = |at: usize| -> std::io::Result<usize> {
            let bytes = head[at * 8..][..8].try_into().expect("eight bytes");
            usize::try_from(i64::from_ne_bytes(bytes))
                .map_err(|error| Error::new(ErrorKind::InvalidData, error))
        };
        let (path, had) = (field(1)?, field(3)?);
        let Some((body, next)) = after.split_at_checked(path + had) else {
            break;
        };
        let (path, had) = body.split_at(path);
        let path =
            std::str::from_utf8(path).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        if field(0)? == 1 {
            files.remove(path);
        } else {
            files.entry(path).or_default().push(Write {
                offset: field(2)? as u64,
                size_before: field(4)? as u64,
                had,
            });
        }
        rest = next;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(notes: &mut Vec<u8>, numbers: [i64; 5], path: &Path, had: &[u8]) {
        numbers
            .iter()
            .for_each(|number| notes.extend(number.to_ne_bytes()));
        notes.extend(path.to_str().expect("text").as_bytes());
        notes.extend(had);
    }

    #[test]
    fn only_what_was_not_synced_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        std::fs::write(&file, b"new-more").expect("written");
        std::fs::write(&other, b"kept").expect("written");
        let length = |path: &Path| path.to_str().expect("text").len() as i64;
        let mut notes = Vec::new();
        note(&mut notes, [0, length(&other), 0, 4, 4], &other, b"gone");
        note(&mut notes, [0, length(&file), 0, 3, 3], &file, b"old");
        note(&mut notes, [0, length(&file), 3, 0, 3], &file, b"");
        note(&mut notes, [1, length(&other), 0, 0, 0], &other, b"");
        let path = folder.path().join("notes");
        std::fs::write(&path, &notes[..]).expect("written");
        // A seed for which whole writes are lost.
        let seed = (0..)
            .find(|seed| Generator::new(*seed).one_in(2))
            .expect("one");
        assert_eq!(lose_unsynced(&path, seed).expect("undone"), 2);
        assert_eq!(std::fs::read(&file).expect("read"), b"old");
        assert_eq!(std::fs::read(&other).expect("read"), b"kept");
    }
}
