//! A source for tests: one that shows what it is told, to whom it is told.

use std::sync::Mutex;
use std::time::Duration;

use super::{Document, Error, Key, Request, Sight, Source};

pub(super) struct Told {
    pub(super) sight: Mutex<Result<Sight, Error>>,
    pub(super) version: Mutex<&'static str>,
}

impl Told {
    pub(super) fn new() -> Self {
        let sight = Sight {
            namespace: None,
            backups: Ok(()),
            events: Ok(()),
        };
        Self {
            sight: Mutex::new(Ok(sight)),
            version: Mutex::new("1"),
        }
    }
}

impl Source for Told {
    const PAUSE: Duration = Duration::from_millis(10);

    async fn sight(&self, request: &Request) -> Result<Sight, Error> {
        match request.token.as_deref() {
            Some("good") => self.sight.lock().expect("unpoisoned").clone(),
            Some(_) => Err(Error::Unknown("it is not valid here".into())),
            None => Err(Error::NoToken),
        }
    }

    async fn document(&self, sight: &Sight, _: Option<&Key>) -> Document {
        Document {
            version: *self.version.lock().expect("unpoisoned"),
            active: true,
            namespace: sight.namespace.clone(),
            clusters: Vec::new(),
            omitted: 0,
            unreadable: 0,
            cluster: None,
        }
    }
}
