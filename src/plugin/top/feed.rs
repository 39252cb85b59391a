//! Asks for the clusters again and again, on a thread of its own, and sends what it is told. Each time kubectl lists them anew:
//! so nothing is missed, and no kubectl is left behind.

use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::Value;

use super::Message;
use crate::child::get;
use crate::{Which, chain, pause};

/// Between two lists.
const PAUSE: Duration = Duration::from_secs(2);

/// Begins. Ends when nobody takes the messages any more.
pub(super) fn start(which: Which, request: Vec<String>, sender: Sender<Message>) {
    std::thread::spawn(move || {
        loop {
            let message = match get::<Value>(&which, &request) {
                Ok(found) => Message::Seen(listed(found)),
                Err(error) => Message::Broken(chain(&error)),
            };
            if sender.send(message).is_err() {
                return;
            }
            pause(PAUSE);
        }
    });
}

/// The items of a list, or the one object.
pub(super) fn listed(found: Value) -> Vec<Value> {
    match found["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![found],
    }
}
