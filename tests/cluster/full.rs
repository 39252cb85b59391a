//! A volume that is filled to its last byte. It is a real file system: a tmpfs in a mount namespace of its own, in
//! which the server is started. It needs `unshare` and `nsenter`, and permission to create the namespace, as root or
//! in a user namespace; without them the test reports that it was skipped.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quorate::disk::{Disk as _, FileDisk};
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{
    AlarmRequest, AlarmType, CompactionRequest, DeleteRangeRequest, alarm_request::AlarmAction,
};

use super::fixture::{Server, by_hand, until};

const MIB: usize = 1 << 20;
/// MiB of the volume; `VOLUME_MIB` sets another size, as the soak does.
const VOLUME_MIB: usize = 64;
const VALUE: usize = 256 << 10;

/// Sizes that follow from the volume's.
#[derive(Clone, Copy)]
struct Sizes {
    volume: usize,
    /// Of a segment of the log, in bytes.
    segment: usize,
    /// The number of values that fill a quarter of the volume, or nearly where they go to files: a second checkpoint is not due then.
    values: usize,
}

impl Sizes {
    fn chosen(values: Values) -> Sizes {
        let given = std::env::var("VOLUME_MIB").ok();
        let mib = given.map_or(VOLUME_MIB, |given| {
            given.parse().expect("VOLUME_MIB: a number")
        });
        assert!(mib >= VOLUME_MIB, "VOLUME_MIB: {VOLUME_MIB} or more");
        Sizes {
            volume: mib * MIB,
            segment: (mib * MIB / 16).min(64 * MIB),
            values: match values {
                Values::InCheckpoints => mib,
                Values::InFiles => mib - mib / 16,
            },
        }
    }
}

/// A tmpfs at `at`, in a mount namespace that exists while its holder process runs.
pub(super) struct Volume {
    holder: Child,
    pub(super) wrapper: Vec<String>,
    inside: PathBuf,
}

impl Volume {
    pub(super) async fn mount(at: &Path, bytes: usize) -> Option<Volume> {
        std::fs::create_dir(at).unwrap();
        let ready = at.with_extension("ready");
        let script = format!(
            "mount -t tmpfs -o size={bytes} tmpfs {at} && touch {ready} && exec sleep 600",
            at = at.display(),
            ready = ready.display()
        );
        for (make, enter) in [
            (&["--mount"][..], &["--mount"][..]),
            (
                &["--user", "--map-root-user", "--mount"],
                &["--user", "--preserve-credentials", "--mount"],
            ),
        ] {
            let held = Command::new("unshare")
                .args(make)
                .args(["sh", "-c", &script])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut holder) = held else { continue };
            while !ready.exists() && holder.try_wait().unwrap().is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            if holder.try_wait().unwrap().is_some() {
                continue;
            }
            let mut wrapper = vec!["nsenter".to_owned(), format!("--target={}", holder.id())];
            wrapper.extend(enter.iter().map(|word| (*word).to_owned()));
            wrapper.push("--".to_owned());
            let inside = format!("/proc/{}/root{}", holder.id(), at.display());
            return Some(Volume {
                holder,
                wrapper,
                inside: inside.into(),
            });
        }
        None
    }

    fn free(&self) -> u64 {
        // Not with `df`, which matches the path against the mounts of this namespace.
        FileDisk::new(&self.inside).unwrap().free_bytes().unwrap()
    }

    /// Waits until a checkpoint of at least this index is whole and none is being written. The volume is not filled under
    /// one, which would end differently each time.
    async fn has_a_checkpoint(&self, server: &Server, least: usize) {
        until("a checkpoint is whole", server, async || {
            let checkpoints = self.files("checkpoints");
            let whole = checkpoints
                .iter()
                .all(|(name, _)| name.ends_with(".checkpoint"));
            let index = |name: &str| u64::from_str_radix(name.split('-').next()?, 16).ok();
            let newest = checkpoints.iter().filter_map(|(name, _)| index(name)).max();
            (whole && newest >= Some(least as u64)).then_some(())
        })
        .await;
    }

    /// Gives back so much of what it was filled with.
    fn release(&self, bytes: u64) {
        let ballast = File::options()
            .write(true)
            .open(self.inside.join("ballast"));
        let ballast = ballast.unwrap();
        let left = ballast.metadata().unwrap().len().saturating_sub(bytes);
        ballast.set_len(left).unwrap();
    }

    /// The bytes of the data directory: its own files, the reserve among them, and those of its directories.
    fn used(&self) -> u64 {
        let directories = ["", "checkpoints", "log", "values"];
        let files = directories.into_iter().flat_map(|of| self.files(of));
        files.map(|(_, bytes)| bytes).sum()
    }

    /// The files of a directory in the data directory, with their sizes. One that is removed meanwhile is none.
    fn files(&self, of: &str) -> Vec<(String, u64)> {
        let found = std::fs::read_dir(self.inside.join("data").join(of));
        let entries = found.into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let known = entry.metadata().ok().filter(|known| known.is_file())?;
            Some((entry.file_name().into_string().unwrap(), known.len()))
        });
        files.collect()
    }

    /// Fills the volume until `left` bytes are free.
    fn fill(&self, left: u64) {
        let mut ballast = File::options()
            .create(true)
            .append(true)
            .open(self.inside.join("ballast"))
            .unwrap();
        let block = vec![1; 64 << 10];
        // Read once a block: the member writes meanwhile, and what is left may be less by the next look.
        while let Some(more) = self.free().checked_sub(left).filter(|more| *more > 0) {
            let n = more.min(block.len() as u64);
            if ballast
                .write_all(&block[..usize::try_from(n).unwrap()])
                .is_err()
            {
                return;
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

/// The IDs of the members with an active NOSPACE alarm.
async fn alarms(server: &Server) -> Option<Vec<u64>> {
    let request = AlarmRequest {
        action: AlarmAction::Get.into(),
        member_id: 0,
        alarm: AlarmType::Nospace.into(),
    };
    let mut client = MaintenanceClient::new(server.channel());
    let response = client.alarm(request).await.ok()?.into_inner();
    Some(
        response
            .alarms
            .iter()
            .map(|alarm| alarm.member_id)
            .collect(),
    )
}

/// Disarms the alarm, as `etcdctl alarm disarm` does.
async fn disarm(server: &Server) -> Option<()> {
    for member_id in alarms(server).await? {
        let request = AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id,
            alarm: AlarmType::Nospace.into(),
        };
        let mut client = MaintenanceClient::new(server.channel());
        client.alarm(request).await.ok()?;
    }
    Some(())
}

/// A full volume stopped a running server when it prepared a segment or wrote a checkpoint, and a server could not
/// start on one, so the data could not be compacted: the only remedy was a larger volume.
#[tokio::test]
async fn full_volume_is_served_and_compacted() {
    is_served_and_compacted(Values::InCheckpoints).await;
}

/// Of values in files nothing came back when they were deleted and compacted: the newest of their records were kept for
/// watchers, which kept the files. Nor did it where the last checkpoint was taken right before, so that little was in the log.
#[tokio::test]
async fn full_volume_with_files_of_values_is_served_and_compacted() {
    is_served_and_compacted(Values::InFiles).await;
}

/// Where a checkpoint has large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    InCheckpoints,
    InFiles,
}

async fn is_served_and_compacted(values: Values) {
    let home = tempfile::tempdir().unwrap();
    let sizes = Sizes::chosen(values);
    let Some(volume) = Volume::mount(&home.path().join("volume"), sizes.volume).await else {
        let asked = std::env::var_os("VOLUME_MIB");
        assert!(asked.is_none(), "a tmpfs cannot be mounted on this machine");
        eprintln!(
            "NOT RUN: a full volume, values {values:?}: a tmpfs cannot be mounted \
             in a namespace (unshare --mount, or with --user) on this machine"
        );
        return;
    };
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let data = home.path().join("volume/data");
    for argument in &mut server.arguments {
        if argument.starts_with("--data-dir=") {
            *argument = format!("--data-dir={}", data.display());
        }
    }
    server.wrapper = volume.wrapper.clone();
    if values == Values::InCheckpoints {
        let gate = "--feature-gates=ValuesOnDisk=false";
        server.arguments.push(gate.to_owned());
    }
    server.start();
    server.serves("first").await;
    if values == Values::InFiles {
        until("values may be in files", &server, async || {
            let log = server.log();
            log.contains("every member can read values from files")
                .then_some(())
        })
        .await;
    }
    let value = "x".repeat(VALUE);
    for number in 0..sizes.values {
        server.put(&format!("key-{number}"), &value).await.unwrap();
    }
    // It is due behind twice a segment, and so is no other one behind it. The other way none is due for so few entries.
    if values == Values::InFiles {
        volume.has_a_checkpoint(&server, sizes.values / 2).await;
    }
    // The alarm is raised while there is space: for a checkpoint, which holds all values, and for two segments.
    let needed = 2 * sizes.segment + sizes.values * VALUE;
    until("NOSPACE is raised", &server, async || {
        // Again, since log is dropped behind a checkpoint.
        volume.fill(needed as u64 - MIB as u64);
        (!alarms(&server).await?.is_empty()).then_some(())
    })
    .await;
    // Less is left where the next segment was only now written.
    let free = volume.free();
    assert!(free > sizes.segment as u64, "{free} bytes are free");
    // With no byte free, reads are served, and writes are refused with a reason.
    volume.fill(0);
    let holds = async |server: &Server| {
        for number in [0, sizes.values - 1] {
            let key = format!("key-{number}");
            let found = until("it reads", server, async || {
                server.get(&key, false).await.ok()
            });
            assert_eq!(found.await.map(|found| found.len()), Some(VALUE));
        }
        let refused = server.put("more", "1").await.unwrap_err();
        let words = "etcdserver: mvcc: database space exceeded";
        assert_eq!(refused.message(), words, "{}", server.log());
    };
    holds(&server).await;
    // It starts repeatedly on a volume without a free byte.
    for _ in 0..2 {
        server.kill();
        volume.fill(0);
        server.start();
        holds(&server).await;
    }
    volume.fill(0);
    // Deletion and compaction free space, and writes are served again.
    let delete = DeleteRangeRequest {
        key: "key-".into(),
        range_end: "key.".into(),
        ..Default::default()
    };
    let deleted = server.kv().delete_range(delete).await.unwrap().into_inner();
    assert_eq!(deleted.deleted, sizes.values as i64);
    let compact = CompactionRequest {
        revision: deleted.header.unwrap().revision,
        physical: true,
    };
    server.kv().compact(compact).await.unwrap();
    until("there is space again", &server, async || {
        // It comes back with two checkpoints, of which the second has to be newer by an entry.
        let absent = DeleteRangeRequest {
            key: "absent".into(),
            ..Default::default()
        };
        server.kv().delete_range(absent).await.ok()?;
        // The reserve and two segments are left.
        let gone = volume.used() < 4 * sizes.segment as u64 && volume.files("values").is_empty();
        gone.then_some(())
    })
    .await;
    until("writes are served", &server, async || {
        disarm(&server).await?;
        server.put("more", "1").await.ok()
    })
    .await;
    server.kill();
    // The next start raises the alarm with less than two segments free: how much came back depends on how much log there was.
    volume.release(2 * sizes.segment as u64);
    server.start();
    server.holds("more", "1").await;
    server.serves("after").await;
}
