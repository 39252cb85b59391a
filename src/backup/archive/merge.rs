//! Small objects into a larger one, by the archiver that wrote them: the larger one is there before they go. Killed at any
//! moment, it leaves entries twice and loses none.

use super::names::Range;
use super::segment::Segment;
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::repository::Repository;
use crate::backup::save::random;

/// Objects that are merged.
const OBJECTS: usize = 64;
/// Bytes of entries that are merged, before they are compressed: an object has to stay shorter than the longest part.
const BYTES: u64 = 8 << 20;

/// Objects that were not merged yet, in order and without a hole.
#[derive(Debug, Default)]
pub(super) struct Small {
    ranges: Vec<Range>,
    bytes: u64,
}

impl Small {
    /// An object was written, with so many bytes of entries.
    pub(super) fn push(&mut self, range: Range, bytes: u64) {
        self.ranges.push(range);
        self.bytes += bytes;
    }

    /// Those that are to be merged now; they are forgotten.
    pub(super) fn due(&mut self) -> Option<Vec<Range>> {
        if self.ranges.len() < OBJECTS && self.bytes < BYTES {
            return None;
        }
        let due = std::mem::take(self).ranges;
        (due.len() > 1).then_some(due)
    }
}

/// Merges objects.
///
/// # Errors
/// Those of the store; what is in it may be there twice then.
pub(super) async fn merge(
    repository: &Repository,
    cluster_id: u64,
    keys: &[Key],
    ranges: &[Range],
) -> Result<(), Error> {
    let mut segments = Vec::new();
    for range in ranges {
        match repository
            .archived_segment(cluster_id, *range, keys)
            .await?
        {
            Some(segment) => segments.push(segment),
            // Pruned.
            None => return Ok(()),
        }
    }
    let Some(segment) = joined(segments) else {
        return Ok(());
    };
    let range = segment.range()?;
    let object = sealed(segment, cluster_id, keys).await?;
    repository
        .create_archived(cluster_id, range, object, keys)
        .await?;
    // One that was there before may be another's: it has to be whole.
    let read = repository.archived_segment(cluster_id, range, keys);
    if read.await?.is_none() {
        return Ok(());
    }
    for small in ranges {
        repository.delete_archived(cluster_id, *small).await?;
    }
    Ok(())
}

/// A segment as an object, encrypted with the first key.
pub(super) async fn sealed(
    segment: Segment,
    cluster_id: u64,
    keys: &[Key],
) -> Result<Vec<u8>, Error> {
    let key = match keys.first() {
        Some(key) => Some((key.clone(), random::<32>()?)),
        None => None,
    };
    let sealed = tokio::task::spawn_blocking(move || {
        let key = key.as_ref().map(|(key, salt)| (key, *salt));
        segment.encode(cluster_id, key)
    });
    sealed.await.map_err(crate::backup::save::ended)?
}

/// One segment; `None` if they do not follow each other.
pub(super) fn joined(segments: Vec<Segment>) -> Option<Segment> {
    let mut segments = segments.into_iter();
    let mut whole = segments.next()?;
    for next in segments {
        let last = whole.entries.last()?;
        let first = next.entries.first()?;
        if (first.index, next.term_before) != (last.index + 1, last.term) {
            return None;
        }
        whole.entries.extend(next.entries);
        whole.marks.extend(next.marks);
    }
    Some(whole)
}
