//! Reads a file that someone else wrote. Every offset, length and page number is checked before
//! it is used; no page is visited twice, so that what looks like a loop is an error.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::layout::{
    BRANCH, BUCKET_HEADER, ELEMENT, IS_BUCKET, LEAF, Meta, PAGE_BYTES, PAGE_HEADER, PageHeader,
    u32_at, u64_at,
};
use super::{Error, Result};

/// Sizes of pages that the format is used with.
const PAGE_SIZES: std::ops::RangeInclusive<usize> = 1024..=65_536;
/// Longest page with all that belongs to it, in bytes: twice the largest request that anyone has
/// been seen to allow, and far more.
const MAX_PAGE_BYTES: u64 = 512 << 20;
/// Deepest tree. Two children a page already make 2^48 leaves.
const MAX_DEPTH: usize = 48;
/// A page is read in pieces of this size, so that memory grows only with bytes that are there.
const PIECE: usize = 1 << 20;

/// Where the bytes of the file come from.
pub trait Source {
    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever keeps the file from being read.
    fn length(&self) -> io::Result<u64>;

    /// Fills `into` from an offset. Never called beyond the length.
    ///
    /// # Errors
    /// Whatever keeps the file from being read.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(into.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// An open file.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    meta: Meta,
    page_size: usize,
}

/// A bucket, to be read with [`Reader::cursor`].
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Its name.
    pub name: Bytes,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Page(u64),
    /// The page inside the bucket's value.
    Inline(Bytes),
}

/// A leaf or a branch.
#[derive(Debug)]
struct Page {
    header: PageHeader,
    bytes: Bytes,
    /// Number of the page in the file, for messages.
    number: u64,
}

/// The keys of a bucket with their values, one after another.
#[derive(Debug)]
pub struct Cursor<'a, S> {
    reader: &'a Reader<S>,
    /// Pages from the root down, each with the position of its next element.
    path: Vec<(Rc<Page>, usize)>,
    visited: Visited,
    last: Option<Bytes>,
}

/// A bit a page.
#[derive(Debug)]
struct Visited(Vec<u64>);

impl Visited {
    fn new(pages: u64) -> Self {
        // As many pages as the file really has: an eighth of a byte for each 1 KiB at least.
        Visited(vec![0; (pages / 64 + 1) as usize])
    }

    /// Whether this is the first time.
    fn visit(&mut self, page: u64) -> bool {
        let bit = 1 << (page % 64);
        match self.0.get_mut((page / 64) as usize) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }
}

impl<S: Source> Reader<S> {
    /// Opens a file: finds the newer of its two metas that is whole.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Damaged`], [`Error::Read`].
    pub fn open(source: S) -> Result<Self> {
        let length = source.length()?;
        let first = meta_at(&source, length, 0);
        let second = match &first {
            Ok(meta) => meta_at(&source, length, u64::from(meta.page_size)),
            // Without the first, the size of a page is not known.
            Err(_) => PAGE_SIZES
                .filter(|size| size.is_power_of_two())
                .find_map(|size| {
                    let meta = meta_at(&source, length, size as u64).ok()?;
                    (meta.page_size as usize == size).then_some(meta)
                })
                .ok_or(Error::Bucket),
        };
        let meta = match (first, second) {
            (Ok(first), Ok(second)) if second.transaction > first.transaction => second,
            (Ok(first), _) => first,
            (Err(_), Ok(second)) => second,
            (Err(error), Err(_)) => return Err(error),
        };
        let page_size = meta.page_size as usize;
        if !PAGE_SIZES.contains(&page_size) || !page_size.is_power_of_two() {
            let text = format!("its pages are said to have {page_size} bytes");
            return Err(Error::Foreign(text));
        }
        let pages = length / page_size as u64;
        if meta.end > pages {
            return Err(Error::Foreign(format!(
                "it is cut off: {pages} of {} pages are there",
                meta.end
            )));
        }
        Ok(Reader {
            source,
            meta,
            page_size,
        })
    }

    /// All buckets, by name.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Read`].
    pub fn buckets(&self) -> Result<Vec<Bucket>> {
        let mut cursor = self.at(&Place::Page(self.meta.root))?;
        let mut buckets = Vec::new();
        while let Some((flags, name, value, page)) = cursor.step()? {
            let damaged = |what| Error::Damaged { page, what };
            if flags & IS_BUCKET == 0 {
                return Err(damaged("a key lies outside of every bucket"));
            }
            let root = u64_at(&value, 0).filter(|_| value.len() >= BUCKET_HEADER);
            let place = match root.ok_or_else(|| damaged("a bucket is cut off"))? {
                0 => Place::Inline(value.slice(BUCKET_HEADER..)),
                root => Place::Page(root),
            };
            buckets.push(Bucket { name, place });
        }
        Ok(buckets)
    }

    /// The keys of a bucket.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Read`].
    pub fn cursor(&self, bucket: &Bucket) -> Result<Cursor<'_, S>> {
        self.at(&bucket.place)
    }

    fn at(&self, place: &Place) -> Result<Cursor<'_, S>> {
        let mut visited = Visited::new(self.meta.end);
        let page = match place {
            Place::Page(page) => self.page(*page, &mut visited)?,
            Place::Inline(bytes) => {
                let page = Page::new(self.meta.root, bytes.clone())?;
                if page.header.flags & BRANCH != 0 {
                    return Err(page.damaged("a bucket inside its value is no leaf"));
                }
                page
            }
        };
        Ok(Cursor {
            reader: self,
            path: vec![(Rc::new(page), 0)],
            visited,
            last: None,
        })
    }

    /// Reads a leaf or a branch with what overflows it.
    fn page(&self, number: u64, visited: &mut Visited) -> Result<Page> {
        let damaged = |what| Error::Damaged { page: number, what };
        if number < 2 || number >= self.meta.end {
            return Err(damaged("there is no such page"));
        }
        if !visited.visit(number) {
            return Err(damaged("it belongs to the tree twice"));
        }
        let start = number * self.page_size as u64;
        let mut bytes = vec![0; self.page_size];
        self.source.read(start, &mut bytes)?;
        let header = PageHeader::read(&bytes).ok_or_else(|| damaged("it has no header"))?;
        if header.id != number {
            return Err(damaged("its header names another page"));
        }
        let pages = 1 + u64::from(header.overflow);
        let length = pages * self.page_size as u64;
        if number + pages > self.meta.end || length > MAX_PAGE_BYTES {
            return Err(damaged("it reaches beyond the end"));
        }
        if !(number + 1..number + pages).all(|page| visited.visit(page)) {
            return Err(damaged("what it overflows into belongs to the tree twice"));
        }
        while (bytes.len() as u64) < length {
            let have = bytes.len();
            let more = PIECE.min((length - have as u64) as usize);
            bytes.resize(have + more, 0);
            self.source.read(start + have as u64, &mut bytes[have..])?;
        }
        Page::new(number, Bytes::from(bytes))
    }
}

fn meta_at<S: Source>(source: &S, length: u64, offset: u64) -> Result<Meta> {
    let mut bytes = [0; 80];
    if offset + bytes.len() as u64 > length || length < 2 * *PAGE_SIZES.start() as u64 {
        return Err(Error::Foreign("it is too short".to_owned()));
    }
    source.read(offset, &mut bytes)?;
    Meta::read(&bytes)
}

impl Page {
    fn new(number: u64, bytes: Bytes) -> Result<Self> {
        let damaged = |what| Error::Damaged { page: number, what };
        let header = PageHeader::read(&bytes).ok_or_else(|| damaged("it has no header"))?;
        if header.flags & (LEAF | BRANCH) == 0 || header.flags & (LEAF | BRANCH) == LEAF | BRANCH {
            return Err(damaged("it is neither a leaf nor a branch"));
        }
        if bytes.len() < PAGE_HEADER + usize::from(header.count) * ELEMENT {
            return Err(damaged("it counts more elements than it holds"));
        }
        Ok(Page {
            header,
            bytes,
            number,
        })
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged {
            page: self.number,
            what,
        }
    }

    fn is_branch(&self) -> bool {
        self.header.flags & BRANCH != 0
    }

    /// Flags, key and value of an element of a leaf.
    fn item(&self, at: usize) -> Result<(u32, Bytes, Bytes)> {
        let start = PAGE_HEADER + at * ELEMENT;
        let field = |number: usize| u32_at(&self.bytes, start + number * 4);
        let (Some(flags), Some(position), Some(key), Some(value)) =
            (field(0), field(1), field(2), field(3))
        else {
            return Err(self.damaged("an element is cut off"));
        };
        let key_start = start as u64 + u64::from(position);
        let value_start = key_start + u64::from(key);
        let end = value_start + u64::from(value);
        if end > self.bytes.len() as u64 || key == 0 {
            return Err(self.damaged("an element reaches beyond its page"));
        }
        // All of them lie within the page, which is in memory.
        let (key_start, value_start) = (key_start as usize, value_start as usize);
        Ok((
            flags,
            self.bytes.slice(key_start..value_start),
            self.bytes.slice(value_start..end as usize),
        ))
    }

    /// The child that an element of a branch names.
    fn child(&self, at: usize) -> Result<u64> {
        u64_at(&self.bytes, PAGE_HEADER + at * ELEMENT + 8)
            .ok_or_else(|| self.damaged("an element is cut off"))
    }
}

impl<S: Source> Cursor<'_, S> {
    /// The next key and its value.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Read`].
    pub fn next_pair(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        match self.step()? {
            None => Ok(None),
            Some((flags, _, _, page)) if flags & IS_BUCKET != 0 => Err(Error::Damaged {
                page,
                what: "a bucket lies inside a bucket",
            }),
            Some((_, key, value, _)) => Ok(Some((key, value))),
        }
    }

    /// Flags, key, value and page of the next element.
    fn step(&mut self) -> Result<Option<(u32, Bytes, Bytes, u64)>> {
        loop {
            let depth = self.path.len();
            let Some((page, next)) = self.path.last_mut() else {
                return Ok(None);
            };
            let (page, at) = (Rc::clone(page), *next);
            if at == usize::from(page.header.count) {
                self.path.pop();
                continue;
            }
            *next += 1;
            if page.is_branch() {
                if depth == MAX_DEPTH {
                    return Err(page.damaged("the tree is too deep"));
                }
                let child = self.reader.page(page.child(at)?, &mut self.visited)?;
                self.path.push((Rc::new(child), 0));
                continue;
            }
            let (flags, key, value) = page.item(at)?;
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(page.damaged("its keys are out of order"));
            }
            self.last = Some(key.clone());
            return Ok(Some((flags, key, value, page.number)));
        }
    }
}

const _: () = assert!(PAGE_BYTES >= 1024 && PAGE_BYTES <= 65_536);
