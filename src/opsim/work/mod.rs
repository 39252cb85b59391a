//! What runs in the containers of Jobs: it reads its arguments, its Secrets and its environment, calls simulated members
//! and the simulated store, takes its time, and ends with the shipped result in its termination message.
//!
//! Never decides for the operator, and knows nothing that its container does not.

mod arguments;
pub(crate) mod store;
mod task;

use std::collections::BTreeMap;

use crate::opsim::api::ApiServer;
use crate::opsim::kube::{Process, Running};
use crate::opsim::servers::Servers;

use store::Store;
use task::Task;

/// All containers of Jobs, and the store.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) store: Store,
    /// By UID of their pods.
    tasks: BTreeMap<String, Task>,
    stepped_ms: u64,
}

/// What a task reaches.
pub(super) struct Reach<'a> {
    pub(super) api: &'a ApiServer,
    pub(super) servers: &'a mut Servers,
    pub(super) store: &'a mut Store,
    pub(super) now_ms: u64,
    pub(super) passed_ms: u64,
}

impl Work {
    /// Goes on with everything that runs. Returns which pods' processes have ended, and how.
    pub(crate) fn step(
        &mut self,
        running: &[Running],
        api: &ApiServer,
        servers: &mut Servers,
    ) -> Vec<(String, Process)> {
        let now_ms = api.now_ms();
        let passed_ms = now_ms.saturating_sub(self.stepped_ms);
        self.stepped_ms = now_ms;
        self.tasks
            .retain(|uid, _| running.iter().any(|one| one.uid == *uid));
        let jobs = running
            .iter()
            .filter(|one| one.args.first().is_some_and(|word| word == "backup"));
        let mut ended = Vec::new();
        for one in jobs.filter(|one| one.connected) {
            let begun = self.tasks.entry(one.uid.clone());
            let task = begun.or_insert_with(|| Task::begin(one, api, now_ms));
            let mut reach = Reach {
                api,
                servers: &mut *servers,
                store: &mut self.store,
                now_ms,
                passed_ms,
            };
            let result = match one.stops_at_ms {
                None => task.step(&mut reach),
                Some(_) => Some(task.signalled(reach.now_ms)),
            };
            if let Some(result) = result {
                let code = match result {
                    crate::backup_plan::JobResult::Failed { .. } => 1,
                    _ => 0,
                };
                let message = result.line();
                ended.push((one.uid.clone(), Process::Exited { code, message }));
            }
        }
        ended
    }

    /// Whether anything runs.
    pub(crate) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }
}
