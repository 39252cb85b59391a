//! Opens a followed cluster again that a cutover has closed in vain. Never one that the cluster here may have left.

use std::time::Duration;

use tokio::time::timeout;

use super::Failed;
use super::origin::Origin;
use super::run::{Follow, Follower};
use super::target::Target;
use crate::store::Follow as Step;
use crate::wire::member::Following;

/// Before the process ends, the followed cluster is opened again within this.
const LAST: Duration = Duration::from_secs(20);

/// What became of a closed cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// It takes writes.
    Again,
    /// It was left: nothing of ours opens it.
    Left,
}

/// Opens the followed cluster to writes, which an attempt may have closed: first the cluster here says that no attempt that
/// has raised an alarm until now will end the following, then those alarms go. In this order no two clusters ever take
/// writes. `own`: only if no later attempt than this one has begun.
pub(super) async fn open_again(
    origin: &Origin,
    target: &mut Target<'_>,
    own: Option<u64>,
) -> Result<Opened, Failed> {
    let alarms = origin.alarms().await?;
    let Some(following) = target.connect().await?.following else {
        return Ok(Opened::Left);
    };
    origin.expect(following.source_cluster)?;
    let open = following.attempt;
    if own.is_some_and(|own| open != 0 && open != own) {
        let why = "another process leaves the followed cluster".to_owned();
        return Err(Failed::Passing(why));
    }
    if open != 0 {
        let step = Step {
            source: following.source_cluster,
            open,
            ..Step::default()
        };
        target.advance(Some(&step), Following::default()).await?;
    }
    origin.open(&alarms.closed).await?;
    Ok(Opened::Again)
}

impl Follower<'_, '_> {
    pub(super) async fn open_again(&mut self, own: Option<u64>) -> Result<Opened, Failed> {
        let opened = open_again(&self.origin, self.target, own).await?;
        self.memory.closed.set(None);
        Ok(opened)
    }

    /// A call that was given up may have raised its alarm since: nothing else would open the followed cluster.
    pub(super) async fn open_late(&mut self) -> Result<(), Failed> {
        if self.origin.alarms().await?.closed.is_empty() {
            return Ok(());
        }
        let following = self.target.connect().await?.following;
        match following.is_some_and(|it| it.attempt == 0) {
            true => self.open_again(Some(0)).await.map(drop),
            // Another process is about to leave it, or has left it.
            false => Ok(()),
        }
    }

    /// It was closed in vain. If it cannot be opened now, it is by the next connection, or when this process ends.
    pub(super) async fn give_up(&mut self, attempt: u64) {
        self.memory.vain.set(self.memory.vain.get() + 1);
        let _ = timeout(LAST, self.open_again(Some(attempt))).await;
    }
}

impl Follow {
    /// Opens the followed cluster again before this ends. Returns what keeps it closed: nobody else may know.
    pub(super) async fn open_at_last(&self, attempt: u64) -> Option<String> {
        let opened = async {
            let origin = Origin::connect(&self.from, 0).await?;
            open_again(&origin, &mut Target::new(&self.members), Some(attempt)).await
        };
        let why = match timeout(LAST, opened).await {
            Ok(Ok(Opened::Again)) => {
                eprintln!("quorate follow: the followed cluster takes writes again");
                return None;
            }
            Ok(Ok(Opened::Left)) => return None,
            Ok(Err(Failed::Passing(why))) => why,
            Ok(Err(Failed::Final(error))) => error.to_string(),
            Ok(Err(Failed::Compacted(_))) | Err(_) => format!("no answer in {} s", LAST.as_secs()),
        };
        Some(format!(
            "the followed cluster stays closed to writes until this is started again, or its alarms are disarmed there: {why}"
        ))
    }
}
