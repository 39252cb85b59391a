//! A thread that carries out slow jobs one after the other, so that their callers need not wait.

use std::io::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::queue::Queue;
use super::state::{RuntimeState, Thread};

type Job = Box<dyn FnOnce() + Send>;

/// How often an idle worker beats.
const IDLE: Duration = Duration::from_secs(1);

/// A thread with a queue of jobs; clones share it.
#[derive(Clone)]
pub(crate) struct Worker {
    jobs: Queue<Job>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Worker {
    /// Starts the thread; it beats for `beat`.
    pub(crate) fn start(
        name: &str,
        beat: Option<(&Arc<RuntimeState>, Thread)>,
    ) -> Result<Worker, Error> {
        let jobs: Queue<Job> = Queue::new(usize::MAX);
        let taken = jobs.clone();
        let beat = beat.map(|(shared, thread)| (Arc::clone(shared), thread));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Some(jobs) = taken.take(IDLE) {
                    for job in jobs {
                        show(&beat);
                        job();
                    }
                    show(&beat);
                }
            })?;
        Ok(Worker {
            jobs,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Queues a job. Dropped when the worker has ended.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.jobs.push_always(0, Box::new(job));
    }

    /// Ends the thread after the queued jobs.
    pub(crate) fn close(&self) {
        self.jobs.close();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("a worker thread had panicked");
        }
    }
}

fn show(beat: &Option<(Arc<RuntimeState>, Thread)>) {
    if let Some((shared, thread)) = beat {
        shared.beat(*thread);
    }
}
