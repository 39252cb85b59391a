//! Texts of one kind of objects, compressed against the first of them: what a cluster's objects say is what any other's say,
//! but for names, UIDs, addresses and keys. In memory alone. Pure; knows nothing of objects.

use std::borrow::Cow;
use std::sync::Arc;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

/// zstd's own default. What is gained comes from the sample.
const LEVEL: i32 = 3;
/// The first texts, until they are as long as this, are what all others are compressed against: of the largest kinds, those
/// of some clusters.
const SAMPLE: usize = 32 << 10;
/// As long as there were fewer bytes, texts are kept as they are: a sample and its tables take some hundred KiB, and each kind
/// has them for each namespace that is watched by itself.
const WORTH: usize = 128 << 10;

/// Packs the texts of one kind.
#[derive(Default)]
pub(super) struct Packer {
    first: Vec<u8>,
    /// Bytes of all texts before there was a sample.
    seen: usize,
    sample: Option<Arc<Sample>>,
}

/// What they are compressed against.
pub(super) struct Sample {
    encoder: EncoderDictionary<'static>,
    decoder: DecoderDictionary<'static>,
}

/// A text.
pub(super) enum Packed {
    /// As it is: one of the first, or shorter so.
    Plain(Box<[u8]>),
    /// Compressed.
    Against {
        sample: Arc<Sample>,
        length: u32,
        bytes: Box<[u8]>,
    },
}

impl Packer {
    pub(super) fn pack(&mut self, text: Box<[u8]>) -> Packed {
        if let Some(sample) = &self.sample {
            return against(sample, &text).unwrap_or(Packed::Plain(text));
        }
        self.seen += text.len();
        if self.first.len() < SAMPLE {
            self.first.extend_from_slice(&text);
        }
        if self.seen >= WORTH {
            let first = std::mem::take(&mut self.first);
            self.sample = Some(Arc::new(Sample {
                encoder: EncoderDictionary::copy(&first, LEVEL),
                decoder: DecoderDictionary::copy(&first),
            }));
        }
        Packed::Plain(text)
    }
}

impl Packed {
    /// The text that was packed.
    pub(super) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            Self::Against {
                sample,
                length,
                bytes,
            } => {
                let text = unpacked(sample, bytes, *length);
                Cow::Owned(text.expect("it was unpacked when it was packed"))
            }
        }
    }
}

/// The text compressed, where that is smaller and is read again as it was.
fn against(sample: &Arc<Sample>, text: &[u8]) -> Option<Packed> {
    let length = u32::try_from(text.len()).ok()?;
    let mut compressor = Compressor::with_prepared_dictionary(&sample.encoder).ok()?;
    let bytes = compressor.compress(text).ok()?;
    let same = unpacked(sample, &bytes, length).is_some_and(|again| again == text);
    (same && bytes.len() < text.len()).then(|| Packed::Against {
        sample: sample.clone(),
        length,
        bytes: bytes.into(),
    })
}

fn unpacked(sample: &Sample, bytes: &[u8], length: u32) -> Option<Vec<u8>> {
    let mut decompressor = Decompressor::with_prepared_dictionary(&sample.decoder).ok()?;
    decompressor.decompress(bytes, length as usize).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of some KiB, of which this number is all that is its own.
    fn text(number: usize) -> Box<[u8]> {
        let field = |at: usize| format!("\"field-{at}\": {}, ", at * at * 7919);
        let fields: String = (0..150).map(field).collect();
        format!("{{{fields}\"number\": {number}}}")
            .into_bytes()
            .into()
    }

    #[test]
    fn texts_are_read_as_they_were_packed() {
        let mut packer = Packer::default();
        let packed: Vec<Packed> = (0..100).map(|number| packer.pack(text(number))).collect();
        for (number, packed) in packed.iter().enumerate() {
            assert_eq!(*packed.text(), *text(number));
        }
        let kept = |packed: &Packed| match packed {
            Packed::Plain(text) => text.len(),
            Packed::Against { bytes, .. } => bytes.len(),
        };
        assert_eq!(kept(&packed[0]), text(0).len(), "there is no sample yet");
        let last = packed.last().expect("some");
        assert!(kept(last) * 10 < text(99).len(), "{} bytes", kept(last));
        // What is like nothing before is not made longer.
        let other: Box<[u8]> = (0..64_u8)
            .map(|byte| byte.wrapping_mul(151) ^ 0x5a)
            .collect();
        let packed = packer.pack(other.clone());
        assert!(kept(&packed) <= other.len());
        assert_eq!(*packed.text(), *other);
        assert!(packer.pack(Box::default()).text().is_empty());
    }
}
