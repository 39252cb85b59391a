//! A compressed archive in memory: files below one folder. Knows nothing of what is in them.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tar::{Builder, Header};

/// An archive in the making.
pub(super) struct Archive {
    folder: String,
    seconds: u64,
    files: Vec<(String, Vec<u8>)>,
}

impl Archive {
    /// With this folder, and this as the time of its files.
    pub(super) fn new(folder: &str, time: Timestamp) -> Self {
        Self {
            folder: folder.to_owned(),
            seconds: u64::try_from(time.as_second()).unwrap_or(0),
            files: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, name: &str, bytes: Vec<u8>) {
        self.files.push((name.to_owned(), bytes));
    }

    pub(super) fn add_json(&mut self, name: &str, value: Value) {
        self.add(name, format!("{value:#}\n").into_bytes());
    }

    /// How many files it has.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Its bytes, in the format `.tar.gz`.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, bytes) in &self.files {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(self.seconds);
            builder.append_data(
                &mut header,
                format!("{}/{name}", self.folder),
                bytes.as_slice(),
            )?;
        }
        builder.into_inner()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_added_is_in_it() {
        let time = Timestamp::from_second(1_700_000_000).expect("a time");
        let mut archive = Archive::new("report", time);
        archive.add("logs/demo-1-0.log", b"a line\n".to_vec());
        archive.add_json("cluster.json", json!({"kind": "EtcdCluster"}));
        assert_eq!(archive.files(), 2);
        let bytes = archive.finish().expect("written");
        let mut read = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let mut found = Vec::new();
        for entry in read.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            assert_eq!(entry.header().mtime().expect("a time"), 1_700_000_000);
            let name = entry.path().expect("a name").display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            found.push((name, text));
        }
        let expected = [
            ("report/logs/demo-1-0.log", "a line\n"),
            ("report/cluster.json", "{\n  \"kind\": \"EtcdCluster\"\n}\n"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
    }
}
