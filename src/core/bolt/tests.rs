//! What was written is read back; damage is an error and nothing worse.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Contents = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Writes a file as its users do: bytes taken now and then, the head last.
fn write(contents: &Contents) -> Vec<u8> {
    let mut file = vec![0; HEAD_BYTES];
    let mut writer = Writer::new();
    for (name, pairs) in contents {
        writer.bucket(name).expect("a bucket");
        for (key, value) in pairs {
            writer.put(key, value).expect("a key");
            if writer.pending() > 3 * PAGE_BYTES {
                file.extend(writer.take());
            }
        }
    }
    let finished = writer.finish();
    file.extend(finished.rest);
    file[..HEAD_BYTES].copy_from_slice(&finished.head);
    assert_eq!(file.len() as u64, finished.length);
    file
}

fn read(file: &[u8]) -> Result<Contents> {
    let reader = Reader::open(file)?;
    let mut contents = Contents::new();
    for bucket in reader.buckets()? {
        let mut cursor = reader.cursor(&bucket)?;
        let mut pairs = BTreeMap::new();
        while let Some((key, value)) = cursor.next_pair()? {
            pairs.insert(key.to_vec(), value.to_vec());
        }
        contents.insert(bucket.name.to_vec(), pairs);
    }
    Ok(contents)
}

fn rows(count: usize, value: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let row = |number: usize| {
        let key = (number as u64).to_be_bytes().to_vec();
        (key, vec![number as u8; value])
    };
    (0..count).map(row).collect()
}

fn contents() -> impl Strategy<Value = Contents> {
    let key = prop::collection::vec(any::<u8>(), 1..40);
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (0..20_000_usize).prop_map(|size| vec![7; size]),
    ];
    let pairs = prop::collection::btree_map(key, value, 0..200);
    let name = prop::collection::vec(any::<u8>(), 1..20);
    prop::collection::btree_map(name, pairs, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn database_round_trips(contents in contents()) {
        let file = write(&contents);
        prop_assert_eq!(read(&file).expect("readable"), contents);
    }

    /// Bytes exchanged anywhere but in values cannot do more than give an error; in values they
    /// go unseen, which the digest behind a snapshot is there for.
    #[test]
    fn damaged_database_never_panics(
        contents in contents(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = write(&contents);
        let length = file.len();
        for (at, byte) in damage {
            file[at.index(length)] = byte;
        }
        let _ = read(&file);
        file.truncate(cut.index(length));
        let _ = read(&file);
    }

    /// Damage where the structure is: page headers, elements, metas with their sums made right.
    #[test]
    fn damaged_structure_never_panics(
        count in 0..2_000_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..64_usize, any::<u8>()), 1..20),
    ) {
        let file = write(&Contents::from([(b"key".to_vec(), rows(count, 5))]));
        let mut damaged = file.clone();
        for (page, at, byte) in damage {
            let page = page.index(file.len() / PAGE_BYTES);
            damaged[page * PAGE_BYTES + at] = byte;
        }
        let _ = read(&damaged);
        damaged[..HEAD_BYTES].copy_from_slice(&file[..HEAD_BYTES]);
        let _ = read(&damaged);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn trees_of_every_height_round_trip() {
    for (count, value) in [
        (0, 0),
        (1, 0),
        (30, 3),
        (100, 3),
        (300, 0),
        (20_000, 0),
        (60, 5_000),
    ] {
        let contents = Contents::from([
            (b"a".to_vec(), rows(count, value)),
            (b"b".to_vec(), BTreeMap::new()),
            (b"c".to_vec(), rows(3, 1)),
        ]);
        assert_eq!(read(&write(&contents)).expect("readable"), contents);
    }
    // Long keys make narrow pages and so a deep tree.
    let long = |number: usize| (format!("{number:03000}").into_bytes(), vec![1]);
    let contents = Contents::from([(b"deep".to_vec(), (0..300).map(long).collect())]);
    assert_eq!(read(&write(&contents)).expect("readable"), contents);
}

#[test]
fn one_valid_meta_page_is_enough() {
    let contents = Contents::from([(b"key".to_vec(), rows(500, 50))]);
    let file = write(&contents);
    for page in [0, 1] {
        let mut damaged = file.clone();
        damaged[page * PAGE_BYTES + 40] ^= 1;
        assert_eq!(read(&damaged).expect("the other one"), contents);
    }
    let mut damaged = file;
    damaged[40] ^= 1;
    damaged[PAGE_BYTES + 40] ^= 1;
    let error = read(&damaged).expect_err("no meta is left").to_string();
    assert!(error.contains("checksum of the meta page"), "{error}");
}

#[test]
fn truncated_file_is_an_error() {
    let file = write(&Contents::from([(b"key".to_vec(), rows(500, 50))]));
    let cut = &file[..file.len() - PAGE_BYTES];
    let error = read(cut).expect_err("it is cut").to_string();
    assert!(error.contains("cut off"), "{error}");
    let error = read(b"hello").expect_err("no file").to_string();
    assert!(error.contains("no database file of etcd"), "{error}");
}

#[test]
fn page_cycle_is_an_error() {
    let mut file = write(&Contents::from([(b"key".to_vec(), rows(5_000, 50))]));
    // The root of the bucket is the page before the last: its first child becomes itself.
    let root = file.len() / PAGE_BYTES - 2;
    let start = root * PAGE_BYTES;
    assert_eq!(file[start + 8], 1, "a branch");
    file[start + 24..start + 32].copy_from_slice(&(root as u64).to_le_bytes());
    let error = read(&file).expect_err("a loop").to_string();
    assert!(error.contains("twice"), "{error}");
}

/// A page that reached over its neighbours was read as often as there were such pages: each file of
/// n pages could make the reader read n times n, and hold a copy of the file for each level.
#[test]
fn overlapping_pages_are_an_error() {
    let mut file = write(&Contents::from([(b"key".to_vec(), rows(12, 9_000))]));
    assert!(read(&file).is_ok());
    let overflow = |page: usize| page * PAGE_BYTES + 12;
    // Behind the two metas and the list of free pages.
    let next = |page: &usize| Some(page + 1 + usize::from(file[overflow(*page)]));
    let mut pages = std::iter::successors(Some(3), next);
    let first = pages.next().expect("a page");
    let second = pages.next().expect("another page");
    for page in [first, second] {
        assert_eq!(file[page * PAGE_BYTES + 8], 2, "a leaf");
    }
    file[overflow(first)] += 1;
    let error = read(&file).expect_err("an overlap").to_string();
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn unstorable_content_is_refused() {
    let mut writer = Writer::new();
    assert!(matches!(writer.put(b"k", b""), Err(Error::Bucket)));
    writer.bucket(b"one").expect("a bucket");
    writer.put(b"b", b"").expect("a key");
    assert!(matches!(writer.put(b"a", b""), Err(Error::Order { .. })));
    let mut writer = Writer::new();
    writer.bucket(b"one").expect("a bucket");
    assert!(matches!(writer.put(b"", b""), Err(Error::Size { .. })));
    assert!(matches!(
        writer.put(&[0; 40_000], b""),
        Err(Error::Size { .. })
    ));
    writer.bucket(b"two").expect("a bucket");
    assert!(matches!(writer.bucket(b"one"), Err(Error::Bucket)));
}

#[test]
fn memory_is_bounded_by_a_page_per_level() {
    let mut writer = Writer::new();
    writer.bucket(b"key").expect("a bucket");
    let mut total = 0;
    for number in 0..100_000_u64 {
        writer.put(&number.to_be_bytes(), &[0; 100]).expect("a key");
        let made = writer.take();
        assert!(made.len() <= 4 * PAGE_BYTES, "more than a page a level");
        total += made.len();
    }
    let finished = writer.finish();
    assert_eq!(
        (HEAD_BYTES + total + finished.rest.len()) as u64,
        finished.length
    );
}
